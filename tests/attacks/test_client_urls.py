"""The API key, and the tokens in links, are sent in clear to nobody but this machine."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.uri import parse_uri

from recado import AsyncRecado, InsecureUrl, NotConfigured, Recado, _urls, cli, config, poll_with_backoff
from tests.unit.client.stub_http import JOB, KEY, Act, call_client
from tests.unit.client.stub_service import JOB_ID, StubService, payloads, running

ELSEWHERE = [
    *("host", "10.0.0.1", "192.168.1.1", "0.0.0.0", "[::]", "[fd00::1]", "[::ffff:8.8.8.8]", "[::ffff:10.0.0.1]"),
    *("127.0.0.1.evil.test", "localhost.evil.test", "evil.localhost", "localhost.", "xn--localhost-"),
    *("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.01", "[::1%25eth0]", "[::1]evil.test"),
    *("localhost@evil.test", "127.0.0.1:80@evil.test", "evil.test\\@127.0.0.1", "evil.test#@127.0.0.1"),
    *("127.0.0.1\\.evil.test", "127.0.0.1%2eevil.test", "127.0.0.1:80:90", "127.0.0.1\t.evil.test"),
]
THIS_MACHINE = [
    *("localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:4566", "127.9.8.7"),
    *("[::1]", "[::1]:80", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]"),
]
PARTS = [
    *("http://", "ws://", "HTTP://", "//", "/", "\\", "@", ":", ":80", "?", "#", "%2e", ".", "[", "]"),
    *(" ", "\t", "\n", "\0", "127.0.0.1", "localhost", "[::1]", "::1", "evil.test", "é"),
]


@pytest.fixture(params=[False, True], ids=["blocking", "asyncio"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("client", [Recado, AsyncRecado])
@pytest.mark.parametrize("host", ELSEWHERE)
def test_no_client_for_plain_http(client: Any, host: str) -> None:
    """The client refuses the URL before anything is sent."""
    with pytest.raises(NotConfigured):
        client(f"http://{host}/v1", KEY)


@pytest.mark.parametrize("host", THIS_MACHINE)
def test_plain_http_on_this_machine(host: str) -> None:
    """Names and addresses of loopback work."""
    with Recado(f"http://{host}/v1", KEY) as client:
        assert client.url == f"http://{host}/v1"


def test_the_error_says_what_to_do(tmp_path: Path) -> None:
    """It names https, and neither the environment nor the file is a way around it."""
    url = "http://host/v1"
    file = config.save(config.Settings(url, KEY), tmp_path / "config.toml")
    for environment in ({"RECADO_URL": url, "RECADO_API_KEY": KEY}, {"RECADO_CONFIG": str(file)}):
        with pytest.raises(NotConfigured, match=r"http://host is not encrypted.*Use https://"):
            config.load(environment=environment)


@pytest.mark.parametrize("command", [["status", "job_1"], ["login"], ["follow"]])
def test_the_command_refuses_it(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is that of a missing configuration."""
    monkeypatch.setenv("RECADO_API_KEY", KEY)
    assert cli.main([*command, "--url", "http://host/v1"]) == 6
    assert "Use https://" in capsys.readouterr().err


@given(start=st.sampled_from(["http://", "ws://", ""]), parts=st.lists(st.sampled_from(PARTS), max_size=7))
def test_all_parsers_find_this_machine(start: str, parts: list[str]) -> None:
    """What is accepted leads here for each library that opens it, whatever is in the URL."""
    url = start + "".join(parts)
    try:
        assert _urls.is_plain(url)
    except InsecureUrl:
        return
    hosts = {urlsplit(url).hostname, httpx2.URL(url).host}
    hosts |= {parse_uri(url.partition("#")[0]).host} if url.startswith("ws") else set()
    assert all(host == "localhost" or ipaddress.ip_address(str(host)).is_loopback for host in hosts)


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────

LARGE = {**JOB, "status": "completed", "result_truncated": True, "links": {"result": "http://store/r?sig=1"}}
UPLOAD = {"s3_key": "k", "url": "http://store/x?sig=1", "headers": {}}
LIVE = {**JOB, "links": {"live": "ws://live/?token=1"}}
TICKET = {"ticket": "t", "url": "ws://live/?ticket=t", "expires_at": "2026-11-29T08:01:00.000Z"}


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        (lambda c: c.result("job_1"), LARGE),
        (lambda c: c.upload(b"x"), UPLOAD),
        (lambda c: c.watch("job_1", transport="websocket"), LIVE),
        (lambda c: c.watch("job_1"), LIVE),
        (lambda c: c.follow(), TICKET),
    ],
    ids=["result", "upload", "websocket", "auto", "follow"],
)
def test_plain_links_are_not_opened(asynchronous: bool, act: Act, answer: Any) -> None:
    """A link to another machine raises InsecureUrl at once. Its token is neither sent nor in the message."""
    asked: list[str] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        return httpx2.Response(200, json=answer)

    with pytest.raises(InsecureUrl) as caught:
        call_client(handle, act, asynchronous=asynchronous)
    assert set(asked) == {"host"}
    assert "=" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://host/v1/follow/secret/status", "ftp://host/secret", "file:///etc/passwd"])
def test_plain_links_are_not_polled(url: str) -> None:
    """The polling loop opens https only, and names no token."""
    with pytest.raises(InsecureUrl) as caught:
        poll_with_backoff(url)
    assert "secret" not in str(caught.value)


# ── ways around ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def service() -> Iterator[StubService]:
    with running() as service:
        yield service


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The proxy of the environment for all schemes. Nobody should connect to it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(0)
        for name in ("http", "https", "ws", "wss", "all", "socks"):
            for variable in (f"{name}_proxy", f"{name}_proxy".upper()):
                monkeypatch.setenv(variable, f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        yield server


@pytest.mark.enable_socket
@pytest.mark.parametrize("transport", ["websocket", "sse"])
def test_plain_connections_use_no_proxy(
    service: StubService, proxy: socket.socket, asynchronous: bool, transport: Any
) -> None:
    """A proxy of the environment would carry the key to another machine."""
    service.reset(payloads(3))

    async def watch() -> list[int]:
        async with AsyncRecado(service.url, "rk_test", retries=0) as client:
            watching = client.watch(JOB_ID, transport=transport, timeout=10)
            return [event.sequence async for event in watching]

    if asynchronous:
        assert asyncio.run(watch()) == [1, 2, 3]
    else:
        with Recado(service.url, "rk_test", retries=0) as client:
            assert [event.sequence for event in client.watch(JOB_ID, transport=transport, timeout=10)] == [1, 2, 3]
    assert poll_with_backoff(f"{service.url}/follow/t/status", max_attempts=1)["status"] == "completed"
    with pytest.raises(BlockingIOError):
        proxy.accept()


@pytest.mark.enable_socket
def test_the_polling_loop_follows_no_redirect(service: StubService) -> None:
    """A redirect to another host would carry the caller's headers there."""
    service.responses = {"GET /follow/t/status": (302, None, {"Location": f"{service.url}/elsewhere"})}
    with pytest.raises(HTTPError, match="302"):
        poll_with_backoff(f"{service.url}/follow/t/status", headers={"Authorization": KEY}, max_attempts=2)
    assert len(service.requests) == 1
