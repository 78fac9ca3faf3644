// Chats of the Vercel AI SDK with its real transport, driven line by line: {do, chat, ...}.
//   new: {api, id, headers, messages, last}   a chat; `last`: it sends its last message only
//   send: {message, options} | leave | resume | regenerate | edit: {messageId, text, options} | answer: {id, approved}
//   until: {status, says}   waits for this state of the chat; ended: waits for the last request
// Every line is answered with the state of the chat after it.
import { createInterface } from 'node:readline'
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  validateUIMessages,
} from 'ai'

class State {
  watchers = new Set()
  #status = 'ready'
  #messages = []
  error = undefined
  get status() { return this.#status }
  set status(status) { this.#status = status; this.changed() }
  get messages() { return this.#messages }
  set messages(messages) { this.#messages = messages; this.changed() }
  pushMessage = message => { this.messages = [...this.messages, message] }
  popMessage = () => { this.messages = this.messages.slice(0, -1) }
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, this.snapshot(message))
  }
  snapshot = thing => structuredClone(thing)
  changed() { for (const watcher of this.watchers) watcher() }
}

class Chat extends AbstractChat {
  constructor({ api, id, headers, messages = [], last = false }) {
    const state = new State()
    state.messages = messages
    const statuses = []
    const transport = new DefaultChatTransport({
      api,
      headers,
      fetch: async (...args) => {
        const response = await fetch(...args)
        statuses.push(response.status)
        return response
      },
      ...(last && {
        prepareSendMessagesRequest: ({ id, messages, trigger, messageId, body }) => ({
          body: { ...body, id, messages: messages.slice(-1), trigger, messageId },
        }),
      }),
    })
    super({
      id, state, transport,
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onData: part => this.data.push(part),
      onFinish: ({ isAbort, isDisconnect, isError, finishReason }) =>
        this.finished.push({ isAbort, isDisconnect, isError, finishReason }),
    })
    this.watched = state
    this.statuses = statuses
  }
  data = []
  finished = []
  begun = Promise.resolve()

  is({ status, says }) {
    const last = JSON.stringify(this.lastMessage ?? null)
    return (status === undefined || this.status === status) && (says === undefined || last.includes(says))
  }
  until(wanted) {
    return new Promise((resolve, reject) => {
      const check = () => {
        if (!this.is(wanted)) return
        clearTimeout(timer)
        this.watched.watchers.delete(check)
        resolve()
      }
      const timer = setTimeout(() => reject(new Error(
        `never ${JSON.stringify(wanted)}: ${JSON.stringify(this.report())}`)), 20_000)
      this.watched.watchers.add(check)
      check()
    })
  }
  late() {
    return new Promise((_, reject) => setTimeout(
      () => reject(new Error(`never ended: ${JSON.stringify(this.report())}`)), 20_000).unref())
  }
  report() {
    const { status, messages, statuses, data, finished } = this
    return { status, messages, statuses, data, finished, error: this.error?.message }
  }
}

const chats = new Map()
const doing = {
  new: (_, { chat, ...more }) => { chats.set(chat, new Chat(more)) },
  send: (chat, { message, options }) => { chat.begun = chat.sendMessage(message, options) },
  resume: chat => { chat.begun = chat.resumeStream() },
  edit: (chat, { messageId, text, options }) => {
    chat.begun = chat.sendMessage({ messageId, text }, options)
  },
  regenerate: (chat, { messageId }) => { chat.begun = chat.regenerate({ messageId }) },
  answer: (chat, { id, approved }) => chat.addToolApprovalResponse({ id, approved }),
  leave: chat => chat.stop(),
  until: (chat, wanted) => chat.until(wanted),
  ended: chat => Promise.race([chat.begun, chat.late()]),
  look: () => {},
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line)
  try {
    await doing[request.do](chats.get(request.chat), request)
    const chat = chats.get(request.chat)
    if (chat.messages.length) await validateUIMessages({ messages: chat.messages })
    console.log(JSON.stringify(chat.report()))
  } catch (error) {
    console.log(JSON.stringify({ thrown: String(error) }))
  }
}
process.exit(0)
