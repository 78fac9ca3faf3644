"""The interpreter: folds, tables, effects, the worker. Knows schemas, log and producers."""
