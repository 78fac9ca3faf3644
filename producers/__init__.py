"""The write side: open, say, cancel, decide; blobs. Knows schemas and log."""
