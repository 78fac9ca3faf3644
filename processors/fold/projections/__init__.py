"""The folds, one per file: pure, standard library and schemas only."""
