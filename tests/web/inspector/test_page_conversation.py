"""The conversation in a browser: markdown as elements, calls as tables, attempts and failures in
one line, drafts that survive a reload."""

import re

import pytest
from playwright.sync_api import expect

from foldlog.tests.kit.played import memory_log, settings_in
from foldlog.tests.schemas.test_attachments import png
from foldlog.tests.web.gateway.served import SECRET, served
from foldlog.tests.web.inspector.sessions import Place, Timed
from foldlog.tests.web.inspector.shown import conversation
from foldlog.web.gateway.access import token_for

ANSWER = """One item, **two days** ago, see `order_id`:

| Item | Price |
|---|---|
| Lamp, *brass* | 129 |

1. check
2. refund
   - to the card

> as it says

```python
print("<b>1 & 2</b>")
```
A [link](https://example.com/x) and ![picture](x.png), snake_case_name, 2*3*4 and
<i>tags</i> and &lt; stay text, 这是**重点**内容."""
IMPORTS = """
  const [{ Markdown }, { html, render }] = await Promise.all(
    ["markdown", "lib"].map((name) => import(`/inspector/static/${name}.js`)));
  const draw = (text, box) => (render(html`<${Markdown} text=${text} />`, box), box.firstChild);
  const box = document.createElement("div");
"""
SHOWN = f"async (text) => {{{IMPORTS} return draw(text, box).innerHTML; }}"
GROWS = f"""async (text) => {{{IMPORTS}
  const first = draw("# One", box).firstChild;
  for (let n = 1; n <= text.length; n += 1) draw(text.slice(0, n), box);
  const whole = draw(text, document.createElement("div"));
  return [box.firstChild.innerHTML === whole.innerHTML, box.firstChild.firstChild === first];
}}"""
TREE = """async (value) => {
  const [{ Values }, { html, render }] = await Promise.all(
    ["args", "lib"].map((name) => import(`/inspector/static/${name}.js`)));
  const box = document.createElement("div");
  render(html`<${Values} value=${value} label="Result" />`, box);
  const texts = (what) => [...box.querySelectorAll(what)].map((one) => one.textContent.trim());
  return [texts("summary"), texts("thead th"), texts(".rows td"), box.textContent];
}"""


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    timed = Timed(tmp_path_factory.mktemp("timed"))
    timed.played.call()
    timed.played.start()
    for _ in range(2):
        timed.after(100).fail()
        timed.after(8000).start()
    timed.after(50).chunk("The lamp")
    timed.after(12_000).resume()
    timed.played.complete(ANSWER, [("get_order", {"order_id": 17, "with": ["items", "price"]})])
    timed.played.invoke()
    timed.played.tool_start()
    timed.after(84).tool_result('{"order": 17, "price": "129.00"}')
    timed.played.answer("Done.")
    timed.sessions.say("s1", "And now?", message_id="m2")
    timed.played.call()
    timed.played.start()
    timed.after(10).fail()
    timed.after(10).start()
    timed.after(10).fail(permanent=True)
    timed.played.end("failed")
    return timed


@pytest.fixture
def page(timed_url, page_at):
    page = page_at(timed_url)
    page.get_by_text("Live", exact=True).wait_for()
    page.get_by_role("region", name="Turn 2 failed").wait_for()
    return page


def test_markdown_becomes_elements_of_a_fixed_list_and_nothing_else(page):
    answer = conversation(page).locator(".md").filter(has_text="One item")
    expect(answer.locator("b")).to_have_text(["two days", "重点"])
    expect(answer.locator("th")).to_have_text(["Item", "Price"])
    expect(answer.locator("td em")).to_have_text("brass")
    expect(answer.locator("ol > li")).to_have_count(2)
    expect(answer.locator("ol ul > li")).to_have_text("to the card")
    expect(answer.locator("blockquote")).to_have_text("as it says")
    expect(answer.locator("pre")).to_have_text('print("<b>1 & 2</b>")')
    for text in ("[link](https://example.com/x)", "![picture](x.png)", "snake_case_name", "2*3*4",
                 "<i>tags</i>", "&lt;"):
        assert text in answer.inner_text()
    expect(answer.locator("a, img, i")).to_have_count(0)


