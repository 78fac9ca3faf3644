"""The worker process: it consumes records, folds and stores them, evaluates WAKE and produces.

Read in this order: `worker.py` (the core: takes records, does the pending work), `loop.py` (the
poll loop around it), `actions.py` (does what WAKE requires; see `../effects` for the stages of an
effect), `effects_host.py`, `reports.py` and `outbox.py` (effects run, their outcomes get into the
log),
`lost_effects.py` and `deaths.py` (what another worker left behind), `slot_queue.py`,
`layers_reader.py` and `instruction_files.py` (what a request waits for or reads),
`dead_letters.py`, `announce.py`, `fact_sender.py`, `snapshot_maker.py` and `topic_watch.py`
(written or watched beside the work).

The process around it: `assemble.py` (its parts), `worker_thread.py`, `host.py`, `start_lock.py`,
`same_agents.py` and `supervise.py` (start, end, spare), `meter.py`, `metrics.py`, `pages.py`,
`page_access.py` and `page_request.py` (what operators see), `wake_once.py` (one session, by hand).
"""
