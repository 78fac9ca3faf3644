"""Metrics and traces for operators: what happened, never the content."""
