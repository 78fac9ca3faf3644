"""The broker is away for seconds: no process ends, and every answer is whole for every viewer."""

import pytest

from foldlog.local.kafka import temporary_broker
from foldlog.tests.crash.outages import Outages

pytestmark = [pytest.mark.broker, pytest.mark.crash, pytest.mark.spread]


def test_S0_2_no_process_ends_in_an_outage_and_every_viewer_sees_every_answer(
    broker_cache_dir, tmp_path
):
    """The defect: a worker died of signal 6 in an outage of 8 s, with the chunks in its memory.

    `make soak ARGS="--outages 100"` plays longer outages.
    """
    with temporary_broker(broker_cache_dir) as mortal:
        outages = Outages(mortal, tmp_path)
        try:
            for fault, length_s in (("paused", 3.0), ("killed", 3.0)):
                assert outages.round(fault, length_s) == []
            assert outages.at_rest() == []
        finally:
            outages.close()
