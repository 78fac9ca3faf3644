"""Sessions to fork. A played worker makes their turns, and can also serve a fork."""

import json

from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.processors.fold.views import SessionViews
from foldlog.tests.kit.played import Played


def played_on(client: LogClient, session_id: str) -> Played:
    """A played worker for a session, which may be a fork."""
    played = Played(client.log, session_id)
    played.fold = client.fold(session_id)
    return played


def views_of(client: LogClient, session_id: str, at: int | None = None) -> SessionViews:
    """The session's views at the end of the log, or right after an offset."""
    return Session(client, session_id).views(at)


def talk(client: LogClient, session_id: str, *words: str, played: Played | None = None) -> Played:
    """Play turns of one question and one answer each."""
    played = played or played_on(client, session_id)
    for word in words:
        Session(client, session_id).say(f"say {word}", message_id=f"m-{word}")
        played.answer(f"here is {word}")
    return played


def lines_of(views: SessionViews) -> list[tuple[str, int, str]]:
    """The (kind, turn, text) of each line of the transcript."""
    texts = []
    for line in views.transcript.lines:
        blocks = json.loads(line.body.inline) if line.body and line.body.inline[:1] == b"[" else []
        texts.append((line.kind, line.turn, "".join(b.get("text", "") for b in blocks)))
    return texts


def answers_of(views: SessionViews) -> list[str]:
    """The texts of the model's answers, in order."""
    return [text for kind, _, text in lines_of(views) if kind == "answer"]
