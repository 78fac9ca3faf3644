"""AG-UI: encodes sessions as events and messages of this protocol.

Read in this order: `input.py`, `events.py` (the encoder) with `attempt_output.py`, `calls.py`,
`messages.py` and `usage.py` (its parts), `answers.py` (interrupts).
"""
