"""What the fold rules about each event before any view changes."""
