"""Sessions in the protocols of third-party clients: one pure projection per protocol."""
