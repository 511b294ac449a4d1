"""Where the client finds the URL and the key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from recado import config
from recado.config import Settings
from recado.errors import NotConfigured


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty configuration directory."""
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_arguments_override_the_environment_and_the_file(home: dict[str, str]) -> None:
    """Arguments override the environment, and the environment overrides the file."""
    config.save(Settings("https://file/v1", "rk_file"), config.path(home))
    assert config.load(environment=home) == Settings("https://file/v1", "rk_file")
    home |= {"RECADO_URL": "https://env/v1", "RECADO_API_KEY": "rk_env"}
    assert config.load(environment=home) == Settings("https://env/v1", "rk_env")
    assert config.load("https://arg/v1", "rk_arg", environment=home) == Settings("https://arg/v1", "rk_arg")


def test_recado_config_names_the_file(home: dict[str, str], tmp_path: Path) -> None:
    """RECADO_CONFIG replaces the default file for reading and writing. A missing file is an error then."""
    config.save(Settings("https://mine/v1", "rk_mine"), config.path(home))
    home["RECADO_CONFIG"] = str(tmp_path / "local.toml")
    with pytest.raises(NotConfigured, match=r"local\.toml"):
        config.load(environment=home)
    config.save(Settings("http://localhost/v1", "rk_local"), config.path(home))
    assert config.load(environment=home) == Settings("http://localhost/v1", "rk_local")
    del home["RECADO_CONFIG"]
    assert config.load(environment=home) == Settings("https://mine/v1", "rk_mine")


def test_the_key_of_the_file_is_not_sent_to_another_url(home: dict[str, str]) -> None:
    """URL and key of the file belong together."""
    config.save(Settings("https://file/v1", "rk_file"), config.path(home))
    with pytest.raises(NotConfigured, match="RECADO_API_KEY"):
        config.load("https://elsewhere/v1", environment=home)


def test_missing_settings_name_the_command_that_helps(home: dict[str, str]) -> None:
    """The error names `recado login`."""
    with pytest.raises(NotConfigured, match="recado login"):
        config.load(environment=home)


def test_only_the_owner_can_read_the_file(home: dict[str, str]) -> None:
    """The file gets these permissions also if it existed before with others."""
    file = config.path(home)
    file.parent.mkdir(parents=True)
    file.write_text("old")
    file.chmod(0o644)
    config.save(Settings("https://host/v1", "rk_1"), file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["config.toml"]


def test_all_characters_can_be_stored(home: dict[str, str]) -> None:
    """Quotes, backslashes and non-ASCII characters are read as they were written."""
    settings = Settings("https://höst/v1", 'rk_"\\é🗝')
    config.save(settings, config.path(home))
    assert config.load(environment=home) == settings


def test_a_malformed_file_is_named(home: dict[str, str]) -> None:
    """The error contains the name of the file."""
    file = config.path(home)
    file.parent.mkdir(parents=True)
    file.write_text("url = ")
    with pytest.raises(NotConfigured, match=r"config\.toml"):
        config.load(environment=home)


@pytest.mark.parametrize(
    "url", ["host/v1", "ftp://host", "https://", "https://host/?a=b", "http://[", "file:///x"]
)
def test_invalid_urls_are_refused(url: str, home: dict[str, str]) -> None:
    """A URL that cannot be one of the service raises NotConfigured."""
    with pytest.raises(NotConfigured, match="not the URL"):
        config.load(url, "rk_1", environment=home)


def test_an_empty_argument_is_missing(home: dict[str, str]) -> None:
    """The key of the environment is not sent to a URL that was given with an empty key."""
    home |= {"RECADO_URL": "https://env/v1", "RECADO_API_KEY": "rk_env"}
    with pytest.raises(NotConfigured, match="No API key"):
        config.load("https://arg/v1", "", environment=home)
    with pytest.raises(NotConfigured, match="No URL"):
        config.load("", environment=home)


def test_trailing_slashes_and_white_space_are_removed(home: dict[str, str]) -> None:
    """URLs and keys that were copied with them work."""
    assert config.load("https://host/v1/\n", "rk_1\n", environment=home) == Settings("https://host/v1", "rk_1")


def test_settings_do_not_show_the_key() -> None:
    """`repr` hides the key."""
    assert "rk_1" not in repr(Settings("https://host", "rk_1"))
