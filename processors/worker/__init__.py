"""The worker process: consume, fold, store, wake, produce."""
