"""Vercel AI SDK: encodes sessions as UI message streams."""
