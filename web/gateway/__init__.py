"""The HTTP server for viewers.

It owns no state: it holds only views of the log and the connected viewers.

Read in this order: `app.py` and `serve.py` (the application, the server), `mounted.py` (inside
another application), `gateway.py` (what routes share), `routes/`, `tail.py` (reads and folds the
log), `hub.py` and `subscriptions.py` (viewers), `cursors.py`, `event_stream.py` and `deadline.py`
(what is sent to them), `access.py`, `looks.py`, `names.py`, `bodies.py`, `json_bodies.py` and
`errors.py` (who may, what is recorded, what is refused), `answers.py` (what an answer contains),
`finder.py` (search), `fleet_home.py` (the home page from the fleet), `tabs.py`, `metrics.py`.
"""

from ...log.extras import demand as _demand

_demand("the gateway", "gateway")  # before a module imports its packages
