"""The interpreter: folds, tables, effects, the worker. Depends on schemas, log and producers."""
