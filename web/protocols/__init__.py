"""Encodes sessions in the protocols of third-party clients, with one pure projection per protocol.

No file here does HTTP: the routes are in web/gateway/routes/.

`plain.py` and `exact.py` encode frames for our own clients; `ai_sdk/`, `ag_ui/` and `durable/` for
those of others.
"""
