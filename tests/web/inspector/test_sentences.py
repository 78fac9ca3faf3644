"""Each event of a session is shown as a sentence."""

import pytest

from foldlog.processors.fold.views import initial
from foldlog.schemas.codec import Entry
from foldlog.schemas.events import EVENT_TYPES, GenChunk
from foldlog.tests.schemas.arbitrary import example_of
from foldlog.web.inspector.sentences import sentence

TYPES = [row.cls for row in EVENT_TYPES if row.cls is not GenChunk]


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
def test_every_event_has_a_sentence(cls):
    entry = Entry("s", 0, 1, 1, "producer", example_of(cls))
    said = sentence(entry, initial("s").turn)
    assert " " in said and cls.__name__ not in said
