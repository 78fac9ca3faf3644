"""The inspector: a page that shows a session at any offset, and the JSON behind it.

`api.py` answers its requests. The home page: `overview.py` folds all sessions into its lists and
charts, `cards.py` one session into its row. The page of a session: `timeline.py` (the views after
each event), `lines.py` (the conversation), `runs.py` (bars over real time), `summary.py` (an event
in one line, for long lists), `saying.py` (an event as a sentence), `why.py` (what is pending and
which row of WAKE says so), `fills.py` (what fills a request), `compare.py` (two moments),
`family.py` (forks). `static/` has the pages: plain JavaScript modules, `home*.js` for the home
page.
"""
