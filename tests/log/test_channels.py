"""`[channels.NAME]` in foldlog.toml: valid and refused tables; secrets and URLs are never
printed."""

import pytest

from foldlog.log import Settings, SettingsError

ENV = {"HOME": "/h", "USER": "ada", "CRM_SECRET": "not to be shown"}
GOOD = 'url = "https://crm.example/private-hook"\nsecret_env = "CRM_SECRET"\n'


def load(tmp_path, text: str, env=ENV) -> Settings:
    path = tmp_path / "foldlog.toml"
    path.write_text(text, encoding="utf-8")
    return Settings.load(env, path, {})


def test_a_channel_gets_its_secret_from_the_environment_and_prints_neither(tmp_path):
    settings = load(tmp_path, f'user = "bob"\n[channels.crm]\n{GOOD}networks = ["10.0.0.0/8"]\n')
    (channel,) = settings.channels.values()
    assert (channel.name, channel.secret, channel.networks) == (
        "crm", "not to be shown", ("10.0.0.0/8",)
    )
    assert "not to be shown" not in repr(settings) and "private-hook" not in repr(settings)


def test_settings_load_without_the_secret_of_a_channel(tmp_path):
    settings = load(tmp_path, f"[channels.crm]\n{GOOD}", {"HOME": "/h"})
    assert settings.channels["crm"].secret is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("channels = 3", "tables"),
        ("[channels]\ncrm = 3", "table with url"),
        ("[channels.crm]\nurl = 'https://a.example'", "secret_env is missing"),
        (f"[channels.crm]\n{GOOD}secret = 'plain'", "unknown secret"),
        (f"[channels.'a b']\n{GOOD}", "the name must be"),
        ("[channels.crm]\nurl = 'http://a.example'\nsecret_env = 'X'", "https://"),
        ("[channels.crm]\nurl = 'https://u:pw@a.example'\nsecret_env = 'X'", "user or a password"),
        ("[channels.crm]\nurl = 'nothing'\nsecret_env = 'X'", "not a URL"),
        ("[channels.crm]\nurl = 'https://a.example:99999'\nsecret_env = 'X'", "not a URL"),
        (f"[channels.crm]\n{GOOD}networks = ['everywhere']", "networks"),
        (f"[channels.crm]\n{GOOD}networks = '10.0.0.0/8'", "networks must be a list"),
    ],
)
def test_an_invalid_channel_is_refused_without_its_url(tmp_path, text, message):
    settings = load(tmp_path, text)
    with pytest.raises(SettingsError) as refused:
        settings.demand_channels()
    assert message in str(refused.value) and "private-hook" not in str(refused.value)
    assert "pw" not in str(refused.value)


def test_settings_load_with_an_invalid_channel_and_keep_the_valid_ones(tmp_path):
    settings = load(tmp_path, f"[channels.crm]\n{GOOD}[channels.bad]\nurl = 'ftp://x'\n")
    assert list(settings.channels) == ["crm"]
    (problem,) = settings.channels_wrong
    assert "channels.bad: secret_env is missing" in problem
    with pytest.raises(SettingsError, match=r"channels\.bad.* do not start with this"):
        settings.demand_channels()


def test_demand_channels_returns_valid_channels(tmp_path):
    settings = load(tmp_path, f"[channels.crm]\n{GOOD}")
    assert settings.demand_channels() is settings.channels
