"""Generates the tables and diagrams of the documentation from the code that they describe.

Each function returns Markdown. A page contains the Markdown between `<!-- generated: NAME -->` and
`<!-- end -->`. `make docs` writes it, and a test compares it.
"""

import re
from dataclasses import fields
from inspect import getsource
from pathlib import Path

import foldlog
from foldlog.client.events import CallEvent, RecordedEvent
from foldlog.docs import reference_shown, requests_shown
from foldlog.local.messages_api import FAULTS, Stage
from foldlog.log import access
from foldlog.processors.advice.mistakes import KINDS
from foldlog.processors.fold.calls import CALLS, CallStatus
from foldlog.processors.fold.field_writers import MEANING, WRITERS
from foldlog.processors.fold.projections.partition import ROLES
from foldlog.processors.fold.transitions import TRANSITIONS
from foldlog.processors.limits import DEFAULT_LIMITS, Limits
from foldlog.processors.request.layers import WHERE
from foldlog.processors.store.views_codec import VIEW_NAMES
from foldlog.processors.wake.matrix import ITEMS, POINTS
from foldlog.processors.wake.table import SEED_ROWS, WAKE
from foldlog.schemas.codec import schema_of
from foldlog.schemas.events import BY_CLASS, EVENT_TYPES, EventType
from foldlog.schemas.memory import MEMORY_TYPES
from foldlog.schemas.topics import TOPICS

