"""For one machine: a real Kafka from pinned jars, and a scripted stand-in for the model's API.

`kafka` runs a single-node broker. `messages_api` answers requests to the model, for tests and for
use without an API key (docs/test-your-agent.md). Both are independent of sessions, folds and
workers: of foldlog they may import only `schemas`.
"""
