"""Every state that pictures.py photographs exists, and fits a phone."""

import pytest

from foldlog.tests.kit.browser_fixture import PHONE
from foldlog.tests.web.gateway.served import SECRET
from foldlog.tests.web.inspector.pictures import (
    LOST,
    REFUSED,
    SIGN_IN,
    playing,
    shown,
    unplayed,
)

UNREADABLE = """(width) => {
  const cut = (e) => {
    const { left, right, height } = e.getBoundingClientRect();
    return left < 0 || right > width || height < 12 || getComputedStyle(e).fontSize === "0px";
  };
  const heads = [...document.querySelectorAll("h1, .status, .gone, #message, .signin p")]
    .filter((e) => e.offsetParent !== null && cut(e)).map((e) => e.outerHTML.slice(0, 80));
  const [title] = document.querySelectorAll(".top h1");
  if (title && title.getBoundingClientRect().width < 250) heads.push("the title has no room");
  for (const notice of document.querySelectorAll(".gone p, .no-answer p")) {
    if (notice.getBoundingClientRect().width < 250) heads.push("a notice has no room");
  }
  const over = document.scrollingElement.scrollWidth - width; // a phone zooms out
  return over > 0 ? [...heads, `${over} px too wide`] : heads;
}"""
"""What a phone cannot show: a title, a status, a notice, the composer, or a page that is too
wide."""


@pytest.fixture
def phone(page_at):
    page = page_at("about:blank", viewport=PHONE, touch=True)
    yield page
    page.goto("about:blank")
    page.complaints.clear()  # the states with errors are logged by the browser


def unreadable(phone):
    return phone.evaluate(UNREADABLE, PHONE["width"])


def test_every_state_of_the_pictures_is_shown_and_readable_on_a_phone(phone, tmp_path):
    with playing(tmp_path, repeated=0) as found:
        for shot in found.states:
            shown(phone, found.url, shot)
            assert unreadable(phone) == [], shot.name
        pages = [phone, phone.context.new_page()]
        for page, lost in zip(pages, LOST, strict=True):
            shown(page, found.url, lost._replace(shows="refund"))
    for page, lost in zip(pages, LOST, strict=True):
        page.get_by_text(lost.shows).first.wait_for()
        assert unreadable(page) == [], lost.name


def test_the_sign_in_has_a_logo_and_a_sentence_and_is_readable_on_a_phone(phone, tmp_path):
    with unplayed(tmp_path, SECRET) as url:
        for shot in (SIGN_IN, REFUSED):
            shown(phone, url, shot)
            phone.locator(".signin .mark").wait_for()
            assert unreadable(phone) == [], shot.name
