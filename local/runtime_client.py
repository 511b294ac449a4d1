"""AWS's runtime client without its native part, which is built for Linux only: copied beside the code elsewhere.

The interface is that of the extension module `runtime_client` of awslambdaric; the protocol is
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

from __future__ import annotations

import http.client
import os

_agent = ""


def initialize_client(user_agent: str) -> None:
    """Remember what to call ourselves."""
    global _agent
    _agent = user_agent


def next() -> tuple[bytes, dict[str, str]]:
    """Wait for the next event; returns its body and the headers that describe it."""
    return _call("GET", "next")


def post_invocation_result(
    invoke_id: str, content: bytes | str, content_type: str, _invocation_id: str | None = None
) -> None:
    """Answer an event."""
    _call("POST", f"{invoke_id}/response", content, {"Content-Type": content_type})


def post_error(invoke_id: str, content: bytes | str, _xray_cause: str, _invocation_id: str | None = None) -> None:
    """Report that an event ended in an exception; `content` is the error as JSON."""
    _call("POST", f"{invoke_id}/error", content, {"Content-Type": "application/json"})


def _call(
    method: str, path: str, body: bytes | str | None = None, headers: dict[str, str] | None = None
) -> tuple[bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    try:
        content = body.encode() if isinstance(body, str) else body
        url = f"/2018-06-01/runtime/invocation/{path}"
        connection.request(method, url, content, {"User-Agent": _agent, **(headers or {})})
        response = connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise RuntimeError(f"the runtime API answered {response.status} to {path}: {answer[:200]!r}")
        return answer, dict(response.getheaders())
    finally:
        connection.close()
