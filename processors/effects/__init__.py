"""Effects, the actions on the outside world: model calls, deliveries and background work. Each runs
under a claim.

Read in this order: `slots.py` (how many run at once), `claim_time.py` (the clock of an effect),
`models/` (model calls), `failed_turns.py`, `background.py`, `delivery.py`. The effect of a tool is
in `tools/call.py`.
"""
