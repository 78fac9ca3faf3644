"""AG-UI: sessions as its events and messages."""
