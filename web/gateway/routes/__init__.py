"""The routes of the gateway, one file for each protocol.

To add a protocol, write its encoding as a package in web/protocols/ (listed in
pyproject.toml) and its routes as a file here, and add the `router` of that file to ROUTERS in
gateway/app.py. tests/web/gateway/test_foreign.py finds routes that name a session in their
path; add requests that name a session in their body to its BY_BODY, and JSON bodies to BODIES in
test_hostile_json.py.

`plain.py` is our own API; `ai_sdk.py`, `ag_ui.py` and `durable.py` are protocols of others;
`inspector.py`, `home.py`, `tabs.py` and `branching.py` serve the inspector; `metrics.py` serves
monitoring.
"""
