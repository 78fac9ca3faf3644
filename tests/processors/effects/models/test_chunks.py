"""Chunks: none is lost or repeated; the first is sent at once, later ones by time or size (law
10)."""

from hypothesis import given, strategies as st

from foldlog.processors.effects.models.chunks import (
    CHUNK_CHARS_MAX,
    FLUSH_AFTER_S,
    FLUSH_CHARS,
    STREAMS_READ_AT_ONCE,
    STREAMS_READ_OFTEN,
    Chunks,
    read_gap_s,
    until_next,
)
from foldlog.schemas.enums import ChunkKind

TEXT, INPUT, NAME = ChunkKind.TEXT, ChunkKind.TOOL_INPUT, ChunkKind.TOOL_NAME


class Clock:
    """Timers that fire when the test calls `fire`."""

    def __init__(self):
        self.due = []

    def later(self, seconds, call):
        assert seconds == FLUSH_AFTER_S
        timer = Timer(call)
        self.due.append(timer)
        return timer

    def fire(self):
        due, self.due = self.due, []
        for timer in due:
            if not timer.cancelled:
                timer.call()


class Timer:
    def __init__(self, call):
        self.call, self.cancelled = call, False

    def cancel(self):
        self.cancelled = True


def make():
    sent, clock = [], Clock()
    return Chunks(lambda *chunk: sent.append(chunk), clock.later), sent, clock


def test_S1_C_the_first_token_is_sent_at_once_and_the_next_by_the_timer():
    chunks, sent, clock = make()
    chunks.add(0, TEXT, "")
    assert sent == []
    chunks.add(0, TEXT, "Hel")
    assert sent == [(0, 0, TEXT, "Hel")]
    chunks.add(0, TEXT, "lo ")
    chunks.add(0, TEXT, "you")
    assert len(sent) == 1
    clock.fire()
    assert sent[1:] == [(1, 0, TEXT, "lo you")]
    clock.fire()
    assert len(sent) == 2


def test_S1_C_size_a_new_block_and_a_new_kind_flush():
    chunks, sent, _ = make()
    chunks.add(0, TEXT, "a")
    chunks.add(0, TEXT, "b" * FLUSH_CHARS)
    chunks.add(0, TEXT, "c")
    chunks.add(1, NAME, "read")
    chunks.add(1, INPUT, "{")
    chunks.flush()
    chunks.flush()
    assert [(block, kind, text[:4]) for _, block, kind, text in sent] == [
        (0, TEXT, "a"),
        (0, TEXT, "bbbb"),
        (0, TEXT, "c"),
        (1, NAME, "read"),
        (1, INPUT, "{"),
    ]
    assert [seq for seq, *_ in sent] == list(range(5))


def test_a_huge_delta_is_split_into_chunks():
    chunks, sent, _ = make()
    chunks.add(0, TEXT, "x" * (2 * CHUNK_CHARS_MAX + 1))
    assert [len(text) for *_, text in sent] == [CHUNK_CHARS_MAX, CHUNK_CHARS_MAX, 1]


def test_surrogate_halves_are_joined_and_a_lone_half_is_replaced():
    chunks, sent, clock = make()
    chunks.add(0, TEXT, "\ud83d")
    clock.fire()
    assert sent == []
    chunks.add(0, TEXT, "\ude00")
    assert [text for *_, text in sent] == ["\U0001f600"]
    chunks.add(0, TEXT, "a\ud83d")
    chunks.add(1, TEXT, "b")
    chunks.flush()
    assert [text for *_, text in sent[1:]] == ["a\ufffd", "b"]


def test_the_text_so_far_is_sent_on_request_but_half_a_pair_waits():
    chunks, sent, _ = make()
    chunks.add(0, TEXT, "a")
    assert chunks.has_begun
    chunks.add(0, TEXT, "b\ud83d")
    chunks.send()
    chunks.add(0, TEXT, "\ude00")
    chunks.send()
    assert [text for *_, text in sent] == ["a", "b", "\U0001f600"]


def test_few_streams_are_read_at_once_and_more_streams_less_often():
    few, many = STREAMS_READ_AT_ONCE, STREAMS_READ_OFTEN
    gaps = [read_gap_s(streams) for streams in (1, few, few + 1, many, many + 1, 10_000)]
    assert gaps[:2] == [0, 0] and gaps == sorted(gaps) and gaps[2:4] == [FLUSH_AFTER_S] * 2
    assert 0 < gaps[-1] < 0.15, "beside the delay of the log, a chunk is late by 250 ms at most"


@given(st.floats(0, 1e7), st.floats(0, 1), st.sampled_from([0.04, 0.12]))
def test_streams_with_the_same_gap_wake_up_at_the_same_times(now_s, later_s, gap_s):
    waits = until_next(now_s, gap_s), until_next(now_s + later_s, gap_s)
    assert all(0 < wait <= gap_s for wait in waits)
    apart = (now_s + later_s + waits[1] - now_s - waits[0]) / gap_s
    assert abs(apart - round(apart)) < 1e-4


halves = st.characters(categories=("Cs",))
moves = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([TEXT, INPUT]), st.text(halves | st.characters()))
    | st.sampled_from(["time", "flush"]),
    max_size=30,
)


@given(moves)
def test_P6_chunks_contain_every_delta_once_in_order(moves):
    chunks, sent, clock = make()
    deltas = []
    for move in moves:
        if move == "time":
            clock.fire()
        elif move == "flush":
            chunks.flush()
            deltas.append(None)
        else:
            chunks.add(*move)
            deltas.append(move)
    chunks.flush()
    assert [seq for seq, *_ in sent] == list(range(len(sent)))
    assert all(text and text.encode() for *_, text in sent)
    assert joined(sent) == expected(deltas)


def joined(sent):
    """The chunks, with neighbours of the same place joined."""
    runs = []
    for _, block, kind, text in sent:
        if runs and runs[-1][:2] == (block, kind):
            runs[-1] = (block, kind, runs[-1][2] + text)
        else:
            runs.append((block, kind, text))
    return runs


def expected(deltas):
    """The deltas, with neighbours of the same place joined. The halves of a surrogate pair are
    never joined across a flush or a place."""
    runs, place, text = [], None, ""
    for delta in [*deltas, None]:
        if delta is not None and delta[2] == "":
            continue
        if delta is None or delta[:2] != place:
            if text:
                shown = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
                if runs and runs[-1][:2] == place:
                    runs[-1] = (*place, runs[-1][2] + shown)
                else:
                    runs.append((*place, shown))
            place, text = (None if delta is None else delta[:2]), ""
        if delta is not None:
            text += delta[2]
    return runs
