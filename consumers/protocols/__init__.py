"""Encodes sessions in the protocols of third-party clients, with one pure projection per protocol.

No file here does HTTP: the routes are in consumers/gateway/routes/.
"""
