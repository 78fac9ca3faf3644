"""The rows of RubyLLM and Vercel: constraints hold, messages are in order, nothing is lost."""

import json
import sqlite3

import pytest

from foldlog.processors.advice.prices import list_prices
from foldlog.reports.exports import rubyllm, vercel
from foldlog.reports.exports.blocks import Contents, blocks
from foldlog.reports.exports.reading import read_log
from foldlog.reports.exports.sqlite_file import write_sqlite
from foldlog.tests.golden import golden
from foldlog.tests.reports.exports.logs import Recorded, all_logs, golden_log

IN_ORDER = """
    SELECT role, content, tool_call_id FROM messages
    WHERE chat_id = (SELECT id FROM chats WHERE foldlog_session_id = ?) ORDER BY id
"""
PARTS_IN_ORDER = """
    SELECT m.role, p.* FROM messages m JOIN parts p ON p."messageId" = m.id
    WHERE m."chatId" = ? ORDER BY m.foldlog_seq, p."order"
"""


def make(source: Recorded, path, which: str) -> sqlite3.Connection:
    contents = Contents(source.read)
    fills = {
        "rubyllm": lambda *to: rubyllm.fill(*to, contents, list_prices()),
        "vercel": lambda *to: vercel.fill(*to, contents),
    }
    write_sqlite(path, source.log, None, contents, fills[which], lambda read, there: None)
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    return database


def lines_with_blocks(source: Recorded) -> list:
    """The (line, blocks) of the messages and answers, from the fold."""
    facts = read_log(source.log, None, Contents(source.read)).sessions.get(source.session_id)
    lines = facts.views.transcript.lines if facts else ()
    contents = Contents(source.read)
    kinds = ("message", "answer", "partial")
    return [(x, blocks(contents.whole(x.body) or b"")) for x in lines if x.kind in kinds]


@pytest.mark.parametrize("which", ["rubyllm", "vercel"])
def test_S4_2_S4_3_S4_4_constraints_hold_and_every_text_and_record_is_present(which, tmp_path):
    for number, source in enumerate(all_logs()):
        database = make(source, tmp_path / f"{number}.sqlite", which)
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        offsets = [row[0] for row in database.execute(
            'SELECT at_offset FROM foldlog_events ORDER BY "partition", at_offset')]
        assert offsets == [record.offset for record in source.records]
        answers = [(line, found) for line, found in lines_with_blocks(source) if found]
        texts = [b.fields[b.kind] for _, found in answers for b in found
                 if b.kind in ("text", "thinking")]
        signatures = {b.fields["signature"] for _, found in answers for b in found
                      if b.fields.get("signature")}
        if which == "rubyllm":
            stored = [row[0] for row in database.execute(
                "SELECT foldlog_blocks FROM messages WHERE role IN ('user', 'assistant')")]
            raws = sorted(block.raw for _, found in answers for block in found)
            assert sorted(b.raw for text in stored for b in blocks(text.encode())) == raws
            columns = " ".join(row[0] for row in database.execute(
                "SELECT coalesce(thinking_signature, '') FROM messages"))
            last = [[b.fields["signature"] for b in found if b.fields.get("signature")][-1:]
                    for _, found in answers]
            assert all(one[0] in columns for one in last if one)
        else:
            rows = database.execute("SELECT coalesce(text_text, reasoning_text) FROM parts "
                                "WHERE type IN ('text', 'reasoning') AND "
                                "coalesce(text_text, reasoning_text) IS NOT NULL")
            found = [row[0] for row in rows]
            assert sorted(text for text in found if text) == sorted(text for text in texts if text)
            meta = "".join(row[0] or "" for row in database.execute(
                'SELECT "providerMetadata" FROM parts'))
            assert all(json.dumps(one)[1:-1] in meta for one in signatures)
        database.close()


def test_S4_2_in_every_chat_each_call_is_followed_by_its_result(tmp_path):
    for number, source in enumerate(all_logs()):
        database = make(source, tmp_path / f"{number}.sqlite", "rubyllm")
        waiting: set[int] = set()
        status = dict(database.execute("SELECT id, foldlog_status FROM tool_calls").fetchall())
        for row in database.execute("SELECT * FROM messages ORDER BY id"):
            if row["role"] == "tool":
                assert row["tool_call_id"] in waiting
                waiting.discard(row["tool_call_id"])
                continue
            if row["foldlog_status"] != "not_said":
                assert not waiting, "a message comes between a call and its result"
            waiting |= {call[0] for call in database.execute(
                "SELECT id FROM tool_calls WHERE message_id = ?", (row["id"],))}
        assert all(status[call] != "done" for call in waiting)
        database.close()


