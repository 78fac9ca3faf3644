"""`[channels.NAME]` in foldlog.toml: what is taken, what is refused, and what is never shown."""

import pytest

from foldlog.log import Settings, SettingsError

ENV = {"HOME": "/h", "USER": "ada", "CRM_SECRET": "not to be shown"}
GOOD = 'url = "https://crm.example/hook-of-nobody"\nsecret_env = "CRM_SECRET"\n'


def load(tmp_path, text: str, env=ENV) -> Settings:
    path = tmp_path / "foldlog.toml"
    path.write_text(text, encoding="utf-8")
    return Settings.load(env, path, {})


def test_a_channel_has_an_address_and_the_secret_that_the_environment_holds(tmp_path):
    settings = load(tmp_path, f'user = "bob"\n[channels.crm]\n{GOOD}networks = ["10.0.0.0/8"]\n')
    (channel,) = settings.channels.values()
    assert (channel.name, channel.secret, channel.networks) == (
        "crm", "not to be shown", ("10.0.0.0/8",)
    )
    assert "not to be shown" not in repr(settings) and "hook-of-nobody" not in repr(settings)


def test_a_secret_that_is_not_set_is_no_error_of_every_command(tmp_path):
    settings = load(tmp_path, f"[channels.crm]\n{GOOD}", {"HOME": "/h"})
    assert settings.channels["crm"].secret is None


@pytest.mark.parametrize(
    ("text", "says"),
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
def test_a_wrong_channel_is_refused_by_name_and_its_url_is_not_shown(tmp_path, text, says):
    settings = load(tmp_path, text)
    with pytest.raises(SettingsError) as refused:
        settings.demand_channels()
    assert says in str(refused.value) and "hook-of-nobody" not in str(refused.value)
    assert "pw" not in str(refused.value)


def test_a_wrong_channel_is_no_error_of_every_command_and_the_others_are_kept(tmp_path):
    settings = load(tmp_path, f"[channels.crm]\n{GOOD}[channels.bad]\nurl = 'ftp://x'\n")
    assert list(settings.channels) == ["crm"]
    (what,) = settings.channels_wrong
    assert "channels.bad: secret_env is missing" in what
    with pytest.raises(SettingsError, match=r"channels\.bad.* do not start with this"):
        settings.demand_channels()


def test_where_all_channels_are_right_they_are_all_that_is_demanded(tmp_path):
    settings = load(tmp_path, f"[channels.crm]\n{GOOD}")
    assert settings.demand_channels() is settings.channels