ROOT = Path(__file__).parent.parent
PAGES = (
    "docs/architecture.md", "docs/budgets.md", "docs/memory.md", "docs/python.md",
    "docs/requests.md", "docs/security.md", "docs/reference/calls.md", "docs/reference/cli.md",
    "docs/reference/events.md", "docs/reference/python.md", "docs/reference/session-state.md",
    "docs/reference/settings.md", "docs/reference/testing.md", "docs/reference/wake.md",
)
MARK = re.compile(r"(<!-- generated: ([a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _fields(schema: dict) -> str:
    return ", ".join(field["name"] for field in schema["fields"])


def events() -> str:
    """Every event type: its marks, writers, meaning and fields."""
    return _events(EVENT_TYPES)


def memory_events() -> str:
    """The same table for the events of memory."""
    return _events(MEMORY_TYPES)


def _events(types: tuple[EventType, ...]) -> str:
    rows = []
    for row in types:
        marks = " ".join(
            m for m, on in (("i", row.is_input), ("m", row.must_understand)) if on
        )
        schema = schema_of(row.name)
        rows.append(
            (f"`{row.name}`", marks, ", ".join(row.writers), schema["doc"], _fields(schema))
        )
    return _table(("event", "", "written by", "meaning", "fields"), rows)


def session_events() -> str:
    """The events that a session yields in Python, each with its own fields; reference/python.md has
    their meaning."""
    rows = []
    shared = {field.name for field in fields(CallEvent)}
    for name in foldlog.__all__:
        found = getattr(foldlog, name)
        is_event = isinstance(found, type) and issubclass(found, foldlog.SessionEvent)
        if not is_event or found in (foldlog.SessionEvent, RecordedEvent, CallEvent):
            continue
        own = [f"`{field.name}`" for field in fields(found) if field.name not in shared]
        call = ["`call`", "`tool`"] if issubclass(found, CallEvent) else []
        rows.append((f"`{name}`", ", ".join(call + own)))
    return _table(("event", "fields"), rows)


def state() -> str:
    """The fields of session_state, with the events that may write each field, and when."""
    rows = [
        (f"`{name}`", MEANING[name][0], ", ".join(f"`{w}`" for w in writers), MEANING[name][1])
        for name, writers in WRITERS.items()
    ]
    return _table(("field", "type", "writers", "when"), rows)


def transitions() -> str:
    """TRANSITIONS as a table."""
    triggers = list(dict.fromkeys(t for row in TRANSITIONS.values() for t in row))
    rows = [
        (f"**{phase}**", *(row.get(trigger, "") for trigger in triggers))
        for phase, row in TRANSITIONS.items()
    ]
    return _table(("phase", *(f"`{t}`" for t in triggers)), rows)


def phases() -> str:
    """TRANSITIONS as a diagram."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> chatting"]
    for phase, row in TRANSITIONS.items():
        lines += [f"    {phase} --> {after}: {trigger}" for trigger, after in row.items()]
    return "\n".join([*lines, "```"]) + "\n"


def _facts(when: dict[str, tuple]) -> str:
    shown_facts = []
    for name, values in when.items():
        shown = " or ".join(
            {True: "yes", False: "no"}.get(value, value) for value in values
        )
        shown_facts.append(f"{name.replace('_', ' ')} = {shown}")
    return ", ".join(shown_facts) or "always"


def wake() -> str:
    """WAKE as a table."""
    rows = [
        (row.id, _facts(row.when), f"`{row.owed}`", row.role, row.why) for row in WAKE
    ]
    return _table(("row", "facts", "owed", "role", "why"), rows)


def _call_facts(when: dict[str, tuple]) -> str:
    """Like `_facts`, but a long list of statuses is given as the statuses that it excludes."""
    missing = [status for status in CallStatus if status not in when.get("status", ())]
    if "status" not in when or len(missing) > 2:
        return _facts(when)
    others = {name: values for name, values in when.items() if name != "status"}
    status = f"status is not {' or '.join(missing)}"
    return f"{status}, {_facts(others)}" if others else status


def calls() -> str:
    """CALLS as a table."""
    rows = [
        (
            f"`{BY_CLASS[row.event].name}`",
            _call_facts(row.when),
            f"`{row.becomes}`" if row.becomes else "",
            row.ruling.code or row.ruling.verdict,
            row.why,
        )
        for row in CALLS
    ]
    return _table(("event", "facts", "becomes", "ruling", "why"), rows)


def call_life() -> str:
    """The changes of status in CALLS as a diagram."""
    changes = {
        (status, row.becomes, BY_CLASS[row.event].name): None
        for row in CALLS
        if row.becomes is not None
        for status in row.when.get("status", tuple(CallStatus))
        if status is not row.becomes
    }
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> proposed: GEN_COMPLETE"]
    lines += [f"    {before} --> {after}: {event}" for before, after, event in changes]
    return "\n".join([*lines, "```"]) + "\n"


def seed_rows() -> str:
    """For each last event of a session, the rows of WAKE that match, and what happens."""
    rows = [(f"`{last}`", row, why) for last, row, why in SEED_ROWS]
    return _table(("last event", "rows", "what happens"), rows)


def topics() -> str:
    """The topics of an installation."""
    rows = [(f"`{t.name}`", t.key, t.cleanup, t.holds) for t in TOPICS]
    return _table(("topic", "key", "cleanup", "holds"), rows)


def rights() -> str:
    """The ACLs of each role on a cluster with an authorizer."""
    rows = []
    for name, role in access.ROLES.items():
        topics_of: dict[str, list[str]] = {}
        for topic, granted in role.topics.items():
            topics_of.setdefault(", ".join(granted), []).append(f"`{topic}`")
        rights = [f"{operations} on {', '.join(names)}" for operations, names in topics_of.items()]
        rows.append((name, role.who, "; ".join(rights)))
    return _table(("role", "who", "rights"), rows)


def picture() -> str:
    """A diagram of which role writes which events, from the event table."""
    lines = ["```mermaid", "flowchart LR", '    LOG[("session-events<br/>keyed by session_id")]']
    for writer in ("producer", *ROLES, "consumers"):
        names = [row.name for row in EVENT_TYPES if writer in row.writers]
        shown = "<br/>".join(names[:4]) + (f"<br/>and {len(names) - 4} more" if names[4:] else "")
        lines.append(f'    {writer}["{writer}"] -->|"{shown}"| LOG')
    lines += [
        '    LOG --> FOLD["folds: pure functions"]',
        '    FOLD --> VIEWS[("views in RocksDB:<br/>' + "<br/>".join(VIEW_NAMES) + '")]',
        '    VIEWS --> WAKE{"WAKE: what is pending"}',
        *(f"    WAKE -.-> {role}" for role in ROLES),
    ]
    return "\n".join([*lines, "```"]) + "\n"


def layers() -> str:
    """The layers of instruction files."""
    return _table(("layer", "where"), [(f"**{name}**", where) for name, where in WHERE.items()])


def mistakes() -> str:
    """The budget mistakes that are reported."""
    return _table(("finding", "when"), [(f"`{kind}`", when) for kind, when in KINDS.items()])


def points() -> str:
    """The points of a turn."""
    rows = [(f"**{point.letter}**", point.name, point.when) for point in POINTS]
    return _table(("", "point", "when"), rows)


def matrix() -> str:
    """The state that is read and written at each point of a turn."""
    letters = [point.letter for point in POINTS]
    rows = []
    for item in ITEMS:
        cells = {**{letter: "no" for letter in item.why_not}, **item.cells}
        reasons = [f"{letter} does not read them: {why}" for letter, why in item.why_not.items()]
        also = "; ".join(filter(None, [item.others, *reasons]))
        rows.append((item.name, item.bucket, *(cells.get(each, "") for each in letters), also))
    return _table(("state", "lives for a", *letters, "also"), rows)


def limits() -> str:
    """The limits of an agent: name, default and the comment after it in the code."""
    reasons = dict(re.findall(r"^    (\w+): int = .*?  # (.*)$", getsource(Limits), re.MULTILINE))
    rows = [
        (f"`{f.name}`", f"{getattr(DEFAULT_LIMITS, f.name):,}", reasons[f.name])
        for f in fields(Limits)
    ]
    return _table(("limit", "default", "what it is for"), rows)


def settings() -> str:
    """The settings of an installation."""
    head = ("setting", "environment variable", "type", "default", "meaning")
    return _table(head, reference_shown.settings())


def failures() -> str:
    """The names of failures that `fails` takes, with what happens."""
    rows = [
        (f"`{name}`", mode.meaning)
        for name, mode in FAULTS.items()
        if mode.stage in (Stage.BEFORE, Stage.BREAK)
    ]
    return _table(("failure", "what happens"), rows)


_PARTS = (
    limits, events, memory_events, state, transitions, phases, wake, calls, call_life, seed_rows,
    topics, rights, picture, layers, requests_shown.request, mistakes, points, matrix, settings,
    reference_shown.commands, reference_shown.python, reference_shown.testing, session_events,
    failures,
)
GENERATORS = {generate.__name__: generate for generate in _PARTS}


def regenerated(text: str) -> str:
    """A page with every generated part replaced. Raises KeyError for an unknown part."""
    return MARK.sub(lambda found: found[1] + GENERATORS[found[2]]() + found[3], text)