def test_S4_2_a_conversation_has_the_rows_that_rubyllm_expects(tmp_path):
    database = make(golden_log("conversation"), tmp_path / "x.sqlite", "rubyllm")
    rows = database.execute(IN_ORDER, (golden.SESSION_ID,)).fetchall()
    assert [row["role"] for row in rows] == [
        "system", "user", "assistant", "user", "assistant", "tool", "tool", "assistant", "tool",
        "assistant",
    ]
    assert [row["content"] for row in rows if row["role"] == "user"] == ["hello ü", "buy two"]
    calls = database.execute(
        "SELECT t.name, t.arguments, m.content, p.role FROM tool_calls t "
        "JOIN messages m ON m.tool_call_id = t.id JOIN messages p ON p.id = t.message_id "
        "ORDER BY t.id").fetchall()
    assert [tuple(row)[:2] for row in calls] == [
        ("charge", '{"cents":3}'), ("look", '{"where":"there"}'), ("charge", '{"cents":4}')]
    assert {row["role"] for row in calls} == {"assistant"}
    (tokens,) = database.execute("SELECT sum(output_tokens) FROM messages").fetchone()
    spent = golden_log("conversation")
    facts = read_log(spent.log, None, Contents(spent.read)).sessions[golden.SESSION_ID]
    assert tokens == facts.views.ledger.output_tokens
    labels = [row[0] for row in database.execute("SELECT tool_call_id FROM tool_calls")]
    assert len(set(labels)) == len(labels), "providers repeat their ids"


def test_S4_3_a_conversation_has_its_parts_and_tools_in_their_columns(tmp_path):
    database = make(golden_log("conversation"), tmp_path / "x.sqlite", "vercel")
    rows = database.execute(PARTS_IN_ORDER, (golden.SESSION_ID,)).fetchall()
    first = rows[0]
    assert (first["role"], first["type"], first["text_text"]) == ("user", "text", "hello ü")
    charged = [row for row in rows if row["type"] == "tool-charge"]
    assert [json.loads(row["tool_charge_input"]) for row in charged] == [{"cents": 3}, {"cents": 4}]
    assert {row["tool_state"] for row in charged} == {"output-available"}
    assert charged[0]["tool_toolCallId"] == "2.1.0"
    thought = next(row for row in rows if row["type"] == "reasoning")
    assert thought["reasoning_text"] == "who is it?"
    names = [row["id"] for row in database.execute("SELECT id FROM messages ORDER BY foldlog_seq")]
    assert names[:2] == ["golden/m1", "golden/turn/1"]


@pytest.mark.parametrize("wrong", [
    "INSERT INTO parts (id, messageId, type) VALUES ('x', 'golden/m1', 'text')",
    "INSERT INTO parts (id, messageId, type) VALUES ('x', 'golden/m1', 'reasoning')",
    "INSERT INTO parts (id, messageId, type) VALUES ('x', 'golden/m1', 'file')",
    "INSERT INTO parts (id, messageId, type, tool_state) "
    "VALUES ('x', 'golden/m1', 'tool-charge', 'output-available')",
    "INSERT INTO parts (id, messageId, type, tool_toolCallId, tool_state) "
    "VALUES ('x', 'golden/m1', 'tool-charge', '9.9.9', 'done')",
    "INSERT INTO parts (id, messageId, type) VALUES ('x', 'golden/m1', 'tool-unheard')",
    "INSERT INTO parts (id, messageId, type) VALUES ('x', 'nobody', 'step-start')",
    "UPDATE parts SET tool_charge_input = 'no json' WHERE type = 'tool-charge'",
    "INSERT INTO messages (id, chatId, role, foldlog_seq) VALUES ('x', 'golden', 'tool', 99)",
])
def test_S4_3_the_checks_of_the_schema_refuse_incomplete_rows(wrong, tmp_path):
    database = make(golden_log("conversation"), tmp_path / "x.sqlite", "vercel")
    database.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(wrong)


def test_deleting_a_chat_deletes_its_messages_and_parts(tmp_path):
    database = make(golden_log("conversation"), tmp_path / "x.sqlite", "vercel")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("DELETE FROM chats")
    assert database.execute("SELECT count(*) FROM parts").fetchone()[0] == 0


def test_a_tool_without_a_valid_column_name_is_a_dynamic_tool():
    found = vercel.tool_columns(["Charge", "charge", "no such tool", 'x"; DROP', "look"])
    assert found == {"Charge": "tool_Charge", "charge": "tool_Charge", "look": "tool_look"}
    database = sqlite3.connect(":memory:")
    database.executescript(vercel.tables_sql(found))
    assert len(vercel.tool_columns(f"t{n}" for n in range(5000))) == vercel.TOOLS_MAX


def test_a_missing_blob_is_marked_in_both_schemas(tmp_path):
    for which, where in (("rubyllm", "messages WHERE foldlog_status = 'missing'"),
                         ("vercel", "parts WHERE data_foldlog_kind = 'missing'")):
        source = golden_log("conversation")
        source.blobs.clear()
        database = make(source, tmp_path / which, which)
        assert database.execute(f"SELECT count(*) FROM {where}").fetchone()[0] > 0