@pytest.mark.parametrize("end", [
    "para\n#17", "- a\n\n  b\n***c***", "a\n```x`y", ">" * 500,
    "# a\n\xa0b\n| x |\n|--x\n\n- c\n1. d\r\n\r\n    e\n\nf",
])
def test_an_answer_that_grows_is_drawn_as_if_it_came_at_once(page, end):
    assert page.evaluate(GROWS, f"# One\n\n{ANSWER}\n\n{end}") == [True, True]


@pytest.mark.parametrize("text", [
    ">" * 300 + " deep", "> - " * 99 + "deep", "".join(f"{'  ' * n}- deep\n" for n in range(60)),
    "| a |\n|---|\n| b | deep |", "[x]: https://x.y 'deep'", "a\n===\ndeep",
])
def test_nothing_that_a_model_wrote_is_hidden(page, text):
    shown = page.evaluate(SHOWN, f"Before.\n\n{text}")
    assert "deep" in shown and shown.startswith("<p>Before.</p>")


def test_a_call_is_one_line_with_its_duration_and_a_table_on_demand(page):
    call = conversation(page).locator("details.tool").filter(has_text="get_order")
    expect(call.locator("summary")).to_contain_text("84 ms")
    expect(call.locator("table")).to_have_count(0)
    expect(call).not_to_contain_text("1.1.0")
    call.locator("summary").click()
    expect(call.get_by_label("Arguments").locator("th")).to_have_text(["order_id", "with"])
    expect(call.get_by_label("Arguments").locator("td")).to_have_text(["17", '["items","price"]'])
    expect(call.get_by_label("Result").locator("td")).to_have_text(["17", "129.00"])
    expect(call).to_contain_text("call 1.1.0")


def test_nested_values_are_a_tree_and_like_objects_a_table(page):
    lines = [{"sku": f"lamp {n} of brass, 40 cm", "count": n} for n in (1, 2)]
    address = {"city": "Bern", "street": "the street of the lamps " * 3}
    branches, heads, cells, text = page.evaluate(
        TREE, {"order": 17, "lines": lines, "to": {"home": address, "notes": ["x" * 40] * 2}}
    )
    assert branches == ["2 items", "2 fields", "2 fields", "2 items"]
    assert (heads, cells) == (["sku", "count"], [str(v) for line in lines for v in line.values()])
    assert address["street"] in text and "{" not in text
    branches, *_ = page.evaluate(TREE, [{"a": {"b": [{"c": "x" * 70}]}}, 2])
    assert branches == ["1 field"] * 2 + ["1 item", "1 field"]


