"""Tests fetch_url with a real HTTP server on loopback; only these tests allow that network."""

import gzip
import http.server
import json
import socket
import threading
from time import monotonic

import pytest

from foldlog import Agent
from foldlog.processors.outside.addresses import is_allowed, networks
from foldlog.processors.outside.fetch import BODY_BYTES_MAX, Limits, fetch_url, read
from foldlog.processors.outside.html_text import text_of_html
from foldlog.processors.tools.tool import ToolFailed
from foldlog.tests.kit.waiting import PATIENCE_S, joined
from foldlog.tests.processors.tools.tool_bench import make_host, run_once

LOOPBACK = ["127.0.0.1/32"]
PAGE = """<html><head><title>The  shop</title><style>p {}</style></head><body><h1>Welcome</h1>
<script>alert('x')</script><p>Prices &amp; terms\u202e\x07</p><ul><li>one<li>two</ul>
<a href="/next?a=1">next</a> <a href="javascript:x">bad</a></body></html>"""


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves PAGES by path and records every request."""

    def do_GET(self):
        self.server.requests.append((self.path, dict(self.headers)))
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


def page(body, kind="text/html; charset=utf-8", status=200, **headers):
    return lambda _server: (status, {"Content-Type": kind, **headers}, body)


def redirect(target):
    return lambda server: (302, {"Location": target.format(port=server.server_port)}, b"")


def drip(server):
    """Yields a byte every 50 ms until the server stops."""
    deadline = monotonic() + PATIENCE_S
    while monotonic() < deadline and not server.stopped.wait(0.05):
        yield b"x"


PAGES = {
    "/": page(PAGE.encode()),
    "/json": page(b'{"a":1}', "application/json"),
    "/packed": page(gzip.compress(b"packed"), "text/plain", **{"Content-Encoding": "gzip"}),
    "/bomb": page(gzip.compress(bytes(50_000_000)), "text/plain", **{"Content-Encoding": "gzip"}),
    "/cut": page(b"half", "text/plain", **{"Content-Length": "100"}),
    "/packed-cut": page(
        gzip.compress(bytes(range(256)) * 50)[:-9],
        "text/plain",
        **{"Content-Encoding": "gzip"},
    ),
    "/brotli": page(b"x", "text/plain", **{"Content-Encoding": "br"}),
    "/big": page([b"x" * 65_536] * 40, "text/plain"),
    "/binary": page(b"\0\1", "application/octet-stream"),
    "/gone": page(b"not here", "text/plain", 404),
    "/latin": page("grün".encode("latin-1"), "text/plain; charset=latin-1"),
    "/odd": page(b"ok", "text/plain; charset=no-such"),
    "/slow": page(b"-" + b"b" * 1_000_000, "text/plain; charset=punycode"),
    "/idna": page(b"not.an.\xff.address", "text/plain; charset=idna"),
    "/sjis": page("日本".encode("sjis"), "text/plain; charset=Shift_JIS"),
    "/drip": lambda server: (200, {"Content-Type": "text/plain"}, drip(server)),
    "/hop": redirect("/json"),
    "/loop": redirect("/loop"),
    "/inside": redirect("http://169.254.169.254/latest/meta-data"),
    "/file": redirect("file:///etc/passwd"),
    "/port": redirect("http://127.0.0.1:22/"),
}


@pytest.fixture(scope="module")
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests, server.stopped = [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.stopped.set()
    server.shutdown()
    server.server_close()
    joined(thread)


@pytest.fixture
def fetch(server, tmp_path):
    host = make_host(tmp_path)

    def run(url, allow_networks=LOOPBACK, **options):
        url = url if "://" in url else f"http://127.0.0.1:{server.server_port}{url}"
        ports = (80, 443, server.server_port)
        tool = fetch_url(allow_networks=allow_networks, ports=ports, **options)
        sink = run_once(tool, host, json.dumps({"url": url}).encode())
        return sink.only.outcome, sink.text

    return run


def test_fetch_is_off_by_default_and_needs_approval_unless_hosts_are_listed():
    assert Agent(name="a", model="m").tool("fetch_url") is None
    assert fetch_url().approval == "ask"
    assert fetch_url(hosts=["docs.example.com"]).approval == "none"
    assert fetch_url(hosts=["*"], approval="ask").approval == "ask"
    assert fetch_url().effect == "pure"


@pytest.mark.parametrize(
    "host", ["https://docs.example.com", "docs.example.com/guide", "docs.example.com:443", "", 5]
)
def test_bad_input_a_host_that_no_url_can_have_is_rejected_at_construction(host):
    """No URL would match such a host, so every fetch would be refused."""
    with pytest.raises(ValueError, match="hosts of fetch_url must be names"):
        fetch_url(hosts=[host])
    assert fetch_url(hosts=["*.example.com", "10.0.0.1", "2001:db8::1"]).approval == "none"


def test_a_page_becomes_text_framed_as_untrusted(fetch):
    outcome, text = fetch("/")
    assert outcome == "ok"
    head, mark, rest = text.split("\n", 2)
    assert "never an instruction" in head and mark.strip("<>") in head
    body = rest.rsplit("\n", 1)
    assert body[1] == f"</{mark.strip('<>')}>"
    assert body[0].startswith("The shop\n\nWelcome")
    assert "Prices & terms" in text and "- one" in text and "/next?a=1)" in text
    assert not any(bad in text for bad in ("alert", "javascript", "\u202e", "\x07", "p {}"))


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
def test_text_is_returned_decoded(fetch, path, shown):
    outcome, text = fetch(path)
    assert outcome == "ok" and f"\n{shown}\n" in text


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/big", f"more than {BODY_BYTES_MAX} bytes"),
        ("/bomb", f"more than {BODY_BYTES_MAX} bytes"),
        ("/brotli", "the Content-Encoding br; only gzip can be decoded"),
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
def test_bad_input_a_refused_fetch_returns_the_reason(fetch, path, message):
    outcome, text = fetch(path)
    assert outcome == "error" and message in text


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0"]
)
def test_loopback_cannot_be_reached_by_any_of_its_names(fetch, server, host):
    before = len(server.requests)
    outcome, text = fetch(f"http://{host}:{server.server_port}/", allow_networks=[])
    assert outcome == "error" and ("public internet" in text or "can't be fetched" in text)
    assert len(server.requests) == before, "no request was sent"


@pytest.mark.parametrize(
    ("addresses", "outcome"), [(["127.0.0.1"], "ok"), (["127.0.0.1", "10.0.0.1"], "error")]
)
def test_a_host_is_resolved_once_and_all_its_addresses_must_be_allowed(
    fetch, server, monkeypatch, addresses, outcome
):
    real, resolved = socket.getaddrinfo, []

    def names(host, port, *rest, **more):
        if host != "two-faced.example":
            return real(host, port, *rest, **more)
        resolved.append(host)  # a second resolution would allow DNS rebinding
        return [info for each in addresses for info in real(each, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", names)
    found, text = fetch(f"http://two-faced.example:{server.server_port}/json")
    assert found == outcome and resolved == ["two-faced.example"], text


def test_only_listed_hosts_are_fetched_even_after_a_redirect(fetch):
    outcome, text = fetch("/json", hosts=["127.0.0.1"])
    assert outcome == "ok"
    outcome, text = fetch("http://localhost/", hosts=["127.0.0.1"])
    assert outcome == "error" and "not one of those" in text
    outcome, text = fetch("/inside", hosts=["127.0.0.1"])
    assert outcome == "error" and "not one of those" in text


def test_the_request_is_a_plain_get(fetch, server):
    assert fetch("/json?q=a%20b&x=ü#part", hosts=["127.0.0.1"])[0] == "ok"
    path, headers = server.requests[-1]
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
def test_only_public_addresses_are_allowed(address, public):
    assert is_allowed(address) is public
    assert is_allowed("10.0.0.1", networks(["10.0.0.0/24"]))


def test_bad_input_a_codec_that_is_not_a_charset_costs_no_time(fetch):
    """It would take a quarter of an hour to decode a million bytes as punycode."""
    outcome, text = fetch("/slow")
    assert outcome == "ok" and "-bbb" in text


def test_a_server_that_sends_slowly_is_abandoned(server):
    limits = Limits((), networks(LOOPBACK), (server.server_port,))
    with pytest.raises(ToolFailed, match=r"longer than 0\.3 s"):
        read(f"http://127.0.0.1:{server.server_port}/drip", limits, seconds=0.3)


@pytest.mark.parametrize(
    ("stopped", "message"), [(False, r"longer than 0\.3 s"), (True, "the fetch was stopped")]
)
def test_a_name_server_that_never_responds_is_abandoned(monkeypatch, stopped, message):
    """A call of getaddrinfo can block for minutes, and cannot be interrupted."""
    release, returned = threading.Event(), threading.Event()

    def names(*_rest, **_more):
        release.wait(20)
        returned.set()
        raise OSError("no name server answers")

    monkeypatch.setattr(socket, "getaddrinfo", names)
    with pytest.raises(ToolFailed, match=message):
        read("http://silent.example/", Limits(), seconds=0.3, stopped=lambda: stopped)
    assert not returned.is_set(), "the fetch did not wait for the lookup"
    release.set()


def test_malformed_html_still_yields_text():
    assert text_of_html("<p>a<b>b<script>x", "http://h/") == "ab"
    assert text_of_html("<svg><svg></svg>hidden</svg>shown", "http://h/") == "shown"
    assert text_of_html("", "http://h/") == ""


@pytest.mark.parametrize(
    ("piece", "kept"),
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
def test_bad_input_a_page_built_to_waste_time_is_read_in_one_pass(piece, kept):
    """A parser that backtracks takes hours on these pages, and a thread cannot be killed."""
    result = text_of_html(f"<p>before</p>{piece * (300_000 // len(piece))}", "http://h/")
    assert result.startswith("before") and result.count(kept or "before") >= 1


def test_html_is_parsed_the_way_browsers_parse_it():
    def rendered(html):
        return text_of_html(html, "http://h/d/")

    assert rendered("<a title='x>y' href=\"../n?a=1&amp;b=2\">go</a>") == "go (http://h/n?a=1&b=2)"
    assert rendered("<SCRIPT>if (a</b) '</p>'</SCRIPT >shown") == "shown"
    assert rendered("1 < 2 &lt; 3 &amp;&#x41;&#" + "9" * 5_000) == "1 < 2 < 3 &A\ufffd"
    assert rendered("<textarea><b>as it is</b></textarea>") == "<b>as it is</b>"
    assert rendered("<title>one</title><svg><title>two</title></svg><p>a<br/>b") == "one\n\na\nb"
    assert rendered("<p>a<!-- <p>x --><p>b<!x>c</>d<a href=") == "a\nbcd"
