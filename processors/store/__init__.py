"""Local state of a worker: views by partition, chunks, the directory lock.

Read in this order: `store.py` (views and cursor in one batch), `rocks.py` (RocksDB),
`views_codec.py`, `partition_cache.py` and `hot_sessions.py` (what is in memory), `opener.py`,
`state_dir.py` and `identity.py` (the directory, its lock, and whose it is), `snapshots.py` and
`snapshot_loader.py`, `chunks_reader.py` (the text of a lost attempt), `clocks.py` (the time for
decisions).
"""
