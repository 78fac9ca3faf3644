"""Exports the log for other tools, as rows, tables, bundles and reports. Each export is a fold.

Read in this order: `formats.py` (the list of formats), `reading.py`, `facts.py` and `inherited.py`
(the log read once, the facts of a session), `tables.py`, `rows.py` and `table_files.py` (tables),
`duck.py` (SQL on them), `sqlite_file.py`, `rubyllm.py`, `vercel.py` and `blocks.py` (tables of
other frameworks), `bundle.py` and `bundle_log.py` (a session in one file), `audit.py`,
`audit_parts.py`, `timeline.py` and `proof.py` (a page for people), `files.py` (written whole or
not at all).
"""
