"""Runs on one machine what foldlog needs: a real Kafka from pinned jars, and a scripted Messages
API.

`kafka` runs a single-node broker. `messages_api` answers requests to the model, for tests and for
use without an API key (docs/test-your-agent.md). Both are independent of sessions, folds and
workers. They may import no package of foldlog except `schemas`.
"""
