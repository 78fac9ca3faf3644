"""Exports RubyLLM's `acts_as_chat` rows: chats, messages, tool_calls, models, attachments.

Rows are in the order of the model's context: a message comes at the point at which the model first
got it, and each call is followed by its result. So RubyLLM can send a loaded chat as a request.
Tokens, thinking and signatures are in RubyLLM's columns, and attachments are rows of Rails' Active
Storage. All other data is unchanged in columns whose names begin with `foldlog_`.
"""

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import md5
from typing import Any

from ...client.printable import plain, text_of
from ...processors.advice.prices import PICO_PER_USD, PriceTable
from ...processors.fold.projections.context_view import Fragment
from ...processors.fold.projections.transcript import Line
from ...schemas.codec import Entry
from ...schemas.events.parts import BlobRef, Body
from ...schemas.ids import call_key
from .blocks import Block, Contents, blocks, strict_json, text_of as decoded, time
from .facts import CallFacts, SessionFacts
from .reading import Read
from .rows import message_lines
from .sqlite_file import Tables, json_text, schema

PROVIDER = "anthropic"
NOT_SENT = 1 << 62  # a message that was in no request comes last
SERVICE = "local"
"""The name of Rails' disk service in `config/storage.yml`."""
_ANSWERS = ("assistant", "partial")
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_-]")


def fill(read: Read, tables: Tables, contents: Contents, prices: PriceTable) -> None:
    """Create and fill the tables."""
    tables.create(schema("rubyllm"))
    writer = _Writer(tables, contents, prices)
    for facts in read.sessions.values():
        writer.chat(facts)


