"""The scenes of the crash tests, and the person who plays a scene by watching the log.

A person sends messages, approves, cancels, steers, and resolves doubts by reading the ledger. Each
act is done once, when the log shows that its condition is true.
"""

from collections.abc import Callable
from typing import NamedTuple

from foldlog.processors.fold.projections.turn_view import Call
from foldlog.schemas import events as ev
from foldlog.tests.crash.agents import BRIM, HASTY, HELPER, KEEPER, SIGNED, filled
from foldlog.tests.crash.script import gate_of
from foldlog.tests.crash.stage import Stage, WatchedSession
from foldlog.tests.crash.witnesses_delivery import CHANNEL


class Act(NamedTuple):
    """One act of a person. when: its condition; do: the act, such as `say` or `cancel`; scene,
    when_busy, tokens: fields of the message to send (`tokens` is its approximate length)."""

    when: Callable[[WatchedSession], bool]
    do: str
    scene: str = "talk"
    when_busy: str = "queue"
    tokens: int = 0


class Scene(NamedTuple):
    """The scene that the first message names for the model, and the person's later acts, in
    order."""

    model: str
    acts: tuple[Act, ...] = ()
    agent: str = HELPER
    channel: str = "python"


def streamed(chunks: int) -> Callable[[WatchedSession], bool]:
    """A condition that is true once the first turn has streamed this many chunks or has ended."""
    return lambda w: len(w.counted(ev.GenChunk)) >= chunks or ended(1)(w)


def ended(turn: int) -> Callable[[WatchedSession], bool]:
    """A condition that is true once this many turns have ended."""
    return lambda w: len(w.counted(ev.TurnEnded)) >= turn


def started(w: WatchedSession) -> bool:
    """Whether a tool has started or the first turn has ended."""
    return bool(w.counted(ev.ToolStarted)) or ended(1)(w)


def works(*kinds: str) -> Callable[[WatchedSession], bool]:
    """A condition that is true once background work of one of these kinds has begun."""
    return lambda w: any(event.kind in kinds for event in w.counted(ev.BackgroundStarted))


def made(w: WatchedSession) -> bool:
    """Whether a summary has been written."""
    return bool(w.counted(ev.ContextCompacted))


def waits(w: WatchedSession) -> bool:
    """Whether the second turn has begun but has not called the model yet."""
    return w.views.turn.number == 2 and not w.views.turn.step


def all_ended(w: WatchedSession) -> bool:
    """Whether the first turn and the background work that ran with it have ended."""
    return ended(1)(w) and bool(w.counted(ev.BackgroundDone))


def _always(_: WatchedSession) -> bool:
    return True


SCENES: dict[str, Scene] = {
    "talk": Scene("talk", (Act(ended(1), "say"),)),
    "tools": Scene("tools"),
    "pushed": Scene("talk", (Act(ended(1), "say"),), channel=CHANNEL),
    "twice": Scene("twice"),
    "big": Scene("big"),
    "approve": Scene("approve"),
    "wire": Scene("wire", agent=HASTY),
    "cancel": Scene("long", (Act(streamed(2), "cancel"), Act(ended(1), "say"))),
    "interrupt": Scene("long", (Act(streamed(2), "say", when_busy="interrupt"),)),
    "queue": Scene("talk", (Act(streamed(1), "say"), Act(streamed(1), "say"))),
    "outlast": Scene("outlast"),
    "begun": Scene("begun"),
    "middle": Scene("middle"),
    "slow": Scene("slow"),
    "held": Scene("hold"),
    "steer": Scene(
        "hold", (Act(started, "say", "steered", when_busy="steer"), Act(_always, "release"))
    ),
    "haul": Scene("haul", agent=KEEPER),
    "shorts": Scene("shorts", (Act(ended(1), "say", tokens=6_000),), KEEPER),
    # summaries that the provider makes and signs
    "signed": Scene("signed", (Act(ended(1), "say"),), SIGNED),
    # a summary made while the session was idle is adopted by the next turn
    "returns": Scene("returns", (Act(made, "say", tokens=6_000),), KEEPER),
    # no turn waits for a summary...
    "patient": Scene("patient", (Act(ended(1), "release summary"), Act(made, "say")), KEEPER),
    # ...but a request that would not fit without one
    "brim": Scene(
        "brim", (Act(works("resume"), "say", tokens=4_500), Act(waits, "release summary")), BRIM
    ),
    "stopped": Scene(
        "stopped",
        (Act(works("context"), "cancel"), Act(all_ended, "release summary"), Act(_always, "say")),
        KEEPER,
    ),
    "left": Scene("stopped", agent=KEEPER),
    "full": Scene("brim", (Act(works("resume"), "say", tokens=4_500),), BRIM),
}


