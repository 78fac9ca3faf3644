"""From the context view to the bytes of one model request."""
