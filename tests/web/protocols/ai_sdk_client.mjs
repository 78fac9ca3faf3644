// The real client of the Vercel AI SDK, fed with chunks: a line of JSON in, a line out.
//   {chunks}            -> {message} | {error}   the result of readUIMessageStream, validated
//   {each: chunks}      -> {message} | {error}   the same, validated after every chunk
//   {prefixes: chunks}  -> {message} | {error}   the same for every prefix, as a stream of its own
//   {messages}          -> {} | {error}          validateUIMessages
import { createInterface } from 'node:readline'
import { uiMessageChunkSchema, readUIMessageStream, validateUIMessages } from 'ai'
import { parseJsonEventStream } from '@ai-sdk/provider-utils'

const json = value => JSON.parse(JSON.stringify(value))

// As the transport reads a response: server-sent events, each checked against the schema.
function stream(chunks) {
  const text = chunks.map(chunk => `data: ${JSON.stringify(chunk)}\n\n`).join('') + 'data: [DONE]\n\n'
  return parseJsonEventStream({
    stream: new Response(text).body,
    schema: uiMessageChunkSchema,
  }).pipeThrough(
    new TransformStream({
      transform(chunk, controller) {
        if (!chunk.success) throw chunk.error
        controller.enqueue(chunk.value)
      },
    }),
  )
}

async function read(chunks, each = false) {
  let message = null
  const snapshots = readUIMessageStream({ stream: stream(chunks), terminateOnError: true })
  for await (const snapshot of snapshots) {
    message = snapshot
    if (each) await validateUIMessages({ messages: [message] })
  }
  if (message !== null) await validateUIMessages({ messages: [message] })
  return message
}

async function answer(request) {
  if (request.messages) return await validateUIMessages({ messages: request.messages }), {}
  if (request.chunks) return { message: json(await read(request.chunks)) }
  if (request.each) return { message: json(await read(request.each, true)) }
  let message = null
  for (let length = 1; length <= request.prefixes.length; length++) {
    try {
      message = await read(request.prefixes.slice(0, length))
    } catch (error) {
      throw new Error(`prefix of ${length}: ${error}`)
    }
  }
  return { message: json(message) }
}

for await (const line of createInterface({ input: process.stdin })) {
  const response = await answer(JSON.parse(line)).catch(error => ({ error: String(error) }))
  console.log(JSON.stringify(response))
}
