"""Durable Streams: reading sessions, and reading and writing free streams."""