class _Writer:
    """Writes chats. It records which models and files already have a row, and which call ids are
    taken.
    """

    def __init__(self, tables: Tables, contents: Contents, prices: PriceTable) -> None:
        self._tables, self._contents, self._prices = tables, contents, prices
        self._models: dict[str, int] = {}
        self._labels: set[str] = set()
        self._files: dict[tuple[str, str, str], int] = {}

    def chat(self, facts: SessionFacts) -> None:
        """Write a session and everything in it."""
        tables, created = self._tables, _stamp(_begun(facts))
        chat = tables.add("chats", {
            "model_id": None,
            "created_at": created,
            "updated_at": _stamp(time(facts.last_at)),
            "foldlog_session_id": facts.session_id,
            "foldlog_user_id": facts.views.state.user_id or None,
            "foldlog_state": json_text(plain(facts.views.state)),
        })
        self._system(facts, chat, created)
        last_model, calls = None, dict[str, int]()
        for item in _in_order(facts):
            if isinstance(item, Fragment):
                self._result(facts, chat, item, calls)
                continue
            model, answer = self._line(facts, chat, item[1], item[2])
            last_model = model or last_model
            line = item[1]
            calls_of = facts.proposed.get((line.turn, line.step), ())
            for known in calls_of if line.kind == "answer" else ():
                calls[known.call.key] = self._call(facts, known, answer)
        if last_model is not None:
            tables.change("UPDATE chats SET model_id = ? WHERE id = ?", (last_model, chat))

    def _system(self, facts: SessionFacts, chat: int, created: str) -> None:
        """Write the current prompt as RubyLLM stores instructions: as the first message."""
        prefixes = facts.views.context.prefixes
        if not len(prefixes):
            return
        content = self._contents.whole(prefixes[-1].system)
        self._tables.add("messages", {
            **_message(chat, "system", created),
            "content": None if content is None else text_of(content),
            "foldlog_offset": prefixes[-1].offset,
            "foldlog_status": "missing" if content is None else "complete",
            "foldlog_blocks": decoded(content),
        })

    def _line(
        self, facts: SessionFacts, chat: int, line: Line, was_sent: bool
    ) -> tuple[int | None, int]:
        """Write a message or an answer, and return (the id of its model, the id of its row)."""
        content = self._contents.whole(line.body)
        is_user = line.kind == "message"
        known = facts.answers.get((line.turn, line.step)) if line.kind != "message" else None
        attempt = known.event.attempt if known is not None else 0
        model = None if is_user else self._model(facts, line, known)
        spent = facts.views.ledger.spent.last((line.turn, line.step, attempt))
        found = blocks(content or b"")
        thoughts = [block for block in found if block.kind == "thinking"]
        signatures = [b.text("signature") for b in thoughts if b.text("signature")]
        status = "partial" if line.kind == "partial" else "complete"
        if is_user and not was_sent:
            status = "not_said"
        entry = facts.messages.get(line.name) if is_user else None
        role = "assistant"
        if is_user:
            role = entry.event.role if entry is not None else "user"
        row = self._tables.add("messages", {
            **_message(chat, role, _stamp(time(line.at))),
            "content": None if content is None else _texts(found),
            "thinking_text": "".join(b.text("thinking") or "" for b in thoughts) or None,
            "thinking_signature": signatures[-1] if signatures else None,
            "input_tokens": spent.input_tokens if spent and not is_user else None,
            "output_tokens": spent.output_tokens if spent and not is_user else None,
            "cached_tokens": spent.cache_read_tokens if spent and not is_user else None,
            "cache_creation_tokens": spent.cache_write_tokens if spent and not is_user else None,
            "model_id": model,
            "foldlog_message_id": line.name if is_user else f"{line.turn}.{line.step}",
            "foldlog_offset": line.offset,
            "foldlog_status": "missing" if content is None else status,
            "foldlog_blocks": decoded(content) if content is not None else _reference(line),
        })
        self._attachments(row, found, _stamp(time(line.at)))
        return model, row

    def _attachments(self, message: int, found: list[Block], stamp: str) -> None:
        """Write the files of a message. Active Storage attaches a file to a message once."""
        attached = {
            self._file(ref, block.text("title"), stamp): None
            for block in found if (ref := block.attachment()) is not None
        }
        for file in attached:
            self._tables.add("active_storage_attachments", {
                "name": "attachments",
                "record_type": "Message",
                "record_id": message,
                "blob_id": file,
                "created_at": stamp,
            })

    def _file(self, ref: BlobRef, title: str | None, stamp: str) -> int:
        """The id of a file's row. Equal content with another name or type is another file."""
        filename = title or "attachment." + ref.media_type.partition("/")[2]
        identity = (ref.sha256, filename, ref.media_type)
        if identity not in self._files:
            data, same = self._contents.blob(ref), sum(ref.sha256 in one for one in self._files)
            self._files[identity] = self._tables.add("active_storage_blobs", {
                "key": f"{ref.sha256}-{same}" if same else ref.sha256,
                "filename": filename,
                "content_type": ref.media_type,
                "metadata": json_text({"identified": True}),
                "service_name": SERVICE,
                "byte_size": ref.bytes if data is None else len(data),
                "checksum": None if data is None else _checksum(data),
                "created_at": stamp,
                "foldlog_sha256": ref.sha256,
                "foldlog_data": data,
            })
        return self._files[identity]

    def _model(self, facts: SessionFacts, line: Line, known: Entry | None) -> int | None:
        name = getattr(known.event, "model", "") if known is not None else ""
        name = name or facts.models.get((line.turn, line.step), "")
        if not name:
            return None
        if name not in self._models:
            stamp = _stamp(_begun(facts))
            self._models[name] = self._tables.add("models", {
                "model_id": name,
                "name": name,
                "provider": PROVIDER,
                "pricing": json_text(_pricing(name, self._prices)),
                "metadata": json_text({"source": "foldlog", "prices": self._prices.version}),
                "created_at": stamp,
                "updated_at": stamp,
            })
        return self._models[name]

    def _call(self, facts: SessionFacts, known: CallFacts, answer: int) -> int:
        call, args = known.call, self._contents.whole(known.call.args)
        parsed = strict_json(args or b"")
        stamp = _stamp(time(known.proposed.at))
        return self._tables.add("tool_calls", {
            "tool_call_id": self._label(facts.session_id, known),
            "name": call.name,
            "arguments": "{}" if parsed is None else bytes(parsed).decode(),
            "created_at": stamp,
            "updated_at": _stamp(time(known.ended.at)) if known.ended is not None else stamp,
            "message_id": answer,
            "foldlog_call": call.key,
            "foldlog_call_id": call.call_id,
            "foldlog_arguments": decoded(args),
            "foldlog_status": call.status,
            "foldlog_outcome": call.outcome or None,
        })

    def _label(self, session_id: str, known: CallFacts) -> str:
        """The provider's call_id, changed if an earlier call has the same one. RubyLLM needs unique
        ids, and providers may use a call_id twice.
        """
        call = known.call
        wanted = _NOT_IN_LABELS.sub("_", call.call_id) or "call"
        if wanted in self._labels:
            place = f"{session_id}_{call.turn}_{call.step}_{call.index}"
            wanted = _NOT_IN_LABELS.sub("_", f"{wanted}_{place}")
        label, more = wanted, 1
        while label in self._labels:
            label, more = f"{wanted}_{more}", more + 1
        self._labels.add(label)
        return label

    def _result(
        self, facts: SessionFacts, chat: int, fragment: Fragment, calls: dict[str, int]
    ) -> None:
        """Write the result that the model got, as a row with the role `tool` that links to the
        call.
        """
        key = call_key(fragment.turn, fragment.step, fragment.index)
        if key not in calls:
            return
        body = fragment.body
        content = self._contents.preview(body)
        known = facts.calls[key]
        at = known.ended.at if known.ended is not None else known.proposed.at
        self._tables.add("messages", {
            **_message(chat, "tool", _stamp(time(at))),
            "content": None if content is None else (decoded(content) or "") + fragment.text,
            "tool_call_id": calls[key],
            "foldlog_offset": fragment.offset,
            "foldlog_status": "missing" if content is None else "complete",
            "foldlog_blocks": json_text(plain(body)) if body is not None else None,
        })


