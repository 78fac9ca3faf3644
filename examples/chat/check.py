"""Checks a deployed chat page: check.py PAGE [GATEWAY [SECOND_GATEWAY]], each a base URL.

Behind one proxy, PAGE is enough. It sends a message, loses the connection in the middle of the
answer, and continues; the second gateway, if given, serves the continuation.
"""

import json
import sys
from collections.abc import Iterator
from uuid import uuid4

import httpx

page, gateway, second = (sys.argv[1:] + sys.argv[-1:] * 2)[:3]
chat = f"check-{uuid4().hex[:8]}"
text = {"type": "text", "text": "PACE 0.5\nSAY one two three four five six seven eight"}
message = {"id": "m1", "role": "user", "parts": [text]}
body = {"id": chat, "agent": "clerk", "messages": [message]}


def signed_in(user: str) -> dict[str, str]:
    """The cookie of a user. It is for https only, so it is sent by hand here."""
    cookies = httpx.post(f"{page}/login/{user}").raise_for_status().cookies
    return {"cookie": f"foldlog_token={cookies['foldlog_token']}"}


def words(stream: httpx.Response) -> Iterator[str]:
    """The words of an answer as they arrive."""
    for line in stream.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: ")).get("delta", "")


def status(method: str, path: str, headers: dict[str, str]) -> int:
    """The status of a request to the gateway."""
    return httpx.request(method, f"{gateway}{path}", headers=headers).status_code


ana, bob, foreign = signed_in("ana"), signed_in("bob"), {"origin": "https://evil.example"}
print("no token:", status("GET", f"/api/chat/{chat}/messages", {}))
print("a page of another origin:", status("GET", f"/api/chat/{chat}/messages", ana | foreign))
with httpx.Client(headers=ana, timeout=60) as http:
    own = {"origin": gateway}  # as a browser sends it for a page of the same origin
    with http.stream("POST", f"{gateway}/api/chat", json=body, headers=own) as stream:
        print("a message:", stream.status_code)
        if stream.status_code != 200:
            sys.exit(stream.read().decode())
        before = next(word for word in words(stream) if "three" in word)
    print("the connection ends after:", before.strip())
    with http.stream("GET", f"{second}/api/chat/{chat}/stream") as stream:
        print("reconnected:", stream.status_code, "".join(words(stream)))
    found = http.get(f"{gateway}/api/chat/{chat}/messages").json()["messages"]
    print("the page is loaded again:", *(one["role"] for one in found))
print("stop, by another user:", status("POST", f"/api/chat/{chat}/stop", bob))
