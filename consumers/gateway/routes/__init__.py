"""The routes of the gateway, one file for each protocol.

To add a protocol, write its encoding as a package in consumers/protocols/ (listed in
pyproject.toml) and its routes as a file here, and add the `router` of that file to ROUTERS in
gateway/app.py. tests/consumers/gateway/test_foreign.py finds routes that name a session in their
path; add requests that name a session in their body to its BY_BODY, and JSON bodies to BODIES in
test_hostile_json.py.
"""
