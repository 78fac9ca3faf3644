"""The real Outbox as a pure function of what it holds: each operation on each content runs once, on
a file, and is read back by another Outbox, as after a crash."""

import tempfile
from pathlib import Path

from foldlog.processors.worker.outbox import Outbox
from foldlog.schemas.codec import decode
from foldlog.tests.kit.invariants import Violation
from foldlog.tests.states.records import SESSION, Draft, Log

Content = tuple[int, ...]


class Outboxes:
    """The outboxes of the search. A content is the outcomes that are pending, oldest first."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._results: dict[tuple[Content, str, int], Content] = {}

    def put(self, content: Content, draft: int) -> Content:
        """The content after an outcome was kept."""
        return self._run(content, "put", draft)

    def done(self, content: Content, index: int) -> Content:
        """The content after the log has one outcome."""
        return self._run(content, "done", index)

    def _run(self, content: Content, operation: str, number: int) -> Content:
        key = (content, operation, number)
        if key not in self._results:
            with tempfile.TemporaryDirectory() as directory:
                self._results[key] = self._on_a_file(Path(directory) / "outbox", *key)
        return self._results[key]

    def _on_a_file(self, path: Path, content: Content, operation: str, number: int) -> Content:
        outbox = Outbox(path)
        tokens = [outbox.put(SESSION, self._event(draft)) for draft in content]
        if operation == "put":
            outbox.put(SESSION, self._event(number))
            expected = (*content, number)
        else:
            outbox.done(tokens[number])
            expected = (*content[:number], *content[number + 1 :])
        outbox.close()
        again = Outbox(path)
        found = [(pending.session_id, pending.event) for pending in again.pending()]
        again.close()
        if found != [(SESSION, self._event(draft)) for draft in expected]:
            raise Violation("KeptOutcomesArrive", f"the outbox has {found} after {operation}")
        return expected

    def _event(self, draft: int) -> object:
        kept: Draft = self._log.drafts[draft]
        return decode(kept.value)
