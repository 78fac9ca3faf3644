"""Sessions in the protocols of third-party clients: one pure projection per protocol.

No file here does HTTP: the routes are in consumers/gateway/routes/.
"""
