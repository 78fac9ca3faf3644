"""A viewer of a session, over the stream of a real gateway."""

import asyncio
import json

import httpx2 as httpx

WATCH_S = 110.0  # for a viewer, which watches during most of a test


class Screen:
    """The text that one viewer of a session sees, and the cursor from which the viewer resumes."""

    def __init__(self, session):
        self.session = session
        self.lines, self.streams, self.attempt, self.cursor, self.cuts = [], "", None, None, 0
        self.connected_to = []  # the gateways to which it connected, in order

    def draw(self, event):
        match event["type"]:
            case "token":
                attempt = (event["turn"], event["step"], event["attempt"])
                assert self.attempt in (None, attempt), "two attempts at once"
                self.attempt, self.streams = attempt, self.streams + event["text"]
            case "dropped":
                self.attempt, self.streams = None, ""
            case "settled":
                self.lines.append((event["line"]["offset"], self.streams))
                self.attempt, self.streams = None, ""
            case "told":
                self.lines.append((event["line"]["offset"], event["line"]["kind"]))
        self.cursor = event["cursor"]
        return event["type"] == "told" and event["line"]["kind"] == "ended"

    async def watch(self, url, gateways=()):
        """Watch until the turn has ended, over any number of connections. gateways: the processes
        that have served this address, the newest last."""
        http = httpx.AsyncClient(base_url=url, timeout=20)
        async with asyncio.timeout(WATCH_S), http:
            while True:
                try:
                    if await self._connected(http, gateways):
                        return self
                except httpx.TransportError:
                    self.cuts += 1
                await asyncio.sleep(0.2)  # until there is a gateway that serves

    async def _connected(self, http, gateways):
        params = {"cursor": self.cursor} if self.cursor else {}
        path = f"/v1/sessions/{self.session}/stream"
        async with http.stream("GET", path, params=params) as response:
            if response.status_code == 503:
                return False  # the gateway is still reading the log
            assert response.status_code == 200, await response.aread()
            self.connected_to += [gateway.pid for gateway in gateways[-1:]]
            async for line in response.aiter_lines():
                if line.startswith("data: ") and self.draw(json.loads(line[6:])):
                    return True
        return False
