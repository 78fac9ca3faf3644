"""Where a request has its cache marks: at most four, and one where an agent's users part (S3.1)."""

import json

import pytest

from foldlog.local.messages_api.cache import PromptCache
from foldlog.processors.agent import Agent
from foldlog.processors.request.blocks import Message
from foldlog.processors.request.cache_marks import marked_request
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.request.prefix import FILES_PREFACE, assemble, shared_blocks
from foldlog.processors.tools.tool import tool

LONG = "The shop sells lamps, desks and chairs to people in many towns. " * 100
MANAGED = Layer("managed", "policy.md", "Never show a card number.")
PROJECT = Layer("project", "FOLDLOG.md", "Prices are in cents.")
OF_ANA = Layer("user", "FOLDLOG.md", "Ana wants short answers.")
OF_BOB = Layer("user", "FOLDLOG.md", "Bob wants long answers.")
CORE = Layer("core", "memory", "user| Ana lives in Haifa.")


@tool(effect="pure")
def look(ctx, where: str = "here") -> str:
    """Looks somewhere."""
    return where


def request(*layers: Layer, system: str = LONG, directive: str = "Be kind.") -> dict:
    agent = Agent(
        name="shop", model="claude-sonnet-5", system=system, directive=directive, tools=(look,)
    )
    prefix = assemble(agent, Layers(layers))
    system_blocks = [json.dumps(block) for block in json.loads(prefix.system)]
    tools = [json.dumps(schema) for schema in json.loads(prefix.tools)]
    said = Message("user", ('{"type":"text","text":"hello"}',))
    return json.loads(marked_request(['"model":"claude-sonnet-5"'], system_blocks, tools, [said]))


def marked_texts(body: dict) -> list[str]:
    """The beginnings of the marked blocks of the system prompt."""
    return [block["text"][:40] for block in body["system"] if "cache_control" in block]


def count_of_marks(body: dict) -> int:
    return json.dumps(body).count('"cache_control"')


@pytest.mark.parametrize(("layers", "last_shared"), [
    ((OF_ANA,), LONG), ((CORE,), LONG), ((OF_ANA, CORE), LONG), ((PROJECT, OF_ANA), LONG),
    ((MANAGED, OF_ANA, PROJECT), '<instruction_file layer="managed" name="p'),
    ((PROJECT, CORE), '<instruction_file layer="project" name="F'),
])
def test_S3_1_a_mark_is_before_the_first_block_that_differs_by_user(layers, last_shared):
    body = request(*layers)
    assert marked_texts(body) == [last_shared[:40], "Be kind."]
    assert "cache_control" not in json.dumps(body["tools"]) and count_of_marks(body) <= 4


def test_S3_1_without_such_a_block_the_tools_have_the_mark():
    body = request(MANAGED, PROJECT)
    assert marked_texts(body) == ["Be kind."]
    body = request(MANAGED, system="Be brief.")
    assert marked_texts(body) == [], "too short to be cached"
    assert shared_blocks(('{"type":"text","text":"a"}',)) == 1 and shared_blocks(()) == 0


def test_S3_1_what_is_too_short_to_be_shared_has_no_mark():
    body = request(OF_ANA, Layer("local", "FOLDLOG.local.md", LONG), system="Be brief.")
    assert marked_texts(body) == ["Be kind."]
    alone = request(OF_ANA, system="")
    assert alone["system"][0]["text"] == FILES_PREFACE and marked_texts(alone) == []


def test_S3_1_a_second_user_reads_the_shared_part_from_the_cache():
    cache = PromptCache()
    ana, bob = request(OF_ANA, CORE), request(OF_BOB)
    first = cache.use(ana)
    cache.store(first)
    second = cache.use(bob)
    assert first.read == 0 and second.read > 0.9 * first.write_5m
    assert second.write_5m + second.uncached < 0.1 * first.write_5m
