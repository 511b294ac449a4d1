"""The command login."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from typing import Any

from recado import config
from recado._cli.arguments import add_command
from recado._cli.exit_codes import OK
from recado._cli.output import Output
from recado.client import Recado
from recado.errors import NotConfigured


def add_commands(commands: Any) -> None:
    add_command(
        commands,
        "login",
        login,
        "check and store the URL and the API key; reads the key from the terminal or stdin",
    )


def login(options: argparse.Namespace, output: Output) -> int:
    """Ask for URL and key, check them with a request, and store them."""
    url = config.checked(options.url or os.environ.get(config.URL) or _ask_url())
    key = (getpass.getpass("API key (hidden): ") if _has_terminal() else sys.stdin.readline()).strip()
    if not key:
        raise NotConfigured("No API key was entered.")
    with Recado(url, key) as client:
        next(client.jobs(limit=1), None)
    file = config.save(config.Settings(url, key))
    if output.as_json:
        output.json({"url": url, "file": str(file)})
    else:
        output.note(("✓ ", "green"), f"The API key is valid. It is stored in {file}. Only you can read this file.")
    return OK


def _ask_url() -> str:
    if not _has_terminal():
        raise NotConfigured(f"No URL is given. Pass --url or set {config.URL}.")
    return input("URL of the service: ")


def _has_terminal() -> bool:
    """Whether standard input is a terminal. It is None in programs without a console."""
    return sys.stdin is not None and sys.stdin.isatty()
