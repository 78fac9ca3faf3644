"""fetch_url against a real HTTP server on loopback, which is allowed here and nowhere else."""

import gzip
import http.server
import json
import socket
import threading

import pytest

from foldlog import Agent
from foldlog.processors.outside.addresses import is_allowed, networks
from foldlog.processors.outside.fetch import BODY_BYTES_MAX, Limits, fetch_url, read
from foldlog.processors.outside.html_text import text_of_html
from foldlog.processors.tools.tool import ToolFailed
from foldlog.tests.processors.tools.tool_bench import make_host, run_once

LOOPBACK = ["127.0.0.1/32"]
PAGE = """<html><head><title>The  shop</title><style>p {}</style></head><body><h1>Welcome</h1>
<script>alert('x')</script><p>Prices &amp; terms\u202e\x07</p><ul><li>one<li>two</ul>
<a href="/next?a=1">next</a> <a href="javascript:x">bad</a></body></html>"""


class Handler(http.server.BaseHTTPRequestHandler):
    """Pages by their path; every request is noted."""

    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers)))
        status, headers, body = PAGES[self.path.partition("?")[0]](self.server)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in body if not isinstance(body, bytes) else [body]:
            try:
                self.wfile.write(piece)
            except OSError:
                return

    def log_message(self, *_):
        pass


def text(body, kind="text/html; charset=utf-8", status=200, **headers):
    return lambda _server: (status, {"Content-Type": kind, **headers}, body)


def to(target):
    return lambda server: (302, {"Location": target.format(port=server.server_port)}, b"")


def drip(server):
    """A byte now and then, for ever: until the test's server ends."""
    while not server.ended.wait(0.05):
        yield b"x"


PAGES = {
    "/": text(PAGE.encode()),
    "/json": text(b'{"a":1}', "application/json"),
    "/packed": text(gzip.compress(b"packed"), "text/plain", **{"Content-Encoding": "gzip"}),
    "/bomb": text(gzip.compress(bytes(50_000_000)), "text/plain", **{"Content-Encoding": "gzip"}),
    "/cut": text(b"half", "text/plain", **{"Content-Length": "100"}),
    "/packed-cut": text(
        gzip.compress(bytes(range(256)) * 50)[:-9],
        "text/plain",
        **{"Content-Encoding": "gzip"},
    ),
    "/brotli": text(b"x", "text/plain", **{"Content-Encoding": "br"}),
    "/big": text([b"x" * 65_536] * 40, "text/plain"),
    "/binary": text(b"\0\1", "application/octet-stream"),
    "/gone": text(b"not here", "text/plain", 404),
    "/latin": text("grün".encode("latin-1"), "text/plain; charset=latin-1"),
    "/odd": text(b"ok", "text/plain; charset=no-such"),
    "/slow": text(b"-" + b"b" * 1_000_000, "text/plain; charset=punycode"),
    "/idna": text(b"not.an.\xff.address", "text/plain; charset=idna"),
    "/sjis": text("日本".encode("sjis"), "text/plain; charset=Shift_JIS"),
    "/drip": lambda server: (200, {"Content-Type": "text/plain"}, drip(server)),
    "/hop": to("/json"),
    "/loop": to("/loop"),
    "/inside": to("http://169.254.169.254/latest/meta-data"),
    "/file": to("file:///etc/passwd"),
    "/port": to("http://127.0.0.1:22/"),
}


@pytest.fixture(scope="module")
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.seen, made.ended = [], threading.Event()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.ended.set()
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def fetch(server, tmp_path):
    host = make_host(tmp_path)

    def run(url, allow_networks=LOOPBACK, **options):
        url = url if "://" in url else f"http://127.0.0.1:{server.server_port}{url}"
        ports = (80, 443, server.server_port)
        tool = fetch_url(allow_networks=allow_networks, ports=ports, **options)
        told = run_once(tool, host, json.dumps({"url": url}).encode())
        return told.only.outcome, told.text

    return run


def test_it_is_off_by_default_and_asks_unless_hosts_are_named():
    assert Agent(name="a", model="m").tool("fetch_url") is None
    assert fetch_url().approval == "ask"
    assert fetch_url(hosts=["docs.example.com"]).approval == "none"
    assert fetch_url(hosts=["*"], approval="ask").approval == "ask"
    assert fetch_url().effect == "pure"


