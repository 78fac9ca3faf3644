"""Serves sessions over HTTP. It owns no state: it holds views of the log and connected viewers.

Read in this order: `gateway/` (the server and its routes), `protocols/` (sessions as the AI SDK,
AG-UI and Durable Streams show them, pure), `inspector/` (the page and its JSON), `asgi.py` (the
protocols inside another application).
"""
