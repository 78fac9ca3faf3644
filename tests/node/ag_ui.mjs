// The real AG-UI client, told events by a test: {events, messages?} a line, what it then holds back.
// {name, url, ...} makes an HttpAgent, {name, ...} has it run or connect: what it holds then.
import { createInterface } from 'node:readline'
import { AbstractAgent, HttpAgent, transformHttpEventStream, runHttpRequest } from '@ag-ui/client'
import { EventSchemas } from '@ag-ui/core/schemas'
import { from } from 'rxjs'

let warnings = []
console.warn = (...words) => warnings.push(words.join(' '))
console.error = () => {} // the client prints what it throws

class Told extends AbstractAgent {
  constructor(events, messages) {
    super({ threadId: 't', initialMessages: messages })
    this.events = events
  }
  run() {
    return from(this.events)
  }
}

class Connecting extends HttpAgent {
  connect(input) {
    const init = this.requestInit(input)
    return transformHttpEventStream(runHttpRequest(() => fetch(this.connectUrl, init)))
  }
}

const agents = new Map() // name -> an HttpAgent that stays from question to question

async function held(agent, run) {
  warnings = []
  const seen = []
  const finished = []
  let error = null
  const subscriber = {
    onEvent: ({ event }) => void seen.push(event),
    onRunFinishedEvent: params => void finished.push(params.outcome),
  }
  try {
    await run(agent, subscriber)
  } catch (thrown) {
    error = String(thrown.message ?? thrown)
  }
  const { messages, state, pendingInterrupts } = agent
  return { messages, state, error, warnings, seen, finished, pendingInterrupts }
}

async function answer({ events, messages = [], name, url, connect, message, ...parameters }) {
  if (events) {
    const wrong = events.filter(event => !EventSchemas.safeParse(event).success)
    const told = await held(new Told(events, messages), (agent, s) => agent.runAgent({}, s))
    return { ...told, seen: undefined, wrong }
  }
  if (url) {
    const { threadId, headers } = parameters
    const agent = new Connecting({ url, threadId, headers, initialMessages: messages })
    agent.connectUrl = connect
    agents.set(name, agent)
    return {}
  }
  const agent = agents.get(name)
  if (message) agent.addMessage(message)
  if (connect) return held(agent, (a, s) => a.connectAgent(parameters, s))
  return held(agent, (a, s) => a.runAgent(parameters, s))
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))))
}
