"""Local state of a worker: views by partition, fork seeds, chunks, the directory lock.

Read in this order: `store.py` (views and cursor in one batch), `rocks.py` (RocksDB),
`views_codec.py`, `partition_cache.py` and `hot_sessions.py` (what is in memory), `opener.py`,
`state_dir.py` and `identity.py` (the directory, its lock, and whose it is), `snapshots.py` and
`snapshot_loader.py`, `fork_seeds.py` and `chunks_reader.py` (content that a fold or a resumption
needs), `clocks.py` (the time for decisions).
"""
