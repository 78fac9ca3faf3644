"""A small MCP server on stdin and stdout: it converts cents. The agent of my_app.py has it."""

from mcp.server.mcpserver import MCPServer

PER_EURO = {"EUR": 1.0, "USD": 1.08, "GBP": 0.85}
server = MCPServer("rates")


@server.tool()
def convert(cents: int, currency: str) -> str:
    """Convert an amount in euro cents into another currency."""
    if currency not in PER_EURO:
        return f"no rate for {currency}; there are {', '.join(PER_EURO)}"
    return f"{round(cents * PER_EURO[currency])} cents of {currency}"


if __name__ == "__main__":
    server.run()
