"""The work that a worker does for a session between its turns."""

from foldlog.local.messages_api import Reply, Rule, text
from foldlog.processors.agent import Agent
from foldlog.processors.request import rendered


def test_an_answer_is_rendered_once_after_its_turn(start_session, monkeypatch):
    turns, answer_blocks = [], rendered.answer_blocks

    def recording(fragment, *args, **kwargs):
        turns.append(fragment.turn)
        return answer_blocks(fragment, *args, **kwargs)

    monkeypatch.setattr(rendered, "answer_blocks", recording)
    agent = Agent(name="helper", model="claude-opus-5-5")
    driven = start_session(agent, Rule(reply=Reply([text("It is noon.")])))
    driven.say("what time is it?").run()
    assert turns == [1], "rendered before the next request"
    driven.say("and now?").run()
    assert turns == [1, 2], "each answer is rendered once"
    driven.check()
