"""local.runtime_client: the client of the Lambda runtime API in Python."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from local import runtime_client

pytestmark = pytest.mark.enable_socket
API = "/2018-06-01/runtime/invocation"


class RuntimeApi(BaseHTTPRequestHandler):
    calls: Calls

    def do_GET(self) -> None:
        self._respond(200, b'{"n": 1}')

    def do_POST(self) -> None:
        self._respond(400 if "unknown" in self.path else 202, b"{}")

    def _respond(self, status: int, body: bytes) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.calls.append((self.command, self.path, sent, self.headers["User-Agent"]))
        self.send_response(status)
        self.send_header("Lambda-Runtime-Aws-Request-Id", "r-1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


Calls = list[tuple[str, str, bytes, str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Method, path, body and user agent of each request."""
    RuntimeApi.calls = []
    with HTTPServer(("127.0.0.1", 0), RuntimeApi) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", f"127.0.0.1:{server.server_port}")
        runtime_client.initialize_client("agent/1")
        yield RuntimeApi.calls
        server.shutdown()
        thread.join()


def test_next_returns_the_event_and_its_headers(calls: Calls) -> None:
    """The event is bytes, and the headers have the id of the request."""
    body, headers = runtime_client.next()
    assert body == b'{"n": 1}'
    assert headers["Lambda-Runtime-Aws-Request-Id"] == "r-1"
    assert calls == [("GET", f"{API}/next", b"", "agent/1")]


def test_results_and_errors_are_posted(calls: Calls) -> None:
    """A result is posted to `response` and an exception to `error`, text as UTF-8."""
    runtime_client.post_invocation_result("r-1", b"{}", "application/json")
    runtime_client.post_error("r-1", '{"errorType": "Ñ"}', "{}")
    assert [call[:3] for call in calls] == [
        ("POST", f"{API}/r-1/response", b"{}"),
        ("POST", f"{API}/r-1/error", '{"errorType": "Ñ"}'.encode()),
    ]


def test_an_error_status_is_raised(calls: Calls) -> None:
    """As with the native client, the process ends then."""
    with pytest.raises(RuntimeError, match="400"):
        runtime_client.post_invocation_result("unknown", b"{}", "application/json")


def test_interface_is_that_of_the_native_client() -> None:
    """All functions that awslambdaric calls exist, also after an upgrade of awslambdaric."""
    source = inspect.getsource(__import__("awslambdaric.lambda_runtime_client", fromlist=["_"]))
    used = {name.split("(")[0] for name in source.split("runtime_client.")[1:]}
    offered = {name for name, value in vars(runtime_client).items() if inspect.isfunction(value)}
    assert {"initialize_client", "next", "post_invocation_result", "post_error"} <= offered
    assert {name for name in used if name.isidentifier()} <= offered
