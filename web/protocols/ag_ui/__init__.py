"""AG-UI: encodes sessions as events and messages of this protocol.

Read in this order: `input.py`, `events.py` (the encoder) with `attempt_output.py`, `calls.py` and
`messages.py` (its parts), `answers.py` (interrupts).
"""
