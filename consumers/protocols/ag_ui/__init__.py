"""AG-UI: encodes sessions as events and messages of this protocol."""
