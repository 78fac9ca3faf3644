"""A stream continues after its broker was killed and started again. The broker is the test's
own."""

import pytest

from foldlog.client.connection import connect
from foldlog.client.events import Token, Waiting
from foldlog.log import open_log
from foldlog.log.errors import LogUnreachable
from foldlog.log.made import apply_topics
from foldlog.tests.kit.played import PARTITIONS, Played, settings_in
from foldlog.tests.kit.slowness import allowed

pytestmark = [pytest.mark.broker, pytest.mark.crash, pytest.mark.spread]
WAIT_S = allowed(90.0)


def test_S2_a_stream_outlives_its_broker_and_yields_each_token_once(own_broker, tmp_path):
    broker = own_broker()
    settings = settings_in(tmp_path, bootstrap_servers=broker.bootstrap_servers)
    log = open_log(settings)
    apply_topics(log, PARTITIONS)
    with connect(settings) as foldlog:
        session = foldlog.open("s1", agent="shop")
        reply = session.send("hi")
        played = Played(log, "s1")
        played.call()
        played.start()
        played.chunk("It is ")
        shown = [reply.until(Token, timeout_s=WAIT_S).text]
        broker.kill()
        waiting = reply.until(Waiting, timeout_s=WAIT_S)
        assert "no Kafka broker answers" in waiting.reason
        assert "continues by itself" in waiting.reason
        with pytest.raises(LogUnreachable):
            session.state()
        broker.up()
        played.chunk("four.")
        played.complete("It is four.")
        played.end()
        shown += [event.text for event in reply if isinstance(event, Token)]
        assert "".join(shown) == reply.answer().text == "It is four."
    log.close()
