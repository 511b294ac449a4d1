"""Where the service is and what opens it: given, in the environment, or in the file that `recado login` writes."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from recado.errors import NotConfigured

URL, KEY, FILE = "RECADO_URL", "RECADO_API_KEY", "RECADO_CONFIG"


@dataclass(frozen=True, slots=True)
class Settings:
    url: str
    key: str

    def __repr__(self) -> str:
        return f"Settings(url={self.url!r}, key='…')"


def path(environment: Mapping[str, str] = os.environ) -> Path:
    """What RECADO_CONFIG names, or `recado/config.toml` among this user's settings (XDG base directories)."""
    if named := environment.get(FILE):
        return Path(named).expanduser()
    base = environment.get("XDG_CONFIG_HOME") or ""
    home = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return home / "recado" / "config.toml"


def load(
    url: str | None = None, key: str | None = None, *, environment: Mapping[str, str] = os.environ
) -> Settings:
    """What is given goes before the environment, and that before the file. Raises NotConfigured.

    URL and key go together: the key of a file is never sent to a URL from elsewhere.
    """
    url, key = url or environment.get(URL), key or environment.get(KEY)
    if not url and not key:
        url, key = _read(path(environment), must_be_there=bool(environment.get(FILE)))
    if not url or not key:
        missing, name = ("URL", URL) if not url else ("key", KEY)
        raise NotConfigured(f"no {missing} is set: run `recado login`, or set {name} beside the other")
    return Settings(checked(url), key.strip())


def save(settings: Settings, file: Path | None = None) -> Path:
    """Write the file, readable by its owner alone."""
    file = file or path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = f"url = {_quoted(settings.url)}\nkey = {_quoted(settings.key)}\n"
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)
    fresh.replace(file)
    return file


def checked(url: str) -> str:
    """The URL without a slash at its end. Raises NotConfigured for what is none."""
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.fragment:
        raise NotConfigured(f"{url!r} is not the URL of a service, such as https://host/v1")
    return url


def _quoted(text: str) -> str:
    """What JSON writes, TOML reads."""
    return json.dumps(text, ensure_ascii=False)


def _read(file: Path, *, must_be_there: bool) -> tuple[str | None, str | None]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if must_be_there:
            raise NotConfigured(f"{file}, which {FILE} names, is not there: run `recado login`") from None
        return None, None
    except (OSError, ValueError) as error:
        raise NotConfigured(f"{file} cannot be read: {error}. Run `recado login` to write it anew.") from None
    return found.get("url"), found.get("key")