class Person:
    """Plays one scene in one session."""

    def __init__(self, stage: Stage, session_id: str, scene: Scene) -> None:
        self.stage, self.session_id, self.scene = stage, session_id, scene
        self.messages: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        self._acts = list(scene.acts)
        self._decided: set[tuple[str, str]] = set()

    @property
    def watched(self) -> WatchedSession:
        return self.stage.watch(self.session_id)

    def begin(self) -> None:
        """Open the session and send the first message."""
        self.stage.sessions.open(self.session_id, agent=self.scene.agent)
        self._say(self.scene.model, "queue")

    def _say(self, scene: str, when_busy: str, tokens: int = 0) -> None:
        message_id = f"{self.session_id}.m{len(self.messages) + 1}"
        text = f"session:{self.session_id} scene:{scene} message:{message_id}"
        text = filled(text, tokens) if tokens else text
        self.messages[message_id] = text
        self.stage.sessions.say(
            self.session_id,
            text,
            message_id=message_id,
            when_busy=when_busy,
            channel=self.scene.channel,
        )

    def react(self) -> None:
        """Do every act that is due in the present state of the log."""
        while self._acts and self.messages and self._is_due():
            self._do(self._acts.pop(0))
        turn = self.watched.views.turn
        for call in (*turn.calls, *turn.doubts):
            if call.status == "asks" and turn.closing is None:
                self._once(call, lambda c=call: self._decide(c))
            elif call.status in ("doubt", "contradicted") and call.told:
                self._once(call, lambda c=call: self._resolve(c))

    def _is_due(self) -> bool:
        """Whether the next act is due, or its condition can no longer become true.

        The condition cannot become true if a tool could not begin in time after a kill: its page is
        missing, and the session stays too short for a summary.
        """
        if self._acts[0].when(self.watched):
            return True
        turn = self.watched.views.turn
        received = len(self.watched.counted(ev.MessageReceived)) == len(self.messages)
        return received and ended(1)(self.watched) and not turn.open and not self._owes()

    def _owes(self) -> bool:
        return bool(self.stage.owed(self.session_id))

    def _do(self, act: Act) -> None:
        match act.do:
            case "say":
                self._say(act.scene, act.when_busy, act.tokens)
            case "release":
                self.stage.ledger.release(self.session_id)
            case "release summary":
                self.stage.server.open(gate_of(self.session_id))
            case "cancel":
                self.stage.sessions.cancel(self.session_id, turn=1, cancel_id=self.session_id)

    def _once(self, call: Call, do: Callable[[], None]) -> None:
        if (call.key, call.status) not in self._decided:
            self._decided.add((call.key, call.status))
            do()

    def _decide(self, call: Call) -> None:
        # The first of a response is allowed, the others are denied.
        decision = "allow" if call.index == 0 else "deny"
        self.stage.sessions.decide(
            self.session_id, call.key, decision, args_sha256=call.args_sha256
        )

    def _resolve(self, call: Call) -> None:
        happened = self.stage.ledger.lines(call.name, session=self.session_id, call=call.key)
        outcome = "happened" if happened else "did_not_happen"
        self.answers[call.key] = outcome
        self.stage.sessions.resolve(
            self.session_id, call.key, outcome, report="I have read the ledger."
        )

    def is_done(self) -> bool:
        """Whether every act is done, every turn has ended and WAKE has no row."""
        if self._acts:
            return False
        views = self.watched.views
        progress = [views.messages.progress.last(message_id) for message_id in self.messages]
        over = all(row is not None and row.reason for row in progress)
        quiet = not views.turn.open and not views.turn.queue and not views.turn.refusals
        in_doubt = any(call.status in ("doubt", "contradicted") for call in views.turn.doubts)
        return over and quiet and not in_doubt and not self._owes()
