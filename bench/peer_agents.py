"""A peer: `SQLiteSession` of the OpenAI Agents SDK on a file: its time to append and read back.

Line in: {"fill": items} adds items, {"append": item} adds one and reads the whole session back, as
the SDK's runner does before each model call. Line out: how many items there are, and ms of that.
It imports agents and the standard library, and runs in bench/.venv (see peers.py).
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from agents import SQLiteSession


async def append(session: SQLiteSession, item: dict) -> dict:
    """One item more, and all of them."""
    began = time.perf_counter()
    await session.add_items([item])
    items = await session.get_items()
    return {"ms": (time.perf_counter() - began) * 1000, "items": len(items)}


async def main() -> None:
    """Answer every line."""
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as directory:
        session = SQLiteSession("bench", Path(directory) / "session.db")
        for line in sys.stdin:
            asked = json.loads(line)
            if "fill" in asked:
                await session.add_items(asked["fill"])
                answer = {"items": len(await session.get_items())}
            else:
                answer = await append(session, asked["append"])
            print(json.dumps(answer), flush=True)
        session.close()


asyncio.run(main())