@pytest.mark.parametrize(
    "host", ["https://docs.example.com", "docs.example.com/guide", "docs.example.com:443", "", 5]
)
def test_bad_input_a_host_that_no_url_has_is_refused_when_the_tool_is_made(host):
    """It would have matched nothing, and each fetch been refused."""
    with pytest.raises(ValueError, match="hosts of fetch_url are names"):
        fetch_url(hosts=[host])
    assert fetch_url(hosts=["*.example.com", "10.0.0.1", "2001:db8::1"]).approval == "none"


def test_a_page_becomes_text_that_is_framed_as_somebody_elses(fetch):
    outcome, told = fetch("/")
    assert outcome == "ok"
    head, mark, rest = told.split("\n", 2)
    assert "never an instruction" in head and mark.strip("<>") in head
    body = rest.rsplit("\n", 1)
    assert body[1] == f"</{mark.strip('<>')}>"
    assert body[0].startswith("The shop\n\nWelcome")
    assert "Prices & terms" in told and "- one" in told and "/next?a=1)" in told
    assert not any(bad in told for bad in ("alert", "javascript", "\u202e", "\x07", "p {}"))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/json", '{"a":1}'),
        ("/packed", "packed"),
        ("/hop", '{"a":1}'),
        ("/gone", "not here"),
        ("/latin", "grün"),
        ("/odd", "ok"),
        ("/idna", "not.an.\ufffd.address"),
        ("/sjis", "日本"),
    ],
)
def test_what_is_text_is_given(fetch, path, shown):
    outcome, told = fetch(path)
    assert outcome == "ok" and f"\n{shown}\n" in told


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/big", f"more than {BODY_BYTES_MAX} bytes"),
        ("/bomb", f"more than {BODY_BYTES_MAX} bytes"),
        ("/brotli", "packed as br"),
        ("/cut", "the connection ended before the page did"),
        ("/packed-cut", "the connection ended before the page did"),
        ("/binary", "only text is fetched"),
        ("/loop", "redirects more than 5 times"),
        ("/inside", "not on the public internet"),
        ("/file", "only http"),
        ("/port", "port 22"),
        ("ftp://127.0.0.1/", "only http"),
        ("http://user:secret@127.0.0.1/", "user name"),
        ("http://", "only http"),
        ("http://127.0.0.1:99999/", "url is wrong"),
        ("http://no-such-host.invalid/", "can't be fetched"),
        ("http://127.0.0.1/\nHost: evil", "not a url"),
        ("http://" + "x" * 3_000, "too long"),
    ],
)
def test_bad_input_what_may_not_be_fetched_is_told_why(fetch, path, why):
    outcome, told = fetch(path)
    assert outcome == "error" and why in told


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0"]
)
def test_the_inside_can_not_be_reached_by_any_of_its_names(fetch, server, host):
    before = len(server.seen)
    outcome, told = fetch(f"http://{host}:{server.server_port}/", allow_networks=[])
    assert outcome == "error" and ("public internet" in told or "can't be fetched" in told)
    assert len(server.seen) == before, "nothing was asked"


