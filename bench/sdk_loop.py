"""The baseline of stream_cost: a bare loop over the streams of the `anthropic` SDK.

    python sdk_loop.py BASE_URL STREAMS

It reads STREAMS answers at the same time, with the SDK's own client, and does nothing with their
events. It imports nothing of foldlog. It must not change: figures of different versions would no
longer be comparable (a test compares its hash).
"""

import asyncio
import sys

from anthropic import AsyncAnthropic


async def read(client: AsyncAnthropic) -> None:
    stream = await client.messages.create(
        model="bench",
        max_tokens=4096,
        messages=[{"role": "user", "content": "hello"}],
        stream=True,
    )
    async for _ in stream:
        pass


async def main(base_url: str, streams: str) -> None:
    async with AsyncAnthropic(base_url=base_url, api_key="bench", max_retries=0) as client:
        await asyncio.gather(*(read(client) for _ in range(int(streams))))


asyncio.run(main(*sys.argv[1:]))
