"""Tools from outside: MCP servers, and fetching a URL.

Read `server.py` (what an operator says of a server), then `definitions.py` (what a server says of
its tools, made safe and bounded), `arguments.py` and `results.py` (what goes in and comes out),
`transports.py` and `connection.py` (the only files that know the `mcp` package), `tools.py` (a
worker's servers, from its start to its end) and `fetch.py`. Whatever a server says is data from
somebody else: descriptions, schemas, hints and results alike.
"""

from .server import McpServer

__all__ = ["McpServer"]
