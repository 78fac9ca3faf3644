"""What one machine needs in place of a data centre: a real Kafka from pinned jars, and a test kit.

`kafka` runs a single-node broker. `messages_api` is a scripted stand-in for the model's API, for
tests and for use without an API key (docs/test-your-agent.md). Both are independent of sessions,
folds and workers: of foldlog they may import only `schemas`.
"""
