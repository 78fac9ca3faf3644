"""Durable Streams: serves sessions as read-only streams, and streams that clients write."""
