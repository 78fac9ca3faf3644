"""One simulated run of a tool: when it acts on the world, how it ends, and which outcome it
reports.

The ledger of the world is the witness: it has one line per physical execution, written at the
moment of the act. As in tools/call.py, an outcome claims no more than is known.
"""

from collections.abc import Generator
from typing import Any

from foldlog.processors.effects.ports import BeginTool
from foldlog.processors.effects.tool import tool_claim_of
from foldlog.processors.tools.outcomes import Doubt, not_run, result, short, uncertain
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.run import ASK_SHARE, END_SHARE
from foldlog.processors.tools.tool import Tool
from foldlog.schemas import events as ev
from foldlog.schemas.enums import Outcome, Via
from foldlog.schemas.tokens import estimate

ENDING = ASK_SHARE + END_SHARE  # share of the grace between the request to end and the end
ENDS = ("ok", "failed", "raises", "hangs")


class ToolRun:
    """One simulated run, see the module docstring. Each attempt that begins has one."""

    def __init__(self, process: Any, session_id: str, begin: BeginTool, tool: Tool) -> None:
        self.process, self.world, self.rng = process, process.world, process.world.rng
        self.session_id, self.begin, self.tool = session_id, begin, tool
        self.stop = Stop()
        self.grace_ms = begin.agent.limits.grace_ms
        self.once = begin.call.effect == "once"
        self.claim = tool_claim_of(session_id, begin)
        self.timeout_ms = self.claim.timeout_ms
        self.acted = False
        self.begun_at = self.world.now

    def until_end(self) -> Generator[int, Any, Any]:
        """Run until the outcome. A run that waited too long for the loop does not begin."""
        if self.stop.requested:
            return not_run(self.claim, f"it was stopped before it began ({self.stop.why})")
        began, rng = self.world.now, self.rng
        if began - self.begun_at > self.begin.agent.limits.start_window_ms:
            return not_run(self.claim, "the worker could not begin it in time")
        end = "ok" if self.world.calm else rng.choices(ENDS, (10, 1, 2, 1.5))[0]
        heeds = rng.random() < 0.3  # it polls ctx.aborted
        spans = (0, 10, 200, self.timeout_ms // 3)
        before, after = rng.choice(spans), rng.choice(spans)
        if end == "hangs":  # the tool hangs before its act, or after it
            before, after = rng.choice(((self.timeout_ms, 0), (before, self.timeout_ms)))
        if self.world.brink and not self.world.calm:  # the tool acts at the last possible moment
            before = self.timeout_ms
        why = yield from self._pass(began, before)
        if why and not self.world.brink and (heeds or rng.random() < 0.5):
            return self._stopped(why, heeds)
        if why:  # the tool ends within its share of the grace, and may still act
            yield int(ENDING * self.grace_ms) if self.world.brink else 0
        if not why or self.world.now - began <= self.timeout_ms + int(ENDING * self.grace_ms):
            self._act()
        why = why or (yield from self._pass(began, after))
        if why and end != "failed":
            return self._stopped(why, heeds)
        if end == "raises":
            text = f"{self.tool.name} raised RuntimeError: simulated"
            if self.once:
                return uncertain(self.claim, Doubt.RAISED, text)
            return result(self.claim, Outcome.ERROR, short(text))
        if end == "failed":
            return result(self.claim, Outcome.ERROR, short("the tool knows that it failed"))
        return self._ok()

    def _pass(self, began: int, span: int) -> Generator[int, Any, str]:
        """Let time pass. Returns why it was cut short: 'stopped', 'deadline', or '' if it was
        not."""
        left = began + self.timeout_ms - self.world.now
        until = self.world.now + span
        while self.world.now < until and not self.stop.requested and left > 0:
            yield min(until - self.world.now, left)
            left = began + self.timeout_ms - self.world.now
        if self.stop.requested:
            return "stopped"
        return "deadline" if left <= 0 else ""

    def _act(self) -> None:
        self.process.crash_point("inside a tool, before its act")
        self.world.executed(self.process, self.session_id, self.begin)
        self.acted = True
        self.process.crash_point("inside a tool, after its act")

    def _stopped(self, why: str, heeds: bool) -> Any:
        if why == "stopped" and heeds and not self.acted:
            return result(self.claim, Outcome.CANCELLED, short("the tool stopped itself"))
        if self.once:
            code = Doubt.ABORTED if why == "stopped" else Doubt.TIMED_OUT
            return uncertain(self.claim, code, f"{why}; whether it had its effect is not known")
        outcome = Outcome.CANCELLED if why == "stopped" else Outcome.ERROR
        return result(self.claim, outcome, short(why))

    def _ok(self, via: Via = Via.TOOL) -> ev.ToolResult:
        name, triggers, reminders = self.tool.name, (), ()
        if name == "build_and_deploy":
            word = self.rng.choice(("start_build", "todo_done_build", "publish", "nonsense"))
            project = self.rng.choice((None, None, "project-1", "project-2"))
            triggers = (ev.Trigger(trigger=word, project_id=project),)
            reminders = self.rng.choice(((), ("remember this",)))
        text = f"{name} {self.claim.call_key} by attempt {self.claim.attempt}"
        if name == "page":
            text += " as dull as the page before it" * self.rng.choice((5, 60, 120))
        shaped = short(text)._replace(tokens=estimate(text))
        content = self.world.blobs.body(text.encode(), "text/plain")
        if content.ref is not None:  # what the model sees stays inline
            shown = text if name == "page" else text[:20]
            content = ev.Body(inline=shown.encode(), ref=content.ref)
        shaped = shaped._replace(content=content)
        asked = {"triggers": triggers, "reminders": reminders}
        return result(self.claim, Outcome.OK, shaped, via=via, **asked)

    def late_truth(self, event: Any) -> Generator[int, Any, Any]:
        """The late report of a tool that outlives its outcome (a thread): it states what the tool
        did."""
        if not isinstance(event, ev.ToolFailedUncertain) or self.rng.random() < 0.5:
            return None
        # The tool holds its slot until then, and a waiting effect polls for a slot every 50 ms.
        yield self.rng.choice((10, 3_000, 40_000, 200_000 if self.world.tool_slots > 2 else 9_000))
        if self.acted:
            return self._ok()
        return result(self.claim, Outcome.ERROR, short("the tool knows that it failed"))

    def reconciled(self) -> Any:
        """Like `tools.reconcile`: if the tool has a reconciler, the ledger shows what happened."""
        if self.tool.reconciler is None:
            return uncertain(self.claim, Doubt.WORKER_DIED, "nobody can say what it did")
        if not self.world.calm and self.rng.random() < 0.2:
            text = "the reconciler raised RuntimeError: simulated"
            return uncertain(self.claim, Doubt.WORKER_DIED, text)
        if self.world.has_executed(self.session_id, self.claim.call_key):
            return self._ok(Via.RECONCILER)
        text = short("the call did not happen")
        return result(self.claim, Outcome.NOT_RUN, text, via=Via.RECONCILER)
