"""looks: print what operators read of the sessions of other users."""

import click
import msgspec

from ...client.follow import read_before
from ...schemas.codec import Undecodable
from ...schemas.looks import decode_look
from ...schemas.topics import OPERATOR_LOOKS
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, line, note, when


@click.command("looks", epilog=example("foldlog looks", "foldlog looks --json"))
@json_option
@pass_edge
def looks_command(edge: Edge, as_json: bool) -> None:
    """Print what operators read of the sessions of other users, oldest first.

    The gateway records each look before it answers, and the same look once a minute.
    """
    found = unreadable = 0
    for partition, end in edge.log.end_offsets(OPERATOR_LOOKS).items():
        for record in read_before(edge.log, OPERATOR_LOOKS, partition, end):
            try:
                look = decode_look(record.value or b"")
            except Undecodable:
                unreadable += 1
                continue
            found += 1
            if as_json:
                emit({"at": record.timestamp_ms, **msgspec.to_builtins(look)})
            else:
                what = f"{look.what} of session {look.session_id} of {look.user_id}"
                shown = what if look.session_id else f"{look.what} of all sessions"
                line(f"{when(record.timestamp_ms)}  {look.operator}  {shown}")
    if unreadable:
        count = "1 record is" if unreadable == 1 else f"{unreadable} records are"
        note(f"{count} of another version of foldlog: not shown")
    if not found:
        note("no look is recorded")
