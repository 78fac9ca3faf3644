"""Requests with a proof that a person made them, and requests without a proof."""

import pytest

from foldlog.reports.exports.proof import proof_of
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, encode, entry_of, headers_for
from foldlog.schemas.origin import HEADER
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS

EVENT = ev.ApprovalDecided(
    call="1.1.0", args_sha256="0" * 64, decision="allow", remember=False, by_user="ana"
)


@pytest.mark.parametrize(
    ("header", "is_proven", "text"),
    [
        (None, False, "unproven"),
        ("", False, "unproven"),
        ("gateway token", False, "unproven"),
        ("gateway token ana more", False, "unproven"),
        ("somebody token ana", False, "unproven"),
        ("gateway token <b>", False, "unproven"),
        ("gateway token ana", True, "recorded by the gateway: a token of ana"),
        ("gateway operator olga", True, "recorded by the gateway: a token of the operator olga"),
        ("gateway token eve", False, "unproven: the gateway saw a token of eve"),
        ("gateway none ana", False, "unproven: the gateway did not authenticate users"),
        ("command os_user root", True, "recorded by a command of OS user root"),
    ],
)
def test_C17_a_claim_without_proof_is_unproven(header, is_proven, text):
    headers = headers_for(EVENT, "producer")
    headers += [] if header is None else [(HEADER, header.encode())]
    record = Record(SESSION_EVENTS, 0, 7, 1, b"s1", encode(EVENT), tuple(headers))
    assert proof_of(entry_of(record)) == (is_proven, text)


def test_opening_a_session_is_proven_by_a_token_of_its_user():
    opened = ev.SessionOpened(user_id="ana", agent="a", rules=1)
    entry = Entry("s1", 0, 0, 1, "producer", opened, by="gateway token ana")
    assert proof_of(entry).is_proven
