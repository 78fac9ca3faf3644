// A page's dev server, vite's own, as people have it before a gateway: a proxy for its API.
//   node vite_dev.mjs PORT GATEWAY
// It prints a line of JSON when it listens, and ends with its stdin.
import { writeFileSync } from 'node:fs'
import { createServer } from 'vite'

const [port, gateway] = process.argv.slice(2)
const root = import.meta.dirname
writeFileSync(`${root}/index.html`, '<title>app</title><script type="module" src="/page.js"></script>')
writeFileSync(`${root}/page.js`, `
import { DefaultChatTransport, readUIMessageStream } from 'ai'
async function talk(api, chatId) {
  const transport = new DefaultChatTransport({ api })
  const resumed = await transport.reconnectToStream({ chatId })
  const { messages } = await (await fetch(api + '/' + chatId + '/messages')).json()
  const said = [{ id: 'm1', role: 'user', parts: [{ type: 'text', text: 'hello' }] }]
  const stream = await transport.sendMessages({ chatId, trigger: 'submit-message', messages: said })
  let last
  for await (const message of readUIMessageStream({ stream })) last = message
  const texts = last.parts.filter(part => part.type === 'text').map(part => part.text)
  return { resumed, messages, text: texts.join('') }
}
window.talk = (...given) => talk(...given).catch(error => ({ error: String(error.message) }))
document.title = 'ready'
`)
const to = changeOrigin => ({
  target: gateway, changeOrigin, rewrite: path => path.replace('/changed', ''),
})
const server = await createServer({
  root, configFile: false, cacheDir: `${root}/.vite`, logLevel: 'error',
  optimizeDeps: { include: ['ai'] },
  server: {
    host: '127.0.0.1', port: Number(port), strictPort: true, hmr: false, ws: false,
    proxy: { '/api': to(false), '/changed': to(true), '/v1': gateway },
  },
})
await server.listen()
console.log('{}')
process.stdin.resume().on('end', () => process.exit(0))
