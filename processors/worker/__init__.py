"""The worker process: it consumes records, folds and stores them, evaluates WAKE and produces."""
