"""The pure core: events in, views out."""
