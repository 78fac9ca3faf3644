"""The routes of the gateway, one file for each protocol.

To add a protocol: its encoding goes into a package of consumers/protocols/ (listed in
pyproject.toml), its routes into a file here, and the `router` of that file into ROUTERS in
gateway/app.py. tests/consumers/gateway/test_foreign.py finds routes that name a session in their
path; add requests that name a session in their body to its BY_BODY, and JSON bodies to BODIES in
test_hostile_json.py.
"""
