"""Actions on the world: model calls and tool runs, each behind its claim."""
