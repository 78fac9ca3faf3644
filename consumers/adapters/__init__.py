"""Stores sessions of other frameworks in the log: one file per framework, each an extra."""