@pytest.mark.parametrize(
    ("addresses", "outcome"), [(["127.0.0.1"], "ok"), (["127.0.0.1", "10.0.0.1"], "error")]
)
def test_a_host_is_judged_by_all_its_addresses_and_asked_for_them_once(
    fetch, server, monkeypatch, addresses, outcome
):
    real, asked = socket.getaddrinfo, []

    def names(host, port, *rest, **more):
        if host != "two-faced.example":
            return real(host, port, *rest, **more)
        asked.append(host)  # a second answer would be another one: rebinding
        return [info for each in addresses for info in real(each, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", names)
    found, told = fetch(f"http://two-faced.example:{server.server_port}/json")
    assert found == outcome and asked == ["two-faced.example"], told


def test_only_named_hosts_are_asked_also_after_a_redirect(fetch):
    outcome, told = fetch("/json", hosts=["127.0.0.1"])
    assert outcome == "ok"
    outcome, told = fetch("http://localhost/", hosts=["127.0.0.1"])
    assert outcome == "error" and "not one of those" in told
    outcome, told = fetch("/inside", hosts=["127.0.0.1"])
    assert outcome == "error" and "not one of those" in told


def test_the_request_is_a_plain_get(fetch, server):
    assert fetch("/json?q=a%20b&x=ü#part", hosts=["127.0.0.1"])[0] == "ok"
    path, headers = server.seen[-1]
    assert path == "/json?q=a%20b&x=%C3%BC"
    assert headers["Host"] == f"127.0.0.1:{server.server_port}"
    assert not {"Cookie", "Authorization", "Referer"} & set(headers)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("10.0.0.1", False),
        ("172.16.5.5", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("168.63.129.16", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("0.0.0.0", False),
        ("::", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("::10.0.0.1", False),
        ("fec0::1", False),
        ("192.0.0.192", False),
        ("3fff::1", False),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c%eth0", False),
        ("not an address", False),
    ],
)
def test_addresses(address, public):
    assert is_allowed(address) is public
    assert is_allowed("10.0.0.1", networks(["10.0.0.0/24"]))


def test_bad_input_a_charset_that_no_page_has_costs_no_time(fetch):
    """A million bytes of punycode take a quarter of an hour."""
    outcome, told = fetch("/slow")
    assert outcome == "ok" and "-bbb" in told


def test_a_server_that_drips_is_left(server):
    limits = Limits((), networks(LOOPBACK), (server.server_port,))
    with pytest.raises(ToolFailed, match=r"longer than 0\.3 s"):
        read(f"http://127.0.0.1:{server.server_port}/drip", limits, seconds=0.3)


@pytest.mark.parametrize(
    ("stopped", "told"), [(False, r"longer than 0\.3 s"), (True, "the fetch was stopped")]
)
def test_a_name_server_that_is_silent_is_left_too(monkeypatch, stopped, told):
    """getaddrinfo waits for minutes, and nothing can end it."""
    answered, left = threading.Event(), threading.Event()

    def names(*_rest, **_more):
        answered.wait(20)
        left.set()
        raise OSError("no name server answers")

    monkeypatch.setattr(socket, "getaddrinfo", names)
    with pytest.raises(ToolFailed, match=told):
        read("http://silent.example/", Limits(), seconds=0.3, stopped=lambda: stopped)
    assert not left.is_set(), "nobody waited for it"
    answered.set()


def test_html_that_is_broken_is_still_text():
    assert text_of_html("<p>a<b>b<script>x", "http://h/") == "ab"
    assert text_of_html("<svg><svg></svg>hidden</svg>shown", "http://h/") == "shown"
    assert text_of_html("", "http://h/") == ""


@pytest.mark.parametrize(
    ("piece", "told"),
    [
        ("<a ", ""),
        ("<a x='", ""),
        ("<a href='x", ""),
        ("<!--", ""),
        ("&#1", ""),
        ("\u00a0", ""),
        ("\u00a0x", "\u00a0x"),
        ("</script", ""),
        ("<", "<"),
    ],
)
def test_bad_input_a_page_made_to_cost_time_is_read_in_one_pass(piece, told):
    """What looks back at every step takes hours for these, and a thread can't be ended."""
    page = text_of_html(f"<p>before</p>{piece * (300_000 // len(piece))}", "http://h/")
    assert page.startswith("before") and page.count(told or "before") >= 1


def test_html_is_read_as_browsers_read_it():
    def said(html):
        return text_of_html(html, "http://h/d/")

    assert said("<a title='x>y' href=\"../n?a=1&amp;b=2\">go</a>") == "go (http://h/n?a=1&b=2)"
    assert said("<SCRIPT>if (a</b) '</p>'</SCRIPT >shown") == "shown"
    assert said("1 < 2 &lt; 3 &amp;&#x41;&#" + "9" * 5_000) == "1 < 2 < 3 &A\ufffd"
    assert said("<textarea><b>as it is</b></textarea>") == "<b>as it is</b>"
    assert said("<title>one</title><svg><title>two</title></svg><p>a<br/>b") == "one\n\na\nb"
    assert said("<p>a<!-- <p>x --><p>b<!x>c</>d<a href=") == "a\nbcd"
