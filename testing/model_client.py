"""The client of the scripted Messages API: plain HTTP, because importing the model SDK takes longer
than a test."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp

from ..processors.effects.models.client import CONNECT_TIMEOUT_S, Transport
from ..processors.effects.models.errors import AttemptFailed, Trouble, retry_after_ms

HEADERS = {
    "anthropic-version": "2023-06-01",
    "authorization": "Bearer the-key-of-a-scripted-model",  # the server accepts any key
    "content-type": "application/json",
}


class ScriptedModel(Transport):
    """Sends each request on its own connection, so that it belongs to no event loop."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url}/v1/messages"

    @asynccontextmanager
    async def stream(
        self, body: bytes, headers: Mapping[str, str], read_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """As `Transport.stream`."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=read_timeout_s
        )
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(self._url, data=body, headers={**HEADERS, **headers}) as response,
            ):
                if response.status != 200:
                    raise AttemptFailed(_trouble(response, await response.read()))
                yield response.content.iter_any()
        except (TimeoutError, aiohttp.ClientError) as error:
            is_late = isinstance(error, TimeoutError)
            raise AttemptFailed(Trouble(
                source="stalled" if is_late else "transport",
                message=f"{type(error).__name__}: {error}",
                sent=not isinstance(error, aiohttp.ClientConnectorError),
            )) from error


def _trouble(response: aiohttp.ClientResponse, body: bytes) -> Trouble:
    """The facts of a response that refuses the request."""
    try:
        error: dict[str, Any] = json.loads(body)["error"]
    except ValueError:  # a proxy's page
        error = {"message": body.decode("utf-8", "replace")}
    return Trouble(
        source="status",
        message=error["message"],
        status=response.status,
        type=error.get("type"),
        code=error.get("details", {}).get("error_code"),
        retry_after_ms=retry_after_ms(response.headers, datetime.now(UTC)),
        request_id=response.headers.get("request-id"),
    )
