"""Metrics and traces for operators, without the content of sessions."""
