"""A result that repeats its call's arguments or an earlier message is reported, even if it was
truncated."""

import json
import random
import time

import pytest

from foldlog.processors.advice.mistakes import mistakes
from foldlog.processors.limits import DEFAULT_LIMITS
from foldlog.tests.kit import answers
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History
from foldlog.tests.processors.advice.test_mistakes import (
    NEWS,
    ROOMY,
    after_result,
    kinds,
    served,
)

WORDS = " ".join(f"word{n * 7919 % 10_007}" for n in range(2_000))
SPOKEN = "\n".join(f'entry {n * 7919 % 10_007} said "öffnen", and left' for n in range(1_200))


def test_S3_9_a_result_that_echoes_its_arguments_is_reported():
    args = json.dumps({"where": NEWS})
    for result in (NEWS, json.dumps({"ok": True, "you_said": NEWS})):
        (found,) = mistakes(after_result(result, args=args).views)
        assert (found.kind, found.culprit, found.call) == ("echo", "look", "1.1.0")
        assert "100 % of the result are its own arguments" in found.text


def test_S3_9_a_result_that_repeats_an_earlier_result_names_it():
    s = after_result(NEWS)
    s.answer(Use("put", "{}", "b"))
    s.result("1.2.0", NEWS + "and one new line\n")
    (found,) = mistakes(s.views)
    assert (found.culprit, found.call) == ("put", "1.2.0")
    assert "repeats look 1.1.0" in found.text


def test_S3_9_a_result_that_repeats_the_message_of_a_user_is_reported():
    s = History(agent=ROOMY)
    s.take().open()
    s.say(raw=f"[{answers.text(NEWS)}]".encode())
    s.answer(Use("look", "{}", "a")).result("1.1.0", NEWS)
    (found,) = mistakes(s.views)
    assert "100 % of the result repeats the message of turn 1" in found.text


def test_S3_9_a_short_quotation_is_not_reported_as_an_echo():
    assert kinds(after_result(NEWS, args=json.dumps({"where": NEWS[: len(NEWS) // 3]}))) == []


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("you said: " + WORDS, WORDS),
        ({"ok": True, "input": WORDS * 3}, WORDS * 3),
        ({"ok": True, "input": SPOKEN}, SPOKEN),
        (json.dumps({"ok": True, "input": SPOKEN}), SPOKEN),
        ("received " + "again and again " * 400, "again and again " * 400),
    ],
    ids=["one line", "truncated", "truncated lines", "truncated ASCII", "repeated words"],
)
def test_S3_9_an_echo_is_found_in_one_long_line_and_in_truncated_json(tmp_path, returned, text):
    """These are the most expensive echoes, and a comparison of whole lines or parsed JSON would
    miss them."""
    shown = served(tmp_path, returned)
    (found,) = mistakes(after_result(shown, args=json.dumps({"where": text})).views)
    assert (found.kind, found.culprit) == ("echo", "look")
    assert "% of the result are its own arguments" in found.text
    assert 500 < found.tokens <= DEFAULT_LIMITS.result_tokens


def test_S3_9_a_chance_overlap_of_two_texts_is_not_reported_as_an_echo(tmp_path):
    table = "\n".join(f"{'- ' * 150}{n} {n * 7919}" for n in range(100))
    assert kinds(after_result(table, args=json.dumps({"where": "- " * 200}))) == []
    third = WORDS[: len(WORDS) // 3]
    assert kinds(after_result("you said: " + WORDS, args=json.dumps({"where": third}))) == []


def test_S3_9_the_search_for_echoes_takes_linear_time():
    """The input is two texts of 64 KB that almost match at every place."""
    nearly = ("abcd" * 7 + "e") * 2_200
    other = ("abcd" * 7 + "f") * 2_200
    began = time.perf_counter()
    assert kinds(after_result(nearly, args=json.dumps({"where": other}))) == []
    noise = random.Random(7).randbytes(30_000).hex()
    assert kinds(after_result(noise, args=json.dumps({"where": nearly}))) == []
    assert time.perf_counter() - began < 5
