"""Stand-ins on a laptop: a real Kafka from pinned jars, and a scripted Messages API server.

This package replaces a data centre on one machine. It is independent of sessions, folds and
workers: of foldlog it may import only `schemas`.
"""
