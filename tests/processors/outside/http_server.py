"""A small MCP server over streamable HTTP: `python http_server.py DIRECTORY PORT`."""

import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

HERE, PORT = Path(sys.argv[1]), int(sys.argv[2])
server = MCPServer("web")


@server.tool()
def charge(cents: int) -> str:
    """Charges a card."""
    (HERE / "charged").write_text(str(cents))
    return f"charged {cents}"


@server.tool()
def slow(seconds: float) -> str:
    """Sleeps for that many seconds."""
    (HERE / "slow").write_text("began")
    time.sleep(seconds)
    return "done"


@server.tool()
def huge(megabytes: int) -> str:
    """Returns that many megabytes of text."""
    return "x" * megabytes * 1024 * 1024


server.run("streamable-http", host="127.0.0.1", port=PORT)
