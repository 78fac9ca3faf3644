"""Effects, the actions on the outside world: model calls, tool calls, background work, deliveries.
Each runs under a claim.

Read in this order: `effect.py` (the stages of every effect's life), `model.py`, `tool.py`,
`background.py`, `delivery.py` (a kind each), `kinds.py` (the table of kinds), `ports.py` (what each
needs to begin), `start_window.py`, `claim_time.py` and `slots.py` (when it may begin, its clock,
how many run at once), `resumption.py` (partial answers), `early_asks.py` (reconcilers), `models/`
(the model call itself; a tool call is `tools/call.py`), `failed_turns.py`.
"""
