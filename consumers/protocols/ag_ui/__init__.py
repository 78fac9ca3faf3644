"""AG-UI: sessions as events and messages of that protocol."""
