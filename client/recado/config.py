"""The URL of the service and the API key: given, from the environment, or from the file of `recado login`."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from recado._urls import is_plain
from recado.errors import InsecureUrl, NotConfigured

URL, KEY, FILE = "RECADO_URL", "RECADO_API_KEY", "RECADO_CONFIG"


@dataclass(frozen=True, slots=True)
class Settings:
    url: str
    key: str

    def __repr__(self) -> str:
        return f"Settings(url={self.url!r}, key='…')"


def path(environment: Mapping[str, str] = os.environ) -> Path:
    """The file that RECADO_CONFIG names, else `recado/config.toml` in the XDG configuration directory."""
    if named := environment.get(FILE):
        return Path(named).expanduser()
    base = environment.get("XDG_CONFIG_HOME") or ""
    home = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return home / "recado" / "config.toml"


def load(
    url: str | None = None, key: str | None = None, *, environment: Mapping[str, str] = os.environ
) -> Settings:
    """The arguments, else the environment, else the file. Raises NotConfigured.

    URL and key belong together: a key from the file is never sent to a URL from elsewhere. An empty argument is
    missing, and nothing takes its place.
    """
    url = environment.get(URL) or None if url is None else url
    key = environment.get(KEY) or None if key is None else key
    if url is None and key is None:
        url, key = _read(path(environment), is_required=bool(environment.get(FILE)))
    if not url or not key:
        missing, name = ("URL", URL) if not url else ("API key", KEY)
        raise NotConfigured(
            f"No {missing} is set. Run `recado login`, or set {URL} and {KEY} ({name} is missing)."
        )
    return Settings(checked(url), key.strip())


def save(settings: Settings, file: Path | None = None) -> Path:
    """Write the file. Only its owner can read it."""
    file = file or path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = f"url = {_quoted(settings.url)}\nkey = {_quoted(settings.key)}\n"
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)
    temporary.replace(file)
    return file


def checked(url: str) -> str:
    """The URL without a trailing slash. Raises NotConfigured if it is invalid, or plain and of another machine."""
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment:
        raise NotConfigured(f"{url!r} is not the URL of a service. A valid URL looks like https://host/v1.")
    try:
        is_plain(url)
    except InsecureUrl as error:
        raise NotConfigured(str(error)) from None
    return url


def _quoted(text: str) -> str:
    """A JSON string is a TOML string."""
    return json.dumps(text, ensure_ascii=False)


def _read(file: Path, *, is_required: bool) -> tuple[str | None, str | None]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if is_required:
            raise NotConfigured(f"{file} does not exist ({FILE}). Run `recado login` to create it.") from None
        return None, None
    except (OSError, ValueError) as error:
        raise NotConfigured(f"{file} cannot be read: {error}. Run `recado login` to replace it.") from None
    return found.get("url"), found.get("key")
