"""Every state that pictures.py photographs exists, and fits a phone."""

import pytest

from foldlog.tests.kit.browser_fixture import PHONE
from foldlog.tests.web.gateway.served import SECRET
from foldlog.tests.web.inspector.pictures import (
    FIRST,
    LOST,
    REFUSED,
    SIGN_IN,
    playing,
    shown,
    unplayed,
)

UNREADABLE = """() => {
  const cut = (e) => {
    const { left, right, height } = e.getBoundingClientRect();
    return left < 0 || right > innerWidth || height < 12 || getComputedStyle(e).fontSize === "0px";
  };
  const heads = [...document.querySelectorAll("h1, .status, .gone, #message, .signin p")]
    .filter((e) => e.offsetParent !== null && cut(e)).map((e) => e.outerHTML.slice(0, 80));
  const [title] = document.querySelectorAll(".top h1");
  if (title && title.getBoundingClientRect().width < 250) heads.push("the title has no room");
  const over = document.scrollingElement.scrollWidth - innerWidth;
  return over > 0 ? [...heads, `${over} px too wide`] : heads;
}"""
"""What a phone cannot show: a title, a status, a notice, the composer, or a page that is too
wide."""


@pytest.fixture
def phone(page_at):
    page = page_at("about:blank", viewport=PHONE, touch=True)
    page.complaints.clear()
    yield page
    page.goto("about:blank")
    page.complaints.clear()  # the states with errors are logged by the browser


def test_every_state_of_the_pictures_is_shown_and_readable_on_a_phone(phone, tmp_path):
    with playing(tmp_path, repeated=0) as found:
        for shot in found.states:
            shown(phone, found.url, shot)
            assert phone.evaluate(UNREADABLE) == [], shot.name
        lost = LOST[1]
        shown(phone, found.url, lost._replace(shows="refund"))
    phone.get_by_text(lost.shows).first.wait_for()
    assert phone.evaluate(UNREADABLE) == []


def test_the_first_visit_and_the_sign_in_are_readable_on_a_phone(phone, tmp_path):
    for shots, secret in (([FIRST], None), ([SIGN_IN, REFUSED], SECRET)):
        (tmp_path / str(secret)).mkdir()
        with unplayed(tmp_path / str(secret), secret) as url:
            for shot in shots:
                shown(phone, url, shot)
                assert phone.evaluate(UNREADABLE) == [], shot.name
            if secret:
                phone.locator(".signin .mark").wait_for()
