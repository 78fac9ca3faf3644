"""Chats of the AI SDK for tests: the real client in node talks to a gateway."""

import json
from pathlib import Path

from foldlog.tests.web.gateway.served import SECRET
from foldlog.web.gateway.access import token_for

CLIENT = Path(__file__).with_name("ai_sdk_chat.mjs")


class Chat:
    """One chat in node. Each method returns the state of the chat after the action."""

    def __init__(self, node, gateway, session, name="a", **more):
        self.node, self.name = node, f"{session}/{name}"
        headers = {"authorization": f"Bearer {token_for('ana', SECRET)}"}
        self("new", api=f"{gateway.url}/api/chat", id=session, headers=headers, **more)

    def __call__(self, do, **more):
        state = self.node.ask({"do": do, "chat": self.name, **more})
        assert "thrown" not in state, state["thrown"]
        return state

    def send(self, text, message_id, **body):
        parts = [{"type": "text", "text": text}]
        return self("send", message={"id": message_id, "parts": parts}, options={"body": body})


def stored(ana, session_id):
    """The history that the gateway returns."""
    return ana.get(f"/api/chat/{session_id}/messages").raise_for_status().json()["messages"]


def texts(message):
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


def as_stored(state):
    """A chat's messages in the form in which the gateway stores them."""
    return json.loads(json.dumps(state["messages"]))
