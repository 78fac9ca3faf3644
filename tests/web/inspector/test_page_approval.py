"""A person approves only what was on the screen: nothing in the arguments is hidden, and Allow
waits until all of them were shown. In a real browser."""

import json
import random
import re
import unicodedata
from hashlib import sha256

import httpx
import pytest
from playwright.sync_api import expect

from foldlog.client.visible import clean, exact, exact_json, is_hidden
from foldlog.log.blobs import BlobStore
from foldlog.schemas import events as ev
from foldlog.tests.kit.browser_fixture import DESK, PHONE
from foldlog.tests.kit.played import USAGE, text_block
from foldlog.tests.kit.waiting import until
from foldlog.tests.web.inspector.judges import CONTRASTS, UNNAMED

MODULE = "import('/inspector/static/visible.js')"
LINES = {"script": "\n".join(f"echo line {number}" for number in range(200)) + "\nrm -rf ~"}
FIELDS = {f"field {number:02}": "x" for number in range(60)} | {"zz": "rm -rf ~"}
LOW = {**DESK, "height": 420}


def proposing(place, name, *calls):
    """A session whose calls of `run` with these arguments wait for approval."""
    _, played = place.open(name, "do it")
    played.propose("I would run.", *(("run", args) for args in calls))
    for index in range(len(calls)):
        played.invoke(index, approval="ask")
    return played


def card(page):
    return page.get_by_label("run waits for approval")


def allow(page):
    return card(page).get_by_role("button", name=re.compile("^Allow"))


def test_both_sides_agree_on_every_character(url, page_at):
    """Characters that are newer than one of the two tables are hidden on that side."""
    page = page_at(url)
    theirs = page.evaluate(f"""async () => {{
      const {{ isHidden }} = await {MODULE};
      const all = Array.from({{ length: 0x110000 }}, (_, code) => String.fromCodePoint(code));
      const kind = (char) => (/\\p{{Cn}}/u.test(char) ? "?" : isHidden(char) ? "h" : "v");
      return all.map(kind).join("");
    }}""")
    ours = ("h" if is_hidden(chr(code)) else "v" for code in range(0x110000))
    different = [
        hex(code) for code, (one, other) in enumerate(zip(ours, theirs, strict=True))
        if one != other and other != "?" and unicodedata.category(chr(code)) != "Cn"
    ]
    assert different == []


