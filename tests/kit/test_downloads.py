"""What tests need is downloaded before them, and by none of them."""

import pytest

from foldlog.local.kafka import BrokerError
from foldlog.tests.kit import downloads


def test_a_test_downloads_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BrokerError):
        downloads.s3_jars()


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail), ("", pytest.skip)])
def test_what_is_missing_fails_a_test_on_a_server_and_skips_it_elsewhere(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome.Exception, match="`make test` downloads it: no network"):
        downloads.missing("the S3 server", OSError("no network"))
