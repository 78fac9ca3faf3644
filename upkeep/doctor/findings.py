"""The findings of `foldlog doctor`: one code for each kind, and one table that puts it in words.

A check yields a code and its values, which are facts: names, numbers, codes. The table FINDINGS has
the severity, the name of the check, the text and the remedy. PHRASES has the parts of texts that
depend on the values. Nothing reads a fact out of a text: programs use the code.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from ...log.topic_commands import MORE_BROKERS, set_properties
from ...processors.advice.block_usage import TURNS_MIN, AgentUsage, Place
from ...processors.advice.mistakes import OURS
from ...processors.store.clocks import SET_CLOCK, off_in_words
from ...schemas import compiled
from ...schemas.topics import DEAD_LETTERS_MS

SHOWN_MAX = 3
"""The most sessions named for each kind of finding, since most have the same cause."""

TOOLS_SHOWN_MAX = 5
"""The most tools of an agent printed for people, most used first; `--json` has every block."""


class Severity(StrEnum):
    """How much a finding matters.

    OK: in order.
    NOTE: for information, or something waits for a person.
    PROBLEM: must be repaired.
    """

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class Code(StrEnum):
    """What a check found."""

    BROKER_REACHABLE = "broker_reachable"
    BLOBS_ANSWER = "blobs_answer"
    BLOBS_AWAY = "blobs_away"
    DECODER = "decoder"
    LOG_GROWN = "log_grown"
    LOG_MOVED = "log_moved"
    RECORDS_DELETED = "records_deleted"
    TOPIC_MISSING = "topic_missing"
    TOPIC_DIFFERS = "topic_differs"
    TOPIC_HARMFUL = "topic_harmful"
    TOPICS_OK = "topics_ok"
    TOPICS_OK_ONE_COPY = "topics_ok_one_copy"
    TOPICS_OK_FLUSHED = "topics_ok_flushed"
    PARTITIONS_READ_ONLY = "partitions_read_only"
    REPLICAS_BEHIND = "replicas_behind"
    PARTITIONS_UNCLAIMED = "partitions_unclaimed"
    PARTITIONS_CLAIMED = "partitions_claimed"
    STORE_UNREADABLE = "store_unreadable"
    STORE_DAMAGED = "store_damaged"
    STORE_FOREIGN = "store_foreign"
    STORES_READ = "stores_read"
    STORES_NONE = "stores_none"
    SNAPSHOTS_OFF = "snapshots_off"
    SNAPSHOTS_UNREADABLE = "snapshots_unreadable"
    SNAPSHOTS_BEHIND = "snapshots_behind"
    SNAPSHOTS_NONE = "snapshots_none"
    SNAPSHOTS_OK = "snapshots_ok"
    WORKER_NONE = "worker_none"
    WORKER_SILENT = "worker_silent"
    WORKER_RUNS = "worker_runs"
    CLOCK_OFF = "clock_off"
    SESSION_SET_ASIDE = "session_set_aside"
    SESSIONS_COUNTED = "sessions_counted"
    SESSION_FROZEN = "session_frozen"
    RECORD_OF_NO_SESSION = "record_of_no_session"
    SESSION_CANNOT_CONTINUE = "session_cannot_continue"
    WORK_PENDING = "work_pending"
    AGENT_MISSING = "agent_missing"
    AGENT_MISSING_IDLE = "agent_missing_idle"
    WORKERS_DIFFER = "workers_differ"
    MCP_STATE = "mcp_state"
    MCP_ENDED = "mcp_ended"
    MCP_DOWN = "mcp_down"
    MCP_NOT_AGREED = "mcp_not_agreed"
    MCP_UNKNOWN = "mcp_unknown"
    APPROVAL_WAITS = "approval_waits"
    CALL_IN_DOUBT = "call_in_doubt"
    TOOL_REFUSED = "tool_refused"
    OUT_OF_ROOM = "out_of_room"
    BACKGROUND_TOO_LITTLE = "background_too_little"
    BACKGROUND_RETRIED = "background_retried"
    BACKGROUND_FAILED = "background_failed"
    BACKGROUND_OWN_MODEL_FAILED = "background_own_model_failed"
    BACKGROUND_MORE_WAIT = "background_more_wait"
    BACKGROUND_MORE_FAILED = "background_more_failed"
    CHANNEL_SETTING_WRONG = "channel_setting_wrong"
    CHANNEL_UNKNOWN = "channel_unknown"
    CHANNEL_WITHOUT_SECRET = "channel_without_secret"
    CHANNEL_WITHOUT_SECRET_PENDING = "channel_without_secret_pending"
    CHANNEL_OK = "channel_ok"
    CHANNEL_FAILS = "channel_fails"
    DELIVERY_FAILS = "delivery_fails"
    DELIVERY_GIVEN_UP = "delivery_given_up"
    DELIVERIES_GIVEN_UP = "deliveries_given_up"
    DELIVERIES_MORE_FAIL = "deliveries_more_fail"
    DEAD_LETTERS_NONE = "dead_letters_none"
    DEAD_LETTERS_SKIPPED = "dead_letters_skipped"
    DEAD_LETTERS_LEFT = "dead_letters_left"
    DEAD_LETTERS_FREEZE = "dead_letters_freeze"
    DEAD_LETTER = "dead_letter"
    INSTRUCTIONS_UNUSABLE = "instructions_unusable"
    INSTRUCTIONS_MISSING = "instructions_missing"
    INSTRUCTIONS_READ = "instructions_read"
    EMBEDDER_WRONG = "embedder_wrong"
    EMBEDDER_REPLACED = "embedder_replaced"
    EMBEDDER_HASHED = "embedder_hashed"
    EMBEDDER_OK = "embedder_ok"
    MEMORY_FILE_DAMAGED = "memory_file_damaged"
    CORE_TOO_LONG = "core_too_long"
    BUDGET_MISTAKE = "budget_mistake"
    BUDGET_MISTAKES_MORE = "budget_mistakes_more"
    BUDGET_OK = "budget_ok"
    BUDGET_UNCHECKED = "budget_unchecked"
    USAGE = "usage"
    TIER = "tier"
    ASKED_IN_MOST_TURNS = "asked_in_most_turns"
    CRITICAL_IN_THE_MIDDLE = "critical_in_the_middle"


class TopicRemedy(StrEnum):
    """How to correct a topic that differs from its definition."""

    SET_PROPERTIES = "set_properties"
    REASSIGN = "reassign"
    ADD_BROKERS = "add_brokers"
    SET_PARTITIONS = "set_partitions"
    SET_PARTITIONS_UNLESS_ADDED = "set_partitions_unless_added"
    MOVE = "move"


class Words(NamedTuple):
    """A finding in words. `do`: what the operator should do, or ''. In the table, all three texts
    have names of values or of PHRASES in braces."""

    level: Severity
    check: str
    text: str
    do: str = ""


_OK, _NOTE, _PROBLEM = Severity

_REFOLDED = "nothing: the next worker rebuilds it from the log"
_SNAPSHOTS = (
    "look for failed snapshots in the log of the worker that has the partition "
    "(foldlog_snapshots_total)"
)
_AGENT = "start the worker with --agent MODULE:ATTR for this agent and every other one"
_NEED = "{agent_needed}; the worker serves {agents_served}"
_SECRET = "{name}: {variable} is not set here ({count} answers are pending)"
_SET = "set {variable} where the workers run, and restart them"
_LETTERS = "{left} records could not be decoded{more_skipped}; the last of them:"
_RETRIED = "nothing: the remaining work is retried"
_TOO_LONG = (
    "nothing: the summary is retried after more messages; if this persists, the prompt or single "
    "results are too large for the agent's soft_tokens and resume_tokens"
)
_OTHER_MODEL = (
    "nothing is lost; if a model fails every time, give the agent another one: "
    "Agent(compaction=Compaction(model=...))"
)
_NOT_BY_PROVIDER = (
    "nothing is lost; if it fails every time, the agent's own model cannot compact: remove "
    "provider=True from Agent(compaction=Compaction(...)), or name another model there"
)
_WORK = "session {session}: {why}"
_MADE_BY = "the vectors were made by {made_by}"

FINDINGS: dict[Code, Words] = {
    Code.BROKER_REACHABLE: Words(_OK, "broker", "reachable, cluster {cluster}"),
    Code.BLOBS_ANSWER: Words(_OK, "blobs", "{place} answers in {took_ms:.0f} ms"),
    Code.BLOBS_AWAY: Words(
        _PROBLEM, "blobs", "{place}: {error}",
        "sessions that need the store wait; see docs/blobs.md",
    ),
    Code.DECODER: Words(_OK, "decoder", "{decoder}"),
    Code.LOG_GROWN: Words(
        _PROBLEM, "topics", "{topic} was created with {made} partitions and has {now} now",
        "End all workers and gateways, then move the sessions to a new log: foldlog move "
        "--to-prefix NEW --partitions {now}",
    ),
    Code.LOG_MOVED: Words(
        _PROBLEM, "topics",
        "the sessions of this log were moved to the topics beginning with {prefix!r}",
        "Set FOLDLOG_TOPIC_PREFIX={prefix} (or topic_prefix in foldlog.toml), and `partitions` to "
        "the number of that log.",
    ),
    Code.RECORDS_DELETED: Words(
        _PROBLEM, "log",
        "partition {partition} begins at offset {first}: the earlier records were deleted, and the "
        "archive does not have them",
        "set FOLDLOG_ARCHIVE to the directory that `foldlog retain` used, or restore the records; "
        "keep the stores: they cannot be rebuilt without these records",
    ),
    Code.TOPIC_MISSING: Words(_PROBLEM, "topics", "{topic} is missing", "foldlog topics apply"),
    Code.TOPIC_DIFFERS: Words(_NOTE, "topics", "{difference}", "{topic_remedy}"),
    Code.TOPIC_HARMFUL: Words(_PROBLEM, "topics", "{difference}", "{topic_remedy}"),
    Code.TOPICS_OK_ONE_COPY: Words(
        _OK, "topics",
        "{count} topics have the required properties; one copy of each record, which is lost with "
        "the broker's disk",
    ),
    Code.TOPICS_OK_FLUSHED: Words(
        _OK, "topics",
        "{count} topics have the required properties; one copy of each record, which is on the "
        "broker's disk before it is acknowledged",
    ),
    Code.TOPICS_OK: Words(
        _OK, "topics",
        "{count} topics have the required properties; {copies} copies of each record, of which "
        "{in_sync_min} are written before it is acknowledged",
    ),
    Code.PARTITIONS_READ_ONLY: Words(
        _PROBLEM, "replicas", "Kafka accepts no record for {count} partitions: {partitions}",
        "start the brokers that are down; sessions of these partitions wait, nothing is lost",
    ),
    Code.REPLICAS_BEHIND: Words(
        _NOTE, "replicas", "{count} partitions have fewer copies: {partitions}",
        "start the brokers that are down, or wait until they have caught up",
    ),
    Code.PARTITIONS_UNCLAIMED: Words(
        _PROBLEM, "partitions",
        "no worker has ever claimed {count} of {partitions} partitions for {role}",
        "start one: foldlog worker (or foldlog dev)",
    ),
    Code.PARTITIONS_CLAIMED: Words(
        _OK, "partitions", "all {partitions} were claimed, by {owners}"
    ),
    Code.STORE_UNREADABLE: Words(
        _PROBLEM, "store", "{directory} cannot be opened: {error}",
        "free the resource the system lacks; the store is intact and needs no repair",
    ),
    Code.STORE_DAMAGED: Words(_NOTE, "store", "{directory} is damaged: {error}", _REFOLDED),
    Code.STORE_FOREIGN: Words(
        _NOTE, "store", "{directory} was built from another log or by another version", _REFOLDED
    ),
    Code.STORES_READ: Words(
        _OK, "store", "{opened} stores in {directory}, {behind} records behind"
    ),
    Code.STORES_NONE: Words(_OK, "store", "none in {directory}: no worker has run here yet"),
    Code.SNAPSHOTS_OFF: Words(_OK, "snapshots", "turned off (snapshot_records is 0)"),
    Code.SNAPSHOTS_UNREADABLE: Words(
        _NOTE, "snapshots", "their directory cannot be read here: {error}",
        "workers on empty disks need this directory: see docs/snapshots.md",
    ),
    Code.SNAPSHOTS_BEHIND: Words(
        _NOTE, "snapshots",
        "partition {partition}: its newest snapshot is {count} records behind; a worker without "
        "its store folds them before it serves the partition",
        _SNAPSHOTS,
    ),
    Code.SNAPSHOTS_NONE: Words(
        _NOTE, "snapshots",
        "partition {partition}: it has no snapshot and {count} records; a worker without its store "
        "folds them before it serves the partition",
        _SNAPSHOTS,
    ),
    Code.SNAPSHOTS_OK: Words(
        _OK, "snapshots", "of {count} partitions, at most {records} records to fold"
    ),
    Code.WORKER_NONE: Words(
        _NOTE, "worker", "none runs in this state directory", "foldlog worker, or foldlog dev"
    ),
    Code.WORKER_SILENT: Words(
        _PROBLEM, "worker", "process {pid} does not answer",
        "kill it: the next worker resumes where it stopped",
    ),
    Code.WORKER_RUNS: Words(_OK, "worker", "{owner}, process {pid}, runs {roles}"),
    Code.CLOCK_OFF: Words(_PROBLEM, "worker", "{clock}", SET_CLOCK),
    Code.SESSION_SET_ASIDE: Words(
        _PROBLEM, "worker", "session {session} (partition {partition}) is set aside: {why}",
        "report it; foldlog cancel {session} ends the turn, and the next message or a restart of "
        "the worker tries again",
    ),
    Code.SESSIONS_COUNTED: Words(_OK, "sessions", "{count}, {running} with an open turn"),
    Code.SESSION_FROZEN: Words(
        _PROBLEM, "frozen", "session {session} is frozen at offset {offset}: {why}",
        "foldlog skip {session} --offset {offset} continues without that record; if a newer "
        "version understands it, upgrade and restart the worker. If a fork lacks its seed, restore "
        "the blobs, delete the store and the snapshots of its partition, and restart the worker",
    ),
    Code.RECORD_OF_NO_SESSION: Words(
        _NOTE, "frozen",
        "the record at offset {offset} of partition {partition} is of no session ({session}): "
        "{why}",
    ),
    Code.SESSION_CANNOT_CONTINUE: Words(
        _PROBLEM, "owed", "session {session} cannot continue: {error}",
        "report it; foldlog cancel {session} ends the turn, foldlog fork {session} forks it",
    ),
    Code.WORK_PENDING: Words(
        _PROBLEM, "owed",
        "session {session} has pending work, {pending_rows}, and no event for {quiet_s} s",
        "check that a worker with its agent is running; foldlog wake {session}",
    ),
    Code.AGENT_MISSING: Words(_PROBLEM, "agents", _NEED, _AGENT),
    Code.AGENT_MISSING_IDLE: Words(_NOTE, "agents", _NEED, _AGENT),
    Code.WORKERS_DIFFER: Words(
        _PROBLEM, "agents", "workers {first} and {other} serve different agents: {all_differences}",
        "start both with the same --agent: a session waits while its worker lacks its agent",
    ),
    Code.MCP_STATE: Words(_OK, "mcp", "server {server} is {state}"),
    Code.MCP_ENDED: Words(
        _NOTE, "mcp", "server {server} is {state}",
        "nothing: the next call reconnects; if it happens often, find out why the server ends",
    ),
    Code.MCP_DOWN: Words(
        _PROBLEM, "mcp", "server {server} is {state}",
        "start or repair the server: its calls fail until it is back; other tools work",
    ),
    Code.MCP_NOT_AGREED: Words(
        _NOTE, "mcp", "server {server} is {state}",
        "restart the worker: it then reads the server's tools again",
    ),
    Code.MCP_UNKNOWN: Words(
        _NOTE, "mcp", "server {server} is {state}",
        "restart the worker: it runs another version of foldlog than doctor",
    ),
    Code.APPROVAL_WAITS: Words(
        _NOTE, "approvals", "session {session}: {tool} ({call}) waits for approval",
        "foldlog approve {session} {call}, or deny",
    ),
    Code.CALL_IN_DOUBT: Words(
        _NOTE, "doubts", "session {session}: it is unknown whether {tool} ({call}) happened",
        "foldlog resolve {session} {call} --happened TEXT | --did-not-happen",
    ),
    Code.TOOL_REFUSED: Words(
        _NOTE, "tools", "tool {tool} was refused {times} times: {why} ({sessions})",
        "fix the tool: the request changed nothing, and the model got the reason",
    ),
    Code.OUT_OF_ROOM: Words(
        _NOTE, "budget",
        "the last turn of {sessions_full} of agent {agent} ended with budget_exceeded: "
        "{usage_at_end}",
        "see what fills the window with foldlog context show {session}; shorten the prompt, the "
        "tools and their results, or raise hard_tokens; the next message tries again",
    ),
    Code.BACKGROUND_TOO_LITTLE: Words(_NOTE, "background", _WORK, _TOO_LONG),
    Code.BACKGROUND_RETRIED: Words(_NOTE, "background", _WORK, _RETRIED),
    Code.BACKGROUND_FAILED: Words(_NOTE, "background", _WORK, _OTHER_MODEL),
    Code.BACKGROUND_OWN_MODEL_FAILED: Words(_NOTE, "background", _WORK, _NOT_BY_PROVIDER),
    Code.BACKGROUND_MORE_FAILED: Words(
        _NOTE, "background", "{count} more sessions whose background work failed"
    ),
    Code.BACKGROUND_MORE_WAIT: Words(
        _NOTE, "background", "{count} more sessions whose background work is waiting"
    ),
    Code.CHANNEL_SETTING_WRONG: Words(
        _PROBLEM, "channels", "{error}",
        "correct the setting: until then, workers that deliver do not start",
    ),
    Code.CHANNEL_UNKNOWN: Words(
        _PROBLEM, "channels",
        "{count} answers are pending for {name}, which is not in foldlog.toml here",
        "add [channels.{table}] where the workers run, and restart them",
    ),
    Code.CHANNEL_WITHOUT_SECRET_PENDING: Words(_PROBLEM, "channels", _SECRET, _SET),
    Code.CHANNEL_WITHOUT_SECRET: Words(_NOTE, "channels", _SECRET, _SET),
    Code.CHANNEL_OK: Words(_OK, "channels", "{name}: {count} answers are pending"),
    Code.CHANNEL_FAILS: Words(_NOTE, "channels", "{name}: {count} answers are pending"),
    Code.DELIVERY_FAILS: Words(
        _NOTE, "channels",
        "session {session}: answer {answer} to {channel} failed {times} times; the last error: "
        "{error}",
        "check that the channel responds; the delivery is retried automatically",
    ),
    Code.DELIVERY_GIVEN_UP: Words(
        _NOTE, "channels",
        "session {session}: answer {answer} was never delivered to {channel} after {times} "
        "attempts: {error}",
        "it is not retried; the answer is kept in the session: foldlog show {session}",
    ),
    Code.DELIVERIES_GIVEN_UP: Words(
        _NOTE, "channels", "{count} deliveries were given up in total"
    ),
    Code.DELIVERIES_MORE_FAIL: Words(_NOTE, "channels", "{count} more failing deliveries"),
    Code.DEAD_LETTERS_NONE: Words(_OK, "dead letters", "none"),
    Code.DEAD_LETTERS_SKIPPED: Words(
        _OK, "dead letters",
        "{skipped} records could not be decoded; `foldlog skip` passed over all of them",
    ),
    Code.DEAD_LETTERS_LEFT: Words(
        _NOTE, "dead letters", _LETTERS,
        "find out what wrote them; no session waits for them, and Kafka deletes them after "
        f"{DEAD_LETTERS_MS // 86_400_000} days",
    ),
    Code.DEAD_LETTERS_FREEZE: Words(
        _PROBLEM, "dead letters", _LETTERS,
        "find out what wrote them; a newer version may be able to read them",
    ),
    Code.DEAD_LETTER: Words(_NOTE, "dead letters", "{letter}"),
    Code.INSTRUCTIONS_UNUSABLE: Words(
        _PROBLEM, "instructions", "{notice}", "correct the file, or remove it"
    ),
    Code.INSTRUCTIONS_MISSING: Words(
        _NOTE, "instructions", "the managed instructions file does not exist: {file}",
        "write the file, or correct the setting",
    ),
    Code.INSTRUCTIONS_READ: Words(_OK, "instructions", "{files_read}"),
    Code.EMBEDDER_WRONG: Words(
        _PROBLEM, "memory", "{error}", "correct the setting `embedder`"
    ),
    Code.EMBEDDER_REPLACED: Words(
        _OK, "memory", _MADE_BY,
        "nothing: at its next start, the worker embeds all memory again with {wanted}",
    ),
    Code.EMBEDDER_HASHED: Words(
        _OK, "memory", _MADE_BY,
        "pip install 'foldlog[embeddings]' also finds related words (docs/search.md)",
    ),
    Code.EMBEDDER_OK: Words(_OK, "memory", _MADE_BY),
    Code.MEMORY_FILE_DAMAGED: Words(
        _NOTE, "memory", "{file} cannot be read: {error}",
        "nothing: a worker rebuilds it from the log",
    ),
    Code.CORE_TOO_LONG: Words(
        _NOTE, "memory", "of {scope}, {left_out}", "run foldlog memory --sync and shorten core.md"
    ),
    Code.BUDGET_MISTAKE: Words(
        _NOTE, "budget {mistake.kind}",
        "{mistake.culprit} of agent {agent}: {mistake.tokens} tokens, {mistake.text} ({place})",
        "{mistake.do}",
    ),
    Code.BUDGET_MISTAKES_MORE: Words(_NOTE, "budget", "{count} more culprits"),
    Code.BUDGET_OK: Words(_OK, "budget", "no tool result, schema or prompt stands out"),
    Code.BUDGET_UNCHECKED: Words(
        _NOTE, "budget", "the advice on tokens failed ({error}): {place} not checked",
        "report this bug; every other finding of doctor is valid",
    ),
    Code.USAGE: Words(_OK, "usage", "agent {agent}: {usage_measured}"),
    Code.TIER: Words(_NOTE, "tiers", "agent {agent}: {advice.use}", "{advice.do}"),
    Code.ASKED_IN_MOST_TURNS: Words(
        _NOTE, "placement",
        "agent {agent}: in {asked} of {turns} turns the model called {tool} {args} and got the "
        "same {tokens} tokens",
        "put them into the prompt (Agent(system=...), an instruction file, or core memory): each "
        "call costs a step",
    ),
    Code.CRITICAL_IN_THE_MIDDLE: Words(
        _NOTE, "placement",
        "agent {agent}: {line!r} stands in the middle of a system prompt of {tokens} tokens, "
        "{percent}% from its beginning",
        "move it to Agent(directive=...), the end of the prompt: models follow the middle least",
    ),
}

TOPIC_REMEDIES: dict[TopicRemedy, str] = {
    TopicRemedy.SET_PROPERTIES: "{command}",
    TopicRemedy.REASSIGN: "foldlog topics apply, which prints the commands",
    TopicRemedy.ADD_BROKERS: MORE_BROKERS,
    TopicRemedy.SET_PARTITIONS: "set `partitions` to {made}, the count this log was created with",
    TopicRemedy.SET_PARTITIONS_UNLESS_ADDED: (
        "set `partitions` to the topics' partition count, unless partitions were added later"
    ),
    TopicRemedy.MOVE: (
        "partitions were added later: foldlog move --to-prefix NEW --partitions {made}, or more"
    ),
}

_Values = Mapping[str, Any]


def _agent_needed(values: _Values) -> str:
    (first, *others), agent = values["sessions"], values["agent"]
    if not others:
        return f"session {first} needs agent {agent}"
    need, in_turn = f"{len(others) + 1} sessions need agent {agent}", values["open_sessions"]
    return f"{need} (with an open turn: {named(in_turn)})" if in_turn else need


def _sessions_full(values: _Values) -> str:
    count = len(values["ends"])
    return f"{count} sessions" if count > 1 else "a session"


def _usage_at_end(values: _Values) -> str:
    ends = ((name, ended.text) for name, ended in values["ends"])
    return named([f"{name} ({text})" if text else name for name, text in ends])


def _place(values: _Values) -> str:
    call, more = values.get("call"), values["more"]
    place = f"session {values['session']}" + (f", call {call}" if call else "")
    return f"{place} and {more} more" if more else place


def _files_read(values: _Values) -> str:
    files = (f"{name} {source} ({tokens} tokens)" for name, source, tokens in values["files"])
    return ", ".join(files) or f"no files for {values['workdir']}"


def _more_skipped(values: _Values) -> str:
    skipped = values["skipped"]
    return f", and {skipped} more that `foldlog skip` passed over" if skipped else ""


def _usage_measured(values: _Values) -> str:
    """An agent's number of turns, and the share of them that used each of the most used tools; or
    the use of one block."""
    measured = values["usage"]
    if not isinstance(measured, AgentUsage):
        return str(measured)
    places = (Place.FRONT, Place.BEHIND)
    tools = [use for use in measured.uses if use.place in places and use.name not in OURS]
    used = sorted((use for use in tools if use.used), key=lambda use: (-(use.share or 0), use.name))
    shown = [f"{use.name} {use.share or 0:.0%}" for use in used[:TOOLS_SHOWN_MAX]]
    if more := len(used) - len(shown):
        shown.append(f"{more} more")
    text = f"; tools by the share of turns that used them: {', '.join(shown)}" if shown else ""
    if never := len(tools) - len(used):
        text += f"; {never} never" if shown else f"; none of {never} tools was used"
    turns = "1 turn" if measured.turns == 1 else f"{measured.turns} turns"
    few = f" (tiers are recommended from {TURNS_MIN} on)" if measured.turns < TURNS_MIN else ""
    return f"{turns}{few}{text}"


PHRASES: dict[str, Callable[[_Values], str]] = {
    "agent_needed": _agent_needed,
    "agents_served": lambda values: ", ".join(values["served"]) or "none",
    "all_differences": lambda values: ", ".join(values["differences"]),
    "clock": lambda values: off_in_words(values["skew_ms"]),
    "command": lambda values: set_properties([values["difference"]], values["servers"]),
    "decoder": lambda values: compiled.in_words(values["is_compiled"]),
    "files_read": _files_read,
    "letter": lambda values: ", ".join(f"{x} {y}" for x, y in sorted(values["headers"].items())),
    "more_skipped": _more_skipped,
    "pending_rows": lambda values: ", ".join(f"{action} ({row})" for action, row in values["work"]),
    "place": _place,
    "sessions_full": _sessions_full,
    "topic_remedy": lambda values: TOPIC_REMEDIES[values["remedy"]].format_map(_Words(values)),
    "usage_at_end": _usage_at_end,
    "usage_measured": _usage_measured,
}
"""The parts of texts that depend on values, each made from the values of its finding."""


class _Words(dict[str, Any]):
    """The values of a finding, and its phrases."""

    def __missing__(self, name: str) -> str:
        return PHRASES[name](self)


def named(names: list[str]) -> str:
    """The first SHOWN_MAX names, and how many more there are."""
    more = [f"{len(names) - SHOWN_MAX} more"] if len(names) > SHOWN_MAX else []
    return ", ".join([*names[:SHOWN_MAX], *more])


class Finding(NamedTuple):
    """The result of a check. `values`: the facts from which the texts of the code are made."""

    code: Code
    values: Mapping[str, Any]

    @property
    def level(self) -> Severity:
        """How severe it is."""
        return FINDINGS[self.code].level

    @property
    def check(self) -> str:
        """The name of the check."""
        return in_words(self).check

    @property
    def text(self) -> str:
        """What was found."""
        return in_words(self).text

    @property
    def do(self) -> str:
        """What the operator should do, or ''."""
        return in_words(self).do


def found(code: Code, **values: Any) -> Finding:
    """A finding."""
    return Finding(code, values)


def in_words(finding: Finding) -> Words:
    """A finding for people."""
    words = FINDINGS[finding.code]
    check, text, do = (part.format_map(_Words(finding.values)) for part in words[1:])
    return Words(words.level, check, text, do)
