"""Sessions of other frameworks, kept in the log: one file per framework, each an extra."""