def test_both_sides_show_a_text_alike(url, page_at):
    chance = random.Random(17)
    alphabet = [
        *"ab\"\\n {}⟨×9#é日❤👨🏽🏴\n\t\r\x1b\xad\u200b\u200d\ufe0f\u20e3\xa0\u3000\u06cc\u200c",
        "\ue0b0", "\\u0072", "\\u200b", "\\ud83d\\ude00", " " * 20, "\n" * 3, "\u3164" * 5,
        "\U000e0067", "\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    ]
    texts = ["".join(chance.choices(alphabet, k=chance.randrange(30))) for _ in range(3_000)]
    texts += [json.dumps({"a": text}, ensure_ascii=False) for text in texts]
    page = page_at(url)
    theirs = page.evaluate(f"""async (texts) => {{
      const {{ clean, exact, exactJson }} = await {MODULE};
      const joined = (pieces) => pieces.map(([text]) => text).join("");
      return texts.map((text) => [clean(text), joined(exact(text)), joined(exactJson(text))]);
    }}""", texts)
    for text, shown in zip(texts, theirs, strict=True):
        assert shown == [clean(text), exact(text), exact_json(text)], ascii(text)


@pytest.mark.parametrize(
    "args", [LINES, FIELDS, {"text": "word " * 6_000}], ids=["lines", "fields", "long"]
)
def test_E11_allow_waits_until_every_row_was_on_the_screen(place, url, page_at, args, request):
    played = proposing(place, f"long-{request.node.callspec.id}", args)
    page = page_at(f"{url}/#/s/{played.session_id}", viewport=LOW)
    expect(allow(page)).to_be_disabled()
    reason = re.compile(r"^Allow once all of it was shown \(\d+ %\)")
    expect(allow(page)).to_have_text(reason)
    arguments = card(page).get_by_role("group", name="Arguments")
    arguments.evaluate("box => { box.scrollTop = box.scrollHeight }")  # past everything in between
    card(page).focus()
    page.keyboard.press("a")
    expect(allow(page)).to_be_disabled()
    if args is FIELDS:
        expect(arguments.get_by_role("row")).to_have_count(61)
    more = card(page).get_by_role("button", name="Show the next part")
    for _ in range(1_000):
        if not more.count():
            break
        more.evaluate_all("([button]) => button?.click()")
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert played.views.turn.calls[0].status == "asks"
    expect(allow(page)).to_have_text(re.compile("^Allow run"))
    card(page).focus()
    page.keyboard.press("a")
    played.wait(lambda views: views.turn.calls[0].status == "allowed")


def test_E11_long_arguments_can_be_expanded_and_denied_unread(place, url, page_at):
    played = proposing(place, "expanded", LINES)
    page = page_at(f"{url}/#/s/expanded", viewport=LOW)
    card(page).get_by_role("button", name=re.compile("^Show all .* characters at once")).click()
    box = card(page).get_by_role("group", name="Arguments")
    assert box.evaluate("box => box.scrollHeight - box.clientHeight") <= 0
    expect(allow(page)).to_be_disabled()
    assert page.evaluate(UNNAMED) == [] == page.evaluate(CONTRASTS)
    card(page).focus()
    page.keyboard.press("d")
    played.wait(lambda views: views.turn.calls[0].decision == "deny")


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_E11_the_arguments_are_whole_and_nothing_in_them_is_hidden(
    place, url, page_at, viewport, request
):
    name = f"hidden-{request.node.callspec.id}"
    long_name = "a name of a field that is much longer than its column " * 6 + "end"
    proposing(place, name, {
        "command": "ls \u200b\U000e0072\u3164" + " " * 12_990 + "rm -rf ~",
        "ok\u202ename": [" \xa0"], long_name: 1,
    })  # fmt: skip
    page = page_at(f"{url}/#/s/{name}", viewport=viewport)
    expect(card(page).get_by_role("row")).to_have_count(3)
    first, second, third = card(page).get_by_role("row").all()
    card_right = card(page).evaluate("e => e.scrollWidth - e.clientWidth")
    assert card_right <= 0, "no button is cut off"
    expect(first).to_have_text("commandls \\u200b\\u{e0072}\\u3164⟨␠×12990⟩rm -rf ~")
    marked = first.locator(".hid").all_inner_texts()
    assert marked == ["\\u200b", "\\u{e0072}", "\\u3164", "⟨␠×12990⟩"]
    expect(second).to_have_text('ok\\u202ename[" \\u00a0"]')
    head = third.get_by_role("rowheader")
    assert head.evaluate("e => e.scrollWidth <= e.clientWidth")
    right = head.bounding_box()["x"] + head.bounding_box()["width"]
    assert right < viewport["width"] and page.evaluate(CONTRASTS) == []
    group = card(page).get_by_role("group", name="Arguments")
    assert group.evaluate("e => e.scrollWidth <= e.clientWidth")


@pytest.mark.parametrize("text", [
    '{"to":"eve","to":"ana"}', '{"amount":12345678901234567891}', '{"b":1.0}', '{"2":"x","1":"y"}',
])  # fmt: skip
def test_E11_arguments_that_a_table_would_change_are_shown_as_they_are(
    place, url, page_at, text
):
    name = f"raw-{sha256(text.encode()).hexdigest()[:8]}"
    asking_with(place, name, ev.Body(inline=text.encode()), text.encode())
    page = page_at(f"{url}/#/s/{name}")
    expect(card(page).get_by_role("group", name="Arguments")).to_have_text(text)


def test_E11_arguments_in_the_blob_store_are_shown_whole_or_not_allowed(place, url, page_at):
    args = json.dumps({"text": "x" * 100_000, "zz": "rm -rf ~"}).encode()
    blobs = BlobStore(place.settings.blobs_dir)
    asking_with(place, "in-a-blob", blobs.body(args, "application/json"), args)
    page = page_at(f"{url}/#/s/in-a-blob")
    expect(card(page).get_by_role("row").last).to_have_text("zzrm -rf ~")
    expect(allow(page)).to_be_disabled()
    gone = ev.BlobRef(sha256="0" * 64, bytes=100_000, media_type="application/json")
    asking_with(place, "lost-args", ev.Body(ref=gone), args)
    known = f"{url}/inspector/api/sessions/lost-args/moment"
    until("the gateway knows the session", lambda: httpx.get(known).status_code == 200)
    page.goto(f"{url}/#/s/lost-args")
    card(page).get_by_text("The arguments cannot be shown").wait_for()
    expect(allow(page)).to_have_count(0)
    page.keyboard.press("a")


def asking_with(place, name, body, args):
    """A session whose call of `run` with this content waits for approval."""
    _, played = place.open(name, "do it")
    played.call()
    played.start()
    digest = sha256(args).hexdigest()
    call = ev.ProposedCall(index=0, call_id="t1", name="run", args=body, args_sha256=digest)
    content = ev.Body(inline=json.dumps([text_block("I would run.")]).encode())
    played.append(ev.GenComplete(
        **played.place(), content=content, calls=(call,), stop_reason="tool_use",
        response_id="msg_1", model="claude-test", usage=USAGE,
    ), "models")
    played.invoke(approval="ask")


def test_E11_the_home_page_waits_as_well(place, url, page_at):
    played = proposing(place, "home-long", {"script": "\n".join(["echo a line"] * 120)})
    page = page_at(f"{url}/#/waiting", viewport=LOW)
    ask = page.get_by_role("article", name="Allow run? in do it").filter(has_text="echo a line")
    button = ask.get_by_role("button", name=re.compile("^Allow"))
    expect(button).to_be_disabled()
    ask.focus()
    page.keyboard.press("a")
    for _ in range(200):
        if button.is_enabled():
            break
        more = ask.get_by_role("button", name="Show the next part")
        more.evaluate_all("([button]) => button?.click()")
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert played.views.turn.calls[0].status == "asks"
    page.keyboard.press("a")
    played.wait(lambda views: views.turn.calls[0].status == "allowed")
