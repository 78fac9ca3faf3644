"""Durable Streams: serves sessions as read-only streams."""