def test_a_block_of_code_is_copied_as_it_is(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = conversation(page).get_by_label("Code python")
    code.hover()
    page.get_by_role("button", name="Copy this code").click()
    expect(conversation(page).get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == 'print("<b>1 & 2</b>")'


def test_the_attempts_of_a_step_are_one_line(page):
    folded = conversation(page).locator("details.lost")
    expect(folded).to_have_count(1)
    expect(folded.locator("summary")).to_contain_text(
        "The model was overloaded, twice. Worker w1 was lost. Worker w2 took over 12 s later."
    )
    folded.locator("summary").click()
    expect(folded.locator("tr")).to_have_count(3)


def test_a_failed_turn_is_one_sentence_and_can_be_tried_again(page, timed):
    failed = page.get_by_role("region", name="Turn 2 failed")
    expect(failed.locator("h3")).to_have_text("The model was overloaded, twice")
    expect(page.locator("header .status")).to_have_text("Failed")
    expect(failed.locator("tr").first).not_to_be_visible()
    failed.get_by_text("The 2 attempts").click()
    expect(failed.locator("tr").first).to_be_visible()
    failed.get_by_role("button", name="Try again").click()
    timed.played.wait(lambda views: views.turn.number == 3)
    expect(conversation(page).get_by_text("And now?", exact=True)).to_have_count(2)
    expect(failed.get_by_role("button", name="Try again")).to_have_count(0)
    timed.played.answer("Now it works.")
    expect(page.locator("header .status")).to_have_text("Done")


def test_a_draft_survives_a_reload_and_nothing_can_be_said_in_the_past(page, timed):
    page.get_by_label("Message", exact=True).fill("and tell her")
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_have_value("and tell her")
    page.locator("h1").click()
    past = page.get_by_text("This is the past, so nothing can be said here.")
    # Keys have no effect until the page has read the events again.
    for _ in range(400):
        if past.is_visible():
            break
        page.keyboard.press("Home")
        page.wait_for_timeout(50)
    past.wait_for()
    expect(page.get_by_label("Message", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("^Try again"))).to_have_count(0)


def test_what_waits_is_reached_from_the_past_and_the_keys_a_and_d_decide_it(page, timed):
    timed.sessions.say("s1", "charge it", message_id="m9")
    timed.played.propose("I would charge.", ("charge", {"amount": 9}))
    timed.played.invoke(approval="ask")
    ask = page.get_by_role("region", name="charge waits for approval")
    ask.wait_for()
    page.locator("h1").click()
    page.keyboard.press("a")
    page.keyboard.press("Home")
    page.get_by_text("This is the past").wait_for()
    page.get_by_role("button", name="Go to what waits").click()
    expect(ask).to_be_focused()
    expect(ask.get_by_role("button", name="Deny")).to_be_in_viewport()
    conversation(page).evaluate("box => { box.scrollTop = 0 }")
    page.locator("h1").click()
    page.keyboard.press("g")
    expect(ask).to_be_focused()
    expect(ask.get_by_role("button", name="Deny")).to_be_in_viewport()
    page.keyboard.press("d")
    timed.played.wait(lambda views: views.turn.calls[0].decision == "deny")


@pytest.fixture
def pictured(tmp_path):
    """A session with an attached image, and the installation."""
    place = Place(memory_log(threaded=True), settings_in(tmp_path))
    image = tmp_path / "lamp.png"
    image.write_bytes(png(60, 40))
    sessions, played = place.open("pictured")
    sessions.say("pictured", "It arrived <b>broken</b>.", message_id="m1", attach=[image])
    played.answer("I see a lamp.")
    return place


def test_an_attached_image_is_shown_also_where_a_token_is_needed(pictured, tmp_path, page_at):
    with served(pictured.log, pictured.settings, tmp_path / "gateway", secret=SECRET) as running:
        page = page_at(f"{running.url}/#/s/pictured")
        page.get_by_label("Token").fill(token_for("ana", SECRET))
        page.get_by_role("button", name="Sign in").click()
        image = conversation(page).get_by_role("img", name="Attached image, image/png")
        image.wait_for()
        assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 60
        assert image.get_attribute("src").startswith("blob:")
        conversation(page).get_by_role("button", name="Show the image in full size").click()
        conversation(page).get_by_role("button", name="Show the image smaller").wait_for()
        expect(page.locator("h1")).to_have_text("It arrived <b>broken</b>.")
        page.goto("about:blank")
        own = f"request to blob:{running.url}/"  # the image itself, made by the page
        page.complaints[:] = [
            text for text in page.complaints if "401" not in text and not text.startswith(own)
        ]


def test_an_image_that_is_lost_is_named_with_the_reason(pictured, tmp_path, page_at):
    for blob in pictured.settings.blobs_dir.rglob("*"):
        if blob.is_file():
            blob.unlink()
    with served(pictured.log, pictured.settings, tmp_path / "gateway") as running:
        page = page_at(f"{running.url}/#/s/pictured")
        lost = conversation(page).get_by_role("figure")
        expect(lost.locator(".bad")).not_to_be_empty()
        expect(lost).to_contain_text("image/png")
        expect(lost.get_by_role("img")).to_have_count(0)
        page.goto("about:blank")
    page.complaints.clear()  # the browser logs the refused request
