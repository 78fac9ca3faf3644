"""A peer: `SQLiteSession` of the OpenAI Agents SDK on a file; times appending and reading back.

Input lines: {"fill": items} adds items, {"append": item} adds one and reads the whole session, as
the SDK's runner does before each model call. Output lines: the number of items, and for an append
its ms. It imports only agents and the standard library, and runs in bench/.venv (see peers.py).
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from agents import SQLiteSession


async def append(session: SQLiteSession, item: dict) -> dict:
    """Add one item and read all items, and return how long this took."""
    began = time.perf_counter()
    await session.add_items([item])
    items = await session.get_items()
    return {"ms": (time.perf_counter() - began) * 1000, "items": len(items)}


async def main() -> None:
    """Answer every input line with one output line."""
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as directory:
        session = SQLiteSession("bench", Path(directory) / "session.db")
        for line in sys.stdin:
            request = json.loads(line)
            if "fill" in request:
                await session.add_items(request["fill"])
                answer = {"items": len(await session.get_items())}
            else:
                answer = await append(session, request["append"])
            print(json.dumps(answer), flush=True)
        session.close()


asyncio.run(main())
