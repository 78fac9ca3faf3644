"""The compiled decoder decodes exactly as codec.read_as does, or leaves the record to it."""

import copy
import gc
import io
import random
import sys
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import count
from typing import Any

import msgspec
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings

from foldlog import schemas
from foldlog.log import Settings, open_log
from foldlog.schemas import codec, compiled, events as ev
from foldlog.schemas.bounds import ITEMS_MAX, TIME_MAX, TOKENS_MAX
from foldlog.schemas.codec import BY_NAME, HEAD_BYTES, MAGIC, ROWS, Undecodable, encode, reader_of
from foldlog.schemas.compiled import CompiledDecoder, program_of
from foldlog.tests.kit.programs import run
from foldlog.tests.schemas.arbitrary import events_of, example_of
from foldlog.tests.schemas.built_decoder import built
from foldlog.tests.schemas.shapes import shapes

MUTATIONS = 30_000
ROUNDS = 40
BLOCKS_MAX = 500
"""Memory blocks that a long run may add for other reasons, such as caches of Python."""

# A length or a number in each of its extremes, and blocks of an array with a size in bytes.
HOSTILE = [
    b"\xfe" + b"\xff" * 7 + b"\xff\x01",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 12,
    b"\x80\x00",
    b"\x80\x80\x80\x00",
    b"\x01",
    b"\x03",
    b"\x02\x02\x00",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\xed\xa0\x80",
    b"\xc0\x80",
]


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    return built(tmp_path_factory.mktemp("decoder"))


@cache
def readers() -> dict[bytes, Any]:
    """The reader of every schema that ever wrote a record, by the head of a value."""
    return codec._readers() | codec._retired()


@pytest.fixture(scope="module")
def decoder(module):
    """A compiled decoder that has learnt every schema."""
    decoder = CompiledDecoder(module)
    for head, reader in readers().items():
        decoder.learn(head, *reader)
    return decoder


@cache
def examples() -> list[bytes]:
    """A value of every schema that ever wrote a record."""
    return [shape.value for shape in shapes()] + [encode(example_of(row.cls)) for row in ROWS]


