"""What a terminal shows and takes.

Read in this order: `printing.py` (lines, tables, JSON), `clean_text.py` (no control characters),
`progress.py`, `log_lines.py`, `event_lines.py`, `signals.py` (Ctrl-C), `lines.py` and `editor.py`
(what a person types), `screen.py`, `markdown.py` and `turn_meter.py` (a chat).
"""
