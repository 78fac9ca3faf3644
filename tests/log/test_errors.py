"""Errors as values: a process passes them to the process that started it."""

import pickle
from collections.abc import Iterator

import pytest

from foldlog.log import errors
from foldlog.log.errors import (
    AccessDenied,
    AppendError,
    FoldlogError,
    LogCut,
    OffsetGone,
    RecordTooLarge,
    TopicMissing,
)

WITH_FIELDS = (
    AppendError("events", b"s1", 0, "timed out", AccessDenied("no right to write")),
    OffsetGone("events", 1, 5, 7, 9),
    LogCut(0, 0, 12),
    RecordTooLarge("events", 2_000, 1_000),
    TopicMissing("events"),
)


def plain() -> Iterator[FoldlogError]:
    """An error of every other class."""
    for kind in vars(errors).values():
        is_error = isinstance(kind, type) and issubclass(kind, FoldlogError)
        if is_error and kind not in map(type, WITH_FIELDS):
            yield kind("what happened, what was kept, what to do")


@pytest.mark.parametrize("error", [*WITH_FIELDS, *plain()], ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_text_and_fields_between_processes(error):
    passed = pickle.loads(pickle.dumps(error))
    assert type(passed) is type(error) and str(passed) == str(error)
    assert {k: str(v) for k, v in vars(passed).items()} == {
        k: str(v) for k, v in vars(error).items()
    }
