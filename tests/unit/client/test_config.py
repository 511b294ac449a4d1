"""Where the client finds the service."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from recado import config
from recado.config import Settings
from recado.errors import NotConfigured


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a home of its own."""
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_what_is_given_goes_first(home: dict[str, str]) -> None:
    """The caller before the environment, the environment before the file."""
    config.save(Settings("https://file/v1", "rk_file"), config.path(home))
    assert config.load(environment=home) == Settings("https://file/v1", "rk_file")
    home |= {"RECADO_URL": "https://env/v1", "RECADO_API_KEY": "rk_env"}
    assert config.load(environment=home) == Settings("https://env/v1", "rk_env")
    assert config.load("https://arg/v1", "rk_arg", environment=home) == Settings("https://arg/v1", "rk_arg")


def test_another_file_can_be_named(home: dict[str, str], tmp_path: Path) -> None:
    """RECADO_CONFIG goes before the user's own file, is what `recado login` writes, and is missed if not there."""
    config.save(Settings("https://mine/v1", "rk_mine"), config.path(home))
    home["RECADO_CONFIG"] = str(tmp_path / "local.toml")
    with pytest.raises(NotConfigured, match=r"local\.toml"):
        config.load(environment=home)
    config.save(Settings("http://local/v1", "rk_local"), config.path(home))
    assert config.load(environment=home) == Settings("http://local/v1", "rk_local")
    del home["RECADO_CONFIG"]
    assert config.load(environment=home) == Settings("https://mine/v1", "rk_mine")


def test_a_key_is_not_sent_elsewhere(home: dict[str, str]) -> None:
    """The file's key belongs to the file's URL: another URL alone does not get it."""
    config.save(Settings("https://file/v1", "rk_file"), config.path(home))
    with pytest.raises(NotConfigured, match="RECADO_API_KEY"):
        config.load("https://elsewhere/v1", environment=home)


def test_nothing_set_says_what_to_do(home: dict[str, str]) -> None:
    """Without anything the error names the command that helps."""
    with pytest.raises(NotConfigured, match="recado login"):
        config.load(environment=home)


def test_the_file_is_its_owners(home: dict[str, str]) -> None:
    """The file is readable by its owner alone, also where one with other rights was there before."""
    file = config.path(home)
    file.parent.mkdir(parents=True)
    file.write_text("old")
    file.chmod(0o644)
    config.save(Settings("https://host/v1", "rk_1"), file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["config.toml"]


def test_every_text_survives_the_file(home: dict[str, str]) -> None:
    """Quotes, backslashes and letters beyond ASCII are read as they were written."""
    settings = Settings("https://höst/v1", 'rk_"\\é🗝')
    config.save(settings, config.path(home))
    assert config.load(environment=home) == settings


def test_a_broken_file_is_named(home: dict[str, str]) -> None:
    """A file that cannot be read is named in the error."""
    file = config.path(home)
    file.parent.mkdir(parents=True)
    file.write_text("url = ")
    with pytest.raises(NotConfigured, match=r"config\.toml"):
        config.load(environment=home)


@pytest.mark.parametrize(
    "url", ["host/v1", "ftp://host", "https://", "https://host/?a=b", "http://[", "file:///x"]
)
def test_what_is_no_url_is_refused(url: str, home: dict[str, str]) -> None:
    """A URL that cannot be the service's is an error before anything is sent."""
    with pytest.raises(NotConfigured, match="not the URL"):
        config.load(url, "rk_1", environment=home)


def test_slashes_and_spaces_are_trimmed(home: dict[str, str]) -> None:
    """What is copied with a slash or a line's end works."""
    assert config.load("https://host/v1/\n", "rk_1\n", environment=home) == Settings("https://host/v1", "rk_1")


def test_the_key_is_not_shown() -> None:
    """What prints settings does not print the key."""
    assert "rk_1" not in repr(Settings("https://host", "rk_1"))
