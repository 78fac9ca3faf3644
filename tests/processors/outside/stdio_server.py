"""A small MCP server on stdin and stdout, for the tests: `python stdio_server.py DIRECTORY`.

Files in DIRECTORY control the server:

calls   receives one line for each call that starts
tools   a JSON list of names of further tools
odd     makes the server list tools with unusable schemas
broken  makes the server exit at once
mute    makes the server never respond
who     adds a tool that returns the name and version of the client
"""

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ImageContent, TextContent, ToolAnnotations

HERE = Path(sys.argv[1])
server = MCPServer("small")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()


def record_call(name: str) -> None:
    with open(HERE / "calls", "a") as file:
        file.write(f"{name} {os.getpid()}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    """Add two numbers.\u202e\x07 <b>"""
    record_call("add")
    return str(a + b)


def who(ctx: Context) -> str:
    """Returns the name and version of the client."""
    client = ctx.session.client_params.client_info
    return f"{client.name} {client.version}"


if (HERE / "who").exists():
    server.tool()(who)


@server.tool()
def charge(cents: int) -> str:
    """Charges a card."""
    record_call("charge")
    return f"charged {cents}"


@server.tool(name="die.now")
def die() -> str:
    """Kills the server process during the call."""
    record_call("die")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def slow(seconds: float) -> str:
    """Sleeps for that many seconds."""
    record_call("slow")
    time.sleep(seconds)
    return "done"


@server.tool()
def huge(megabytes: int) -> str:
    """Returns that many megabytes of text."""
    record_call("huge")
    return "x" * megabytes * 1024 * 1024


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no money")


@server.tool(structured_output=False)
def picture(alone: bool) -> list:
    """Returns an image."""
    image = ImageContent(data=PNG, mime_type="image/png")
    return [image] if alone else [TextContent(text="look:"), image]


@server.tool()
def secret() -> str:
    """Returns two environment variables."""
    return f"{os.environ.get('SHOP_KEY')} {os.environ.get('OTHER_TOKEN')}"


for name in json.loads((HERE / "tools").read_text()) if (HERE / "tools").exists() else ():
    server.add_tool(lambda: "new", name=name, description=f"The tool {name}.")

if (HERE / "odd").exists():
    listed = server.list_tools

    async def odd():
        tools = await listed()
        tools[0].input_schema = {"type": "object", "properties": {"x": {"$ref": "http://x/y"}}}
        deep = {"type": "string"}
        for _ in range(40):
            deep = {"type": "object", "properties": {"x": deep}}
        tools[1].input_schema = deep
        tools[2].input_schema = {"type": "object", "properties": {"x": {"enum": ["y" * 9] * 9000}}}
        return tools

    server.list_tools = odd

print("starting with", os.environ.get("SHOP_KEY"), file=sys.stderr, flush=True)
if (HERE / "broken").exists():
    sys.exit(3)
if (HERE / "mute").exists():
    time.sleep(60)
server.run("stdio")