def _in_order(facts: SessionFacts) -> Iterator[tuple[int, Line, bool] | Fragment]:
    """The messages, answers and results, in context order. A message or an answer is a tuple (seq,
    line, whether the model got it), a result is a fragment.

    A message is found in the context by its content and an answer by its turn and step, not by
    offset, because the inherited lines of a fork have offsets of another partition.
    """
    fragments = list(facts.views.context.fragments)
    steps = {(f.turn, f.step): n for n, f in enumerate(fragments) if f.kind in _ANSWERS}
    users: dict[Body | None, list[int]] = {}
    for number, fragment in enumerate(fragments):
        if fragment.kind == "user":
            users.setdefault(fragment.body, []).append(number)
    keyed: list[tuple[tuple[int, int, int], Any]] = [
        ((place, 0, 0), fragment) for place, fragment in enumerate(fragments)
        if fragment.kind == "result"
    ]
    last = -1
    place: int | None
    for seq, line in message_lines(facts.views):
        if line.kind == "message":
            found = users.get(line.body)
            place = found.pop(0) if found else None
            key = (NOT_SENT if place is None else place, 1, seq)
        else:
            step = (line.turn, line.step)
            place = steps.get(step)
            # A refused answer is in no context, so place it after its question.
            last = place if place is not None else max(last, facts.covered.get(step, 0) - 1)
            key = (last, 2, seq)
        keyed.append((key, (seq, line, place is not None)))
    return (item for _, item in sorted(keyed, key=lambda pair: pair[0]))


def _message(chat: int, role: str, stamp: str) -> dict[str, Any]:
    return {"chat_id": chat, "role": role, "created_at": stamp, "updated_at": stamp}


def _texts(found: list[Block]) -> str:
    """The text of the text blocks. Attachments have rows of their own."""
    return "".join(block.text("text") or "" for block in found if block.kind == "text")


def _checksum(data: bytes) -> str:
    """The checksum that Active Storage compares with the file."""
    return b64encode(md5(data, usedforsecurity=False).digest()).decode()


def _reference(line: Line) -> str | None:
    ref = line.body.ref if line.body is not None else None
    return None if ref is None else json_text({"missing": plain(ref)})


def _begun(facts: SessionFacts) -> str | None:
    return time(facts.opened.at if facts.opened is not None else facts.last_at)


def _stamp(iso: str | None) -> str:
    """A time as Rails writes it into SQLite, in UTC without a zone."""
    return (iso or "1970-01-01T00:00:00.000Z").replace("T", " ").replace("Z", "000")


def _pricing(model: str, prices: PriceTable) -> dict[str, Any]:
    price = prices.of(model)
    if price is None:
        return {}
    per_million = {
        "input_per_million": price.input,
        "output_per_million": price.output,
        "cache_read_input_per_million": price.cache_read,
        "cache_write_input_per_million": price.cache_write_5m,
    }
    standard = {name: pico * 10**6 / PICO_PER_USD for name, pico in per_million.items()}
    return {"text_tokens": {"standard": standard}}