def exact(value: Any) -> Any:
    """A value with the type of each of its parts, which == alone would not compare."""
    if is_dataclass(value):
        return type(value), [exact(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, tuple):
        return type(value), [exact(item) for item in value]
    return type(value), value


def reference(value: bytes) -> Any:
    """What Python decodes, or None if the record is undecodable."""
    reader = readers().get(value[:HEAD_BYTES])
    try:
        return codec.read_as(value, *reader) if reader else None
    except Undecodable:
        return None


def assert_equal(decoder: CompiledDecoder, value: bytes) -> Any:
    """Check that the compiled decoder left the value to Python, or returned the same event, which
    is returned."""
    event = decoder.decode(value)
    if event is not None:
        assert exact(event) == exact(reference(value)), value.hex()
    return event


# -- programs --------------------------------------------------------------------------------------


def test_every_schema_that_ever_wrote_a_record_has_a_program():
    assert len(readers()) >= len(ROWS)
    for head, (cls, written, read) in readers().items():
        assert program_of(cls, written, read or written) is not None, (cls, head.hex())


def field(schema: dict, name: str) -> dict:
    return next(field for field in schema["fields"] if field["name"] == name)


UNSUPPORTED = {
    "a logical type": lambda s: field(s, "bytes").update(
        type={"type": "long", "logicalType": "timestamp-millis"}
    ),
    "a number with a fraction": lambda s: field(s, "turn").update(type="double"),
    "an alias": lambda s: field(s, "turn").update(aliases=["round"]),
    "a default word of an enum": lambda s: field(s, "outcome")["type"].update(default="ok"),
    "a field that no class has": lambda s: s["fields"].append({"name": "new", "type": "long"}),
    "a union of two types": lambda s: field(s, "turn").update(type=["long", "string"]),
    "a union of three types": lambda s: field(s, "cached_at")["type"].append("string"),
    "a union that ends in null": lambda s: field(s, "cached_at").update(
        type=["long", "null"], default=0
    ),
    "null is allowed": lambda s: field(s, "turn").update(type=["null", "long"]),
    "another type": lambda s: field(s, "turn").update(type="string"),
    "a map": lambda s: field(s, "turn").update(type={"type": "map", "values": "long"}),
}


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_what_has_no_program_is_left_to_python(what):
    schema = codec.schema_of("TOOL_RESULT")
    UNSUPPORTED[what](schema)
    parsed = parse_schema(copy.deepcopy(schema))
    assert program_of(ev.ToolResult, parsed, parsed) is None


def test_a_class_that_checks_itself_is_left_to_python():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class OwnerGone:
        owner: str

        def __post_init__(self):
            raise AssertionError("msgspec calls this, the compiled decoder does not")

    schema = parse_schema(codec.schema_of("OWNER_GONE"))
    assert program_of(OwnerGone, schema, schema) is None
    assert program_of(ev.OwnerGone, schema, schema) is not None


# -- equality --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", examples(), ids=lambda value: value[2:HEAD_BYTES].hex())
def test_a_record_of_every_schema_is_decoded_as_python_decodes_it(decoder, value):
    assert assert_equal(decoder, value) is not None


@pytest.mark.parametrize("name", BY_NAME)
def test_any_event_is_decoded_as_python_decodes_it(decoder, name):
    compiled_count = count()

    @settings(max_examples=40)
    @given(events_of(name))
    def law(event):
        if assert_equal(decoder, encode(event)) is not None:
            next(compiled_count)

    law()
    assert next(compiled_count) > 0


POWERS = [2**n + more for n in (36, 53, 62) for more in (-1, 0, 1)]
BOUNDS = [limit + more for limit in (TIME_MAX, TOKENS_MAX, ITEMS_MAX) for more in (0, 1)]
NUMBERS = [0, *POWERS, *BOUNDS, *(-number for number in (1, *POWERS, *BOUNDS))]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_number_at_its_bound_is_decoded_and_one_beyond_it_is_left_to_python(decoder, name):
    cls, schema = BY_NAME[name].cls, parse_schema(codec.schema_of(name))
    plain = msgspec.to_builtins(example_of(cls), builtin_types=(bytes,))
    for changed in (f["name"] for f in schema["fields"] if "long" in f["type"]):
        decoded = 0
        for number in NUMBERS:
            out = io.BytesIO()
            out.write(codec._writer(cls)[0])
            schemaless_writer(out, schema, plain | {changed: number})
            decoded += assert_equal(decoder, out.getvalue()) is not None
        assert 0 < decoded < len(NUMBERS), (changed, decoded)


def mutated(value: bytes, chance: random.Random) -> bytes:
    """A value with one to three changes behind its head."""
    body = bytearray(value[HEAD_BYTES:])
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randint(0, len(body))
        match chance.randrange(6):
            case 0:
                body[at : at + 1] = bytes([chance.randrange(256)])
            case 1 if at < len(body):
                body[at] ^= 1 << chance.randrange(8)
            case 2:
                del body[at : at + chance.randint(1, 8)]
            case 3:
                body[at:at] = chance.choice(HOSTILE)
            case 4:
                end = at + chance.randint(1, 8)
                body[at:end] = chance.choice(HOSTILE)
            case _:
                body[at:at] = chance.randbytes(chance.randint(1, 6))
    return value[:HEAD_BYTES] + bytes(body)


def test_a_mutated_record_is_decoded_as_python_decodes_it_or_left_to_python(decoder):
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    print("seed", seed)  # shown if the test fails
    found = {"equal": 0, "left": 0, "undecodable": 0}
    for _ in range(MUTATIONS):
        value = mutated(chance.choice(examples()), chance)
        if assert_equal(decoder, value) is not None:
            found["equal"] += 1
        elif reference(value) is not None:
            found["left"] += 1
        else:
            found["undecodable"] += 1
    assert min(found.values()) > 20, found


def test_no_prefix_and_no_longer_record_is_decoded(decoder):
    for value in examples():
        for end in range(len(value)):
            assert decoder.decode(value[:end]) is None
        assert decoder.decode(value + b"\x00") is None


def test_other_values_are_left_to_python(decoder):
    value = examples()[0]
    assert decoder.decode(value) is not None
    for other in (b"", MAGIC, value[:9], b"\x00" + value[1:], bytearray(value), "text", None, 7):
        assert decoder.decode(other) is None
    assert decoder.decode(MAGIC + b"\xff" * 8 + value[HEAD_BYTES:]) is None


def test_fields_that_a_retired_schema_lacks_get_their_defaults(module):
    old = codec.schema_of("CANCEL_REQUESTED")
    old["fields"] = [f for f in old["fields"] if f["name"] not in ("turn", "seen_phase")]
    head, (cls, written, read) = reader_of({"type": "CANCEL_REQUESTED", "schema": old})
    value = head + b"\x04c1" + b"\x00" + b"\x06old" + b"\x06ana"
    decoder = CompiledDecoder(module)
    decoder.learn(head, cls, written, read)
    event = ev.CancelRequested(cancel_id="c1", mode="now", reason="old", by_user="ana")
    assert exact(decoder.decode(value)) == exact(event)
    assert codec.read_as(value, cls, written, read) == event


# -- memory ----------------------------------------------------------------------------------------


def test_memory_stays_flat_over_many_records(decoder):
    chance = random.Random(15)
    values = examples() + [mutated(value, chance) for value in examples() * 10]
    symbol = decoder.decode(encode(example_of(ev.ToolResult))).outcome
    shared = (ev.ToolResult, ev.Body, symbol, None)

    def round_of_records() -> None:
        for value in values:
            decoder.decode(value)

    def counts() -> list[int]:
        gc.collect()
        return [sys.getallocatedblocks(), *map(sys.getrefcount, shared)]

    round_of_records()
    before = counts()
    for _ in range(ROUNDS):
        round_of_records()
    grown = [now - then for now, then in zip(counts(), before, strict=True)]
    assert ROUNDS * len(values) > 10 * BLOCKS_MAX
    assert max(grown) < BLOCKS_MAX, grown


@dataclass(slots=True)
class Pair:
    left: Any
    right: Any = None


class Derived(Pair):
    __slots__ = ()


class WithDict:
    def __init__(self):
        self.left = 1


class Mortal:
    __slots__ = ("left",)

    def __del__(self):
        raise AssertionError("an event without its fields must not be seen")


LONG = ("long", 0, 10)
DEEP: tuple = LONG
for _ in range(40):
    DEEP = ("optional", DEEP)
REFUSED = [
    None, (), ("long",), ("long", 0), ("long", 2**70, 1), ("long", "a", 1), ("double",), (7,),
    LONG, ("enum", ("a",)), ("array", LONG), ("optional", LONG), DEEP,
    ("record",), ("record", Pair), ("record", Pair, (), ()[:0], ()), ("record", 7, (), ()),
    ("record", Pair, [("left", LONG)], ()),
    ("record", Pair, (("left",),), ()),
    ("record", Pair, ((b"left", LONG),), ()),
    ("record", Pair, (("middle", LONG),), ()),
    ("record", Pair, (("__init__", LONG),), ()),
    ("record", Pair, (("__class__", LONG),), ()),
    ("record", Pair, (("left", LONG), ("left", LONG)), ()),
    ("record", Pair, (("left", LONG),), (("left", 1),)),
    ("record", Pair, (("left", LONG),), (("right",),)),
    ("record", Pair, (("left", ("enum", ("a", 7))),), ()),
    ("record", Pair, (("left", ("enum", "ab")),), ()),
    ("record", Pair, (("left", ("array", ("array", 7))),), ()),
    ("record", Pair, tuple((f"f{n}", LONG) for n in range(300)), ()),
    ("record", Derived, (("left", LONG),), ()),
    ("record", WithDict, (), ()),
    ("record", Mortal, (("left", LONG),), ()),
    ("record", int, (), ()), ("record", tuple, (), ()), ("record", object, (), ()),
]  # fmt: skip


@pytest.mark.parametrize("program", REFUSED, ids=range(len(REFUSED)))
def test_a_program_that_cannot_be_run_is_refused(module, program):
    decoder = module.Decoder()
    for _ in range(3):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            decoder.add(b"12345678", program)
    assert decoder.decode(MAGIC + b"12345678\x00") is None


def test_a_fingerprint_has_8_bytes_and_one_program(module):
    decoder, program = module.Decoder(), ("record", Pair, (("left", LONG),), (("right", "x"),))
    for wrong in (b"", b"1234567", b"123456789"):
        with pytest.raises(ValueError):
            decoder.add(wrong, program)
    decoder.add(b"12345678", program)
    with pytest.raises(ValueError):
        decoder.add(b"12345678", program)
    assert decoder.decode(MAGIC + b"12345678" + b"\x14") == Pair(10, "x")
    assert decoder.decode(MAGIC + b"12345678" + b"\x16") is None  # 11 is out of bounds


def test_thousands_of_programs_are_found_by_their_fingerprints(module):
    decoder = module.Decoder()
    for number in range(3000):
        program = ("record", Pair, (), (("left", number), ("right", None)))
        decoder.add(number.to_bytes(8, "big"), program)
    for number in range(3000):
        assert decoder.decode(MAGIC + number.to_bytes(8, "big")) == Pair(number)
    assert decoder.decode(MAGIC + (3000).to_bytes(8, "big")) is None


# -- how codec.py uses it --------------------------------------------------------------------------


@pytest.fixture
def in_codec(module, monkeypatch):
    """The codec of this process, with the freshly built module."""
    monkeypatch.setitem(sys.modules, "foldlog.schemas._decoder", module)
    monkeypatch.setattr(schemas, "_decoder", module, raising=False)
    before = codec.uses_compiled()
    codec.use_compiled(False)
    yield module
    codec.use_compiled(False)
    monkeypatch.undo()
    codec.use_compiled(before)


def test_the_codec_learns_a_schema_from_its_first_record(in_codec, monkeypatch):
    assert codec.use_compiled(True)
    values = examples()
    first = [codec.decode(value) for value in values]

    def unexpected(*args: Any) -> None:
        raise AssertionError(f"decoded in Python: {args}")

    monkeypatch.setattr(codec, "read_as", unexpected)
    assert [exact(codec.decode(value)) for value in values] == list(map(exact, first))


def test_both_decoders_raise_the_same_errors(in_codec):
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    values = [mutated(chance.choice(examples()), chance) for _ in range(2000)]
    outcomes = []
    for wanted in (True, False):
        assert codec.use_compiled(wanted) == wanted
        outcomes.append([outcome(value) for value in values])
    assert outcomes[0] == outcomes[1]
    assert sum(isinstance(one, str) for one in outcomes[0]) > 100


def outcome(value: bytes) -> Any:
    """The event with its types, or the text of the error."""
    try:
        return exact(codec.decode(value))
    except Undecodable as error:
        return str(error)


def test_the_setting_python_turns_the_compiled_decoder_off(in_codec):
    env = {"HOME": "/h", "USER": "ada", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    open_log(Settings.load(env)).close()
    assert compiled.in_words(codec.uses_compiled()) == "compiled"
    open_log(Settings.load(env | {"FOLDLOG_DECODER": "python"})).close()
    assert not codec.uses_compiled()
    assert compiled.in_words(codec.uses_compiled()) == "Python, as the setting decoder demands"
    value = encode(example_of(ev.ToolResult))
    assert exact(codec.decode(value)) == exact(example_of(ev.ToolResult))


def test_a_module_that_was_built_for_other_programs_is_not_used(in_codec, monkeypatch):
    monkeypatch.setattr(in_codec, "FORMAT", compiled.FORMAT + 1)
    assert not codec.use_compiled(True)


WITHOUT = """
import sys
sys.modules["foldlog.schemas._decoder"] = None
from foldlog.schemas import codec, compiled, events as ev
assert not codec.uses_compiled() and not codec.use_compiled(True)
event = ev.OwnerGone(owner="w1/1")
assert codec.decode(codec.encode(event)) == event
print(compiled.in_words(codec.uses_compiled()))
"""


def test_without_the_module_python_decodes():
    ran = run([sys.executable, "-c", WITHOUT])
    assert ran.returncode == 0, ran.stderr
    assert "is not built (docs/install.md)" in ran.stdout
