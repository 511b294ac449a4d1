"""Outbound HTTP goes through core.webhooks.transport.client; AWS is reached through boto3 alone.

One other module imports a client: `openai` sends to the base URL of the deployment's configuration and follows no
redirects. No user chooses that address, so it needs no guard, and it may be a private one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

LAMBDAS = Path(__file__).parents[2] / "lambdas"
CLIENT = LAMBDAS / "core" / "webhooks" / "transport" / "client.py"
OPENAI = LAMBDAS / "core" / "llm" / "openai.py"
CLIENTS = frozenset(
    {
        *("socket", "_socket", "http.client", "urllib.request", "ftplib", "smtplib", "xmlrpc.client"),
        *("urllib3", "requests", "httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "niquests", "pycurl"),
        *("websockets", "openai"),
        *("botocore.vendored", "botocore.httpsession"),
    }
)


def imported(source: str) -> Iterator[str]:
    """Every dotted name that a module imports, by statement or by a call with a literal name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name


def http_clients(source: str) -> set[str]:
    return {name for name in imported(source) if any(f"{name}.".startswith(f"{c}.") for c in CLIENTS)}


def test_no_other_module_opens_connections() -> None:
    """No module under lambdas but the two named above imports an HTTP client or sockets."""
    modules = [path for path in LAMBDAS.rglob("*.py") if path not in (CLIENT, OPENAI)]
    found = {str(path.relative_to(LAMBDAS)): http_clients(path.read_text()) for path in modules}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_guarded_client_is_where_this_test_looks() -> None:
    """The modules that are let off are there, and are the ones that import them."""
    assert {"socket", "http.client.HTTPConnection"} <= http_clients(CLIENT.read_text())
    assert http_clients(OPENAI.read_text()) == {"openai"}


@pytest.mark.parametrize(
    "source",
    [
        *("import socket", "import urllib3.util as u", "from urllib3 import PoolManager", "import http.client"),
        *("from http import client", "from http.client import HTTPSConnection", "from urllib import request"),
        *("import urllib.request", "from urllib.request import urlopen", "def f():\n    import requests"),
        *("import httpx", "import httpx2", "import aiohttp.client", "__import__('socket')"),
        "importlib.import_module('httpx')",
        *("import os, socket", "try:\n    import requests\nexcept ImportError:\n    pass"),
    ],
)
def test_every_form_of_import_is_seen(source: str) -> None:
    """An HTTP client is found however it is imported."""
    assert http_clients(source)


@pytest.mark.parametrize(
    "source",
    ["import http", "from http import HTTPStatus", "from urllib.parse import urlsplit", "import socketserver"],
)
def test_harmless_modules_pass(source: str) -> None:
    """Neighbours that open no connection are not mistaken for clients."""
    assert not http_clients(source)
