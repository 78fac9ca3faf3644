"""A peer: LangGraph with SqliteSaver or PostgresSaver. Times each superstep of a graph whose node
appends one tool result to the messages.

The durability mode is "sync": a checkpoint is stored before the next superstep begins. (In the
default mode "async" it may be lost in a crash.) Input lines: {"steps": n, "saver": the name of the
saver, "messages": how many messages the thread has at the first step, "flush": whether a commit
waits for the disk}. Output lines: the ms of each superstep. It imports only langgraph, pgserver and
the standard library, and runs in bench/.venv (see peers.py).
"""

import json
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pgserver
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

TEXT = "a message of about eighty characters, as in a chat of a person with an agent"


class State(TypedDict):
    """A conversation, and how many steps are left."""

    messages: Annotated[list[AnyMessage], add_messages]
    left: int


def timed_steps(saver: BaseCheckpointSaver, steps: int, messages: int) -> list[float]:
    """The ms from each step's node to the next one's."""
    begun: list[float] = []

    def look(state: State) -> dict[str, Any]:
        begun.append(time.perf_counter())
        return {"messages": [AIMessage("ok")], "left": state["left"] - 1}

    builder = StateGraph(State)
    builder.add_node("look", look)
    builder.add_edge(START, "look")
    builder.add_conditional_edges("look", lambda state: "look" if state["left"] else END)
    app = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": steps + 10}
    history = [(HumanMessage, AIMessage)[n % 2](TEXT) for n in range(messages)]
    app.invoke({"messages": history, "left": steps + 1}, config, durability="sync")
    return [(b - a) * 1000 for a, b in pairwise(begun)]


with ExitStack() as stack:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foldlog-bench-")))
    savers: dict[str, BaseCheckpointSaver] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["saver"] not in savers and asked["saver"] == "PostgresSaver":
            postgres = stack.enter_context(pgserver.get_server(directory / "postgres"))
            stored = stack.enter_context(PostgresSaver.from_conn_string(postgres.get_uri()))
            stored.setup()
            savers["PostgresSaver"] = stored
        elif asked["saver"] not in savers:
            path = str(directory / "checkpoints.db")
            savers["SqliteSaver"] = stack.enter_context(SqliteSaver.from_conn_string(path))
        saver = savers[asked["saver"]]
        if isinstance(saver, SqliteSaver):
            saver.setup()  # which sets the journal mode
            saver.conn.execute(f"PRAGMA synchronous = {'FULL' if asked['flush'] else 'NORMAL'}")
        else:
            commit = "on" if asked["flush"] else "off"
            postgres.psql(f"ALTER SYSTEM SET synchronous_commit = {commit};")
            postgres.psql("SELECT pg_reload_conf();")
            assert "\n on\n" in postgres.psql("SHOW fsync;")
        times_ms = timed_steps(saver, asked["steps"], asked["messages"])
        print(json.dumps(times_ms), flush=True)
