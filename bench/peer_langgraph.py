"""A peer that runs the job as a LangGraph user would, with SqliteSaver on a file.

The graph has two nodes (a scripted model and a scripted tool) and the `add_messages` reducer. There
is one `invoke` per turn, with all defaults (a checkpoint per step). The input line has the job's
turns, the output line the stored sizes. It imports only langgraph and the standard library, and
runs in bench/.venv (see peers.py).
"""

import json
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


class State(TypedDict):
    """A conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


def graph(turns: list[dict], saver: SqliteSaver) -> Any:
    """The graph: the model calls the tool once after each question, then answers."""

    def model(state: State) -> State:
        last = state["messages"][-1]
        turn = turns[sum(isinstance(m, HumanMessage) for m in state["messages"]) - 1]
        if isinstance(last, ToolMessage):
            return {"messages": [AIMessage(turn["answer"])]}
        call = {
            "name": "look",
            "args": json.loads(turn["args"]),
            "id": f"toolu_{turn['number']:024}",
        }
        return {"messages": [AIMessage(turn["preface"], tool_calls=[call])]}

    def look(state: State) -> State:
        call = state["messages"][-1].tool_calls[0]
        turn = turns[int(call["id"].removeprefix("toolu_")) - 1]
        return {"messages": [ToolMessage(turn["result"], tool_call_id=call["id"])]}

    def after_model(state: State) -> str:
        return "look" if state["messages"][-1].tool_calls else END

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("look", look)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", after_model, ["look", END])
    builder.add_edge("look", "model")
    return builder.compile(checkpointer=saver)


def run(turns: list[dict]) -> dict[str, int]:
    """Run the whole job, and return the bytes of its rows and of the database file."""
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as directory:
        path = Path(directory) / "checkpoints.db"
        with SqliteSaver.from_conn_string(str(path)) as saver:
            app = graph(turns, saver)
            config = {"configurable": {"thread_id": "bench"}}
            for turn in turns:
                state = app.invoke({"messages": [HumanMessage(turn["question"])]}, config)
            messages = len(state["messages"])
        with sqlite3.connect(path) as db:
            db.execute("pragma wal_checkpoint(truncate)")
            rows = sum(_bytes(db, table) for table in ("checkpoints", "writes"))
        db.close()
        return {"messages": messages, "rows": rows, "file": path.stat().st_size}


def _bytes(db: sqlite3.Connection, table: str) -> int:
    names = [row[1] for row in db.execute(f"pragma table_info({table})")]
    sizes = " + ".join(f"ifnull(length(cast({name} as blob)), 0)" for name in names)
    return db.execute(f"select ifnull(sum({sizes}), 0) from {table}").fetchone()[0]


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
