"""Tools from outside: MCP servers, and fetching a URL.

Read `server.py` (what an operator says of a server), then `definitions.py` (what a server says of
its tools, made safe and bounded), `arguments.py` and `results.py` (what goes in and comes out),
`fitting.py` (schemas as the Messages API takes them), `protocol.py` (the only file that knows the
`mcp` package), `connection.py` and `nothing_ran.py` (one server, and how a call comes to nothing),
`tools.py` (a worker's servers, from its start to its end) and `fetch.py`. Whatever a server says
is data from somebody else: descriptions, schemas, hints and results alike.
"""

from .server import McpServer

__all__ = ["McpServer"]
