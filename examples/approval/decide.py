"""Allows or denies the calls of a session over HTTP: decide.py URL allow|deny."""

import os
import sys

import httpx

url, decision = sys.argv[1:]
headers = {"authorization": f"Bearer {os.environ['TOKEN']}"} if "TOKEN" in os.environ else {}
with httpx.Client(headers=headers) as http:
    for call in http.get(url).raise_for_status().json()["waits"]:
        if call["status"] == "asks":
            print(call["name"], call["args"]["inline"])
            body = {"decision": decision, "args_sha256": call["args_sha256"]}
            answer = http.post(f"{url}/calls/{call['key']}/decide", json=body)
            print(answer.status_code, answer.json()["verdict"])
