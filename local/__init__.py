"""Stand-ins on a laptop: a real Kafka from pinned jars, and a scripted Messages API server.

This room owns what replaces a data centre on one machine. It knows nothing of sessions, folds or
workers: it may import `schemas` and nothing else of foldlog.
"""
