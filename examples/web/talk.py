"""Uses app.py as a page would: sends a message, allows calls that need approval, prints the answer.
"""

import json
import sys
from uuid import uuid4

import httpx

url, chat, text = sys.argv[1:4]
headers = {"Authorization": f"Bearer {sys.argv[4] if sys.argv[4:] else 'token-of-ana'}"}

with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
    message = {"id": uuid4().hex, "text": text}
    with http.stream("POST", f"/chats/{chat}/messages", json=message) as answer:
        if answer.status_code != 200:
            sys.exit(f"{answer.status_code} {answer.read().decode()}")
        kind = ""
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                event = json.loads(value)
                if kind == "Token":
                    print(event["text"], end="", flush=True)
                elif kind == "ApprovalAsked":
                    print(f"\n{event['tool']} {event['arguments']}: allowed")
                    decision = {"call": event["call"], "allow": True}
                    http.post(f"/chats/{chat}/decisions", json=decision).raise_for_status()
                elif event.get("reason", "end_turn") != "end_turn":
                    print(f"\n{kind}: {event['reason']}")
    print()
