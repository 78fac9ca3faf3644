"""The client of the schema registry: login, responses, cache and settings."""

import logging
import subprocess
import sys

import pytest

from foldlog.consumers.doctor.framing import framing
from foldlog.log import RegistryAway, Settings, SettingsError, open_log
from foldlog.log.registry import Registry, registry_of
from foldlog.schemas import codec
from foldlog.tests.log.mock_registry import MockRegistry

HEADS = list(codec.shapes())
SECRETS = ("hunter2", "ana-the-user", "YW5hLXRoZS11c2VyOmh1bnRlcjI")


@pytest.fixture
def mock():
    with MockRegistry().serving() as serving:
        yield serving


def settings(tmp_path, **more):
    env = {"HOME": str(tmp_path), "USER": "ada", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    return Settings.load(env | {f"FOLDLOG_{name.upper()}": text for name, text in more.items()})


def test_the_login_is_sent_to_the_registry_and_printed_nowhere(mock, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    mock.users = {"ana-the-user": "hunter2"}
    configured = settings(
        tmp_path, framing="confluent", registry_url=mock.url,
        registry_user="ana-the-user", registry_password="hunter2",
    )  # fmt: skip
    registry = registry_of(configured)
    mock.users["ana-the-user"] = "changed"
    with pytest.raises(RegistryAway, match="FOLDLOG_REGISTRY_USER.*HTTP 401") as raised:
        registry.id_of("t", HEADS[0])
    printed = [str(raised.value), repr(configured), str(list(framing(configured)))]
    mock.users["ana-the-user"] = "hunter2"
    registry = registry_of(configured)
    assert registry.head_of(registry.id_of("t", HEADS[0])) == HEADS[0]
    printed += [file.read_text() for file in registry.cache_dir.rglob("*") if file.is_file()]
    printed += [str(path) for path in tmp_path.rglob("*")] + [caplog.text]
    assert len(printed) > 5
    assert not [secret for secret in SECRETS for text in printed if secret in text]




@pytest.mark.parametrize(
    "answer",
    [
        (404, '{"error_code": 404}'),
        (404, "<html>no such page</html>"),
        (200, "<html>log in first</html>"),
        (200, "{}"),
        (200, '{"schema": 7, "id": "x"}'),
        (200, '{"id": true}'),
        (302, ""),
        (409, '{"error_code": 409}'),
        (429, ""),
        (500, '{"error_code": 50001}'),
        (503, ""),
    ],
)
def test_an_unexpected_response_means_that_the_registry_is_unavailable(mock, tmp_path, answer):
    registry = Registry(mock.url, tmp_path)
    mock.answer = answer
    with pytest.raises(RegistryAway):
        registry.head_of(7)
    with pytest.raises(RegistryAway):
        registry.id_of("t", HEADS[0])
    assert not list(registry.cache_dir.rglob("*.json"))
    mock.answer = None
    reopened = Registry(mock.url, tmp_path)
    assert reopened.head_of(7) is None and reopened.id_of("t", HEADS[0])


def test_an_incompatible_schema_does_not_block_others(mock, tmp_path):
    registry = Registry(mock.url, tmp_path)
    mock.compatible = False
    with pytest.raises(RegistryAway, match="compatib"):
        registry.id_of("t", HEADS[0])
    mock.compatible = True
    assert registry.id_of("t", HEADS[1])


def test_the_cache_may_be_damaged_or_unwritable(mock, tmp_path):
    first = Registry(mock.url, tmp_path)
    found = first.id_of("t", HEADS[0])
    for file in first.cache_dir.rglob("*.json"):
        file.write_text('{"fingerprint": "xyz", "id": -1', "utf-8")
    reopened = Registry(mock.url, tmp_path)
    assert (reopened.id_of("t", HEADS[0]), reopened.head_of(found)) == (found, HEADS[0])
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert Registry(mock.url, blocked).id_of("t", HEADS[0]) == found


def test_another_registry_has_other_ids(mock, tmp_path):
    with MockRegistry().serving() as other:
        other.add({"type": "record", "name": "X", "fields": []})
        ids = [Registry(each.url, tmp_path).id_of("t", HEADS[0]) for each in (mock, other)]
    assert ids[0] != ids[1]


def test_the_url_may_have_a_path(mock, tmp_path):
    with pytest.raises(RegistryAway):
        Registry(mock.url + "/apis/ccompat/v7", tmp_path).check()
    assert mock.requests == ["GET /apis/ccompat/v7/schemas/types"]


def test_a_home_that_has_used_a_registry_requires_its_setting(mock, tmp_path):
    assert not settings(tmp_path).uses_registry
    registry = registry_of(settings(tmp_path, registry_url=mock.url))
    registry.id_of("t", HEADS[0])
    assert settings(tmp_path).uses_registry
    with pytest.raises(SettingsError, match="registry_url.*delete that directory"):
        open_log(settings(tmp_path))
    open_log(settings(tmp_path, registry_url=mock.url)).close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"framing": "json"}, "FOLDLOG_FRAMING: framing must be avro or confluent"),
        ({"framing": "confluent"}, "needs a schema registry. Set registry_url"),
        ({"registry_url": "far:8081"}, "FOLDLOG_REGISTRY_URL: registry_url must be http"),
        ({"registry_url": "http://"}, "registry_url must be http"),
        ({"registry_url": "http://far:x"}, "registry_url must be http"),
        ({"registry_url": "http://far/a b"}, "registry_url must be http"),
        ({"registry_url": "http://far/?a=hunter2"}, "registry_url must be http"),
        ({"registry_url": "http://a:hunter2@far"}, "must not contain a user or a password"),
        ({"registry_user": "a"}, "go together"),
        ({"registry_password": "hunter2"}, "go together"),
        ({"registry_user": "a:b", "registry_password": "hunter2"}, "not contain a colon"),
    ],
)
def test_invalid_settings_are_named(tmp_path, given, message):
    with pytest.raises(SettingsError) as raised:
        settings(tmp_path, **given)
    assert message in str(raised.value) and "hunter2" not in str(raised.value)


def test_doctor_reports_the_framing_and_whether_the_registry_responds(mock, tmp_path):
    def found(**more):
        (finding,) = framing(settings(tmp_path, **more))
        return finding

    assert found()[:2] == ("ok", "framing") and "single-object" in found().text
    plain, confluent = {"registry_url": mock.url + "/"}, {"framing": "confluent"}
    assert found(**plain).level == found(**plain, **confluent).level == "ok"
    assert "confluent" in found(**plain, **confluent).text
    mock.answer = (503, "")
    finding = found(**plain, **confluent)
    assert finding.level == "problem" and mock.url in finding.text and finding.do
    assert found(**plain).level == "note"


def test_without_a_registry_its_modules_are_not_loaded(tmp_path):
    code = (
        "import sys\n"
        "from foldlog.consumers.doctor.framing import framing\n"
        "from foldlog.log import Settings, open_log\n"
        "env = {'HOME': sys.argv[1], 'KAFKA_BOOTSTRAP_SERVERS': '127.0.0.1:1'}\n"
        "settings = Settings.load(env)\n"
        "open_log(settings).close()\n"
        "assert [finding.level for finding in framing(settings)] == ['ok']\n"
        "sys.exit(bool({'foldlog.log.framing', 'foldlog.log.registry'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60).returncode == 0
