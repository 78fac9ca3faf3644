"""search: search the transcripts of all sessions.

Prints the hits that `reports/search/search_index.py` finds.
"""

import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from ...processors.search.snippet import Snippet
from ...processors.search.words import query_of
from ...producers.checks import an_id
from ...reports.search.search_index import (
    BEHIND_MIN,
    BEST,
    BEST_MAX,
    Found,
    Progress,
    TranscriptIndex,
    index_path,
)
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.clean_text import clean
from ..terminal.printing import emit, note, when
from ..terminal.progress import Bar


@click.command("search", epilog=example(
    "foldlog search invoice number", "foldlog search 'getUserName' --session s1 --limit 3 --json"
))
@click.argument("words", nargs=-1, required=True)
@click.option("--user", metavar="USER", help="Only sessions of this user (default: all).")
@click.option("--session", metavar="SESSION", help="Only this session.")
@click.option("--limit", type=click.IntRange(1, BEST_MAX), default=BEST, show_default=True,
              metavar="N", help="Print at most N hits.")
@json_option
@pass_edge
def search_command(
    edge: Edge,
    words: tuple[str, ...],
    user: str | None,
    session: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Search the transcripts of all sessions.

    A hit contains at least one of the words; hits with more words, or rarer ones, come first. The
    search covers messages, finished answers and tool results, in any writing system. The index is a
    file below the home directory, updated before each search; it may be deleted. Put -- before
    words that begin with a dash.
    """
    if session is not None:
        an_id("the name of a session", session)
    query = " ".join(words)
    if not query_of(query).terms:
        raise click.UsageError(f"{query!r} has no letter or digit to search for.")
    read, path = edge.client().read_blob, index_path(edge.settings)
    with Bar("search") as bar, TranscriptIndex(edge.log, path, read, note) as index:

        def draw(progress: Progress) -> None:
            if progress.behind >= BEHIND_MIN:
                bar(progress.read, progress.behind)

        index.catch_up(draw)
        found = index.search(query, user, session, limit)
    if as_json:
        for each in found:
            emit(_json(each))
        return
    for each in found:
        for text in _shown(each):
            click.echo(text)
    if not found:
        filtered = "" if user is session is None else " with this --user or --session"
        note(f"nothing found{filtered}: try other words")


def _json(found: Found) -> dict[str, Any]:
    document, snippet = found.document._asdict(), found.snippet
    del document["text"]
    document["offset"] = document.pop("at_offset")
    marks = [list(mark) for mark in snippet.marks]
    return {**document, "score": round(found.score, 4), "snippet": snippet.text, "marks": marks}


def _shown(found: Found) -> Iterator[str]:
    """The lines of a hit: where it is and who wrote it, then the snippet with the matches marked.
    """
    doc = found.document
    step = f"{doc.turn}.{doc.step}" if doc.step else f"{doc.turn}"
    yield clean(
        f"{doc.session_id}  {when(doc.at)}  {doc.kind} by {doc.who}, turn {step}, "
        f"offset {doc.at_offset} of partition {doc.partition}"
    )
    yield "  " + "".join(_marked(found.snippet, sys.stdout.isatty()))


def _marked(snippet: Snippet, styled: bool) -> Iterator[str]:
    """The snippet on one line; matches are bold in a terminal, between asterisks elsewhere."""
    place = 0
    for start, end in snippet.marks:
        yield _flat(snippet.text[place:start])
        match = _flat(snippet.text[start:end])
        yield click.style(match, bold=True) if styled else f"*{match}*"
        place = end
    yield _flat(snippet.text[place:])


def _flat(text: str) -> str:
    return clean(re.sub(r"\s+", " ", text))
