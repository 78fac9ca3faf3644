// The real client of Durable Streams: {url, headers, offset, live} a line, what it read until it was
// up to date (live: false), or until the stream was closed.
import { createInterface } from 'node:readline'
import { stream } from '@durable-streams/client'

async function read({ url, headers, offset, live }) {
  try {
    const res = await stream({ url, headers, offset, live })
    if (live === false) {
      const items = await res.json()
      return { items, offset: res.offset, closed: res.streamClosed }
    }
    const items = []
    for await (const item of res.jsonStream()) items.push(item)
    return { items, offset: res.offset, closed: res.streamClosed }
  } catch (thrown) {
    return { error: String(thrown), status: thrown.status }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await read(JSON.parse(line))))
}
