"""Third-party tools: MCP servers, and fetching a URL.

An operator's settings for a server are in `mcp_server.py`, next to `agent.py`. Read in this order:
`definitions.py` (a server's tool definitions, made safe and bounded), `arguments.py` and
`results.py` (input and output of a call), `fitting.py` (schemas adapted to the Messages API),
`protocol.py` (the only file that imports the `mcp` package), `connection.py` and `call_failures.py`
(the connection to one server, and the failures that prove that the tool never ran), `tools.py` (all
servers of a worker), `fetch.py`, `addresses.py` and `html_text.py` (a page of the web). Everything
from a server is third-party data: descriptions, schemas, hints and results.
"""
