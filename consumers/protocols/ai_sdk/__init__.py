"""Vercel AI SDK: sessions as UI message streams."""
