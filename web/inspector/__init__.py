"""The inspector: a page that shows a session at any offset, and the JSON behind it.

`api.py` answers the page's requests. For the home page, `overview.py` folds all sessions into lists
and charts, `cards.py` folds one session into its row, and `fleet_rows.py` makes the same JSON from
the fleet's answers. The page of a session uses `timeline.py` (the views after each event),
`runs.py` (bars over real time), `summary.py` (an event in one line, for long lists), `sentences.py`
(an event as a sentence), `why.py` (what is pending, by which row of WAKE), `compare.py` (two
moments) and `family.py` (forks). `static/` has the pages: plain JavaScript modules, `home*.js` for
the home page.
"""
