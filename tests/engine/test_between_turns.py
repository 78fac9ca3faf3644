"""What a worker does for a session while nobody waits for it."""

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text
from foldlog.processors.agent import Agent
from foldlog.processors.request import rendered
from foldlog.tests.engine.driven import Driven


def test_an_answer_is_rendered_when_its_turn_is_over(tmp_path, monkeypatch):
    seen, answer_blocks = [], rendered.answer_blocks

    def noted(fragment, *args, **kwargs):
        seen.append(fragment.turn)
        return answer_blocks(fragment, *args, **kwargs)

    monkeypatch.setattr(rendered, "answer_blocks", noted)
    server = ScriptedServer([Rule(reply=Reply([text("It is noon.")]))]).start()
    driven = Driven(Agent(name="helper", model="claude-opus-5-5"), server, tmp_path)
    try:
        driven.say("what time is it?").run()
        assert seen == [1], "the next request finds it done"
        driven.say("and now?").run()
        assert seen == [1, 2], "once each"
        driven.check()
    finally:
        driven.close()
        server.stop()
