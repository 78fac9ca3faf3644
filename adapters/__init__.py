"""Stores sessions of other frameworks in the log.

Each framework has one file in this folder, and is installed as an extra of the package.

Read in this order: `items.py` (histories as items of a session), `session_cache.py`,
`openai_agents.py`.
"""
