"""Durable Streams: reading a session and writing free streams."""
