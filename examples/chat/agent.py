"""The agent behind the chat page of docs/chat-page.md."""

from foldlog import Agent

agent = Agent(name="clerk", model="claude-sonnet-5-5", system="You answer a shop's customers.")
