"""API Gateway (WebSocket APIs): connections of clients, routes to functions, and the @connections API.

https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-websocket-api.html
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from requests.structures import CaseInsensitiveDict

from .calls import Call, client_error, outside_functions
from .clock import Clock
from .cooperative_threads import EPSILON
from .deployment import Deployment
from .functions import REGION, Functions
from .resources import Resource
from .rest_api import INTEGRATION_SECONDS, function_arn, well_formed
from .template import Unsupported

# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
FRAME_LIMIT = 32 * 1024
MESSAGE_LIMIT = 128 * 1024
IDLE_SECONDS = 600.0
LIFETIME_SECONDS = 7200.0

SERVICE = "apigatewaymanagementapi"
METHODS = {"PostToConnection": "POST", "DeleteConnection": "DELETE"}
LIFECYCLE = ("$connect", "$disconnect")
SOURCE_IP = "203.0.113.7"


class HandshakeRefused(Exception):
    """The handshake was answered with this HTTP status instead of 101."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class ConnectionClosed(ConnectionError):
    """The client tried to send over a closed connection."""


class IntegrationFailed(Exception):
    """The function failed, took too long or returned a malformed response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Route:
    """The ARN of a route's function and the timeout of its integration in seconds."""

    function: str
    seconds: float


class WebSocket:
    """The client side of one connection. `texts` are the received messages that were not taken yet, in order."""

    def __init__(self, api: WebSocketApi, connection_id: str, headers: CaseInsensitiveDict[str]) -> None:
        self.connection_id = connection_id
        self.headers = headers
        self.connected_at = self.active_at = api.clock.time
        self.texts: list[str] = []
        self._api = api
        self._close: tuple[int, str] | None = None

    @property
    def is_open(self) -> bool:
        return self._api.find(self.connection_id) is self

    @property
    def close_code(self) -> int | None:
        """The close code (RFC 6455, 7.4). None while the connection is open, and after `drop` or a reset."""
        return self._close[0] if not self.is_open and self._close else None

    @property
    def messages(self) -> list[Any]:
        """`texts` decoded from JSON. Raises ValueError if one is not JSON."""
        return [json.loads(text) for text in self.texts]

    @property
    def expires_at(self) -> float:
        """When API Gateway closes the connection if nothing is sent in either direction until then."""
        return min(self.active_at + IDLE_SECONDS, self.connected_at + LIFETIME_SECONDS)

    def take(self) -> list[Any]:
        """Return the messages and remove them."""
        taken = self.messages
        self.texts.clear()
        return taken

    @outside_functions()
    def send(self, message: Any) -> None:
        """Send a text, or anything else as JSON, in one frame, and wait for the function of its route.

        A frame of more than 32 KB closes the connection.
        """
        if not self.is_open:
            raise ConnectionClosed(self.connection_id)
        text = message if isinstance(message, str) else json.dumps(message)
        if len(text.encode()) > FRAME_LIMIT:
            self.close(1009, "Message too big")
        else:
            self._api.message(self, text)

    @outside_functions()
    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection at once, then run $disconnect. Does nothing if it is closed already."""
        if self.is_open:
            self._api.end(self, code, reason)
            self._api.run_disconnects()

    def drop(self) -> None:
        """Lose the connection without a $disconnect, which API Gateway does not guarantee."""
        self._api.remove(self)

    def receive(self, text: str) -> None:
        """Called by the API when a message reaches the client."""
        self.texts.append(text)
        self.active_at = self._api.clock.time

    def receive_close(self, code: int, reason: str) -> None:
        """Called by the API when a close frame reaches the client."""
        self._close = (code, reason)


class WebSocketApi:
    """One deployed WebSocket API with its stage and its open connections."""

    def __init__(self, api: Resource, deployment: Deployment, functions: Functions, clock: Clock) -> None:
        self.id = api.reference
        self.host = f"{self.id}.execute-api.{REGION}.amazonaws.com"
        self.functions = functions
        self.clock = clock
        self._stage = self._only_stage(deployment)
        self._selected = selection(api.properties["RouteSelectionExpression"])
        self._routes = routes(self.id, deployment)
        self._lock = threading.RLock()  # handlers call the @connections API from several threads
        self._open: dict[str, WebSocket] = {}
        self._closed: list[tuple[WebSocket, int, str]] = []
        self._ids = 0

    @property
    def stage_name(self) -> str:
        return self._stage.reference

    @property
    def url(self) -> str:
        return f"wss://{self.host}/{self.stage_name}"

    @property
    def endpoint(self) -> str:
        """The endpoint of the @connections API."""
        return f"https://{self.host}/{self.stage_name}"

    @property
    def websockets(self) -> list[WebSocket]:
        """The open connections, oldest first."""
        with self._lock:
            return [socket for socket in list(self._open.values()) if self.find(socket.connection_id)]

    def reset(self) -> None:
        self._open.clear()
        self._closed.clear()
        self._ids = 0

    def connect(self, url: SplitResult, headers: Mapping[str, str]) -> WebSocket:
        """Run $connect, then open the connection.

        Raises `HandshakeRefused` with the status that the function returned, with 502 if the function failed, with
        504 if it took too long, and with 403 if the URL is not that of the stage.
        """
        if url.path not in ("", f"/{self.stage_name}"):
            raise HandshakeRefused(403)
        socket = WebSocket(self, self._new_id(), CaseInsensitiveDict({**self._handshake_headers(), **headers}))
        self._run_connect(socket, parse_qsl(url.query, keep_blank_values=True))
        with self._lock:
            socket.active_at = self.clock.time
            self._open[socket.connection_id] = socket
        return socket

    def message(self, socket: WebSocket, text: str) -> None:
        """Invoke the function of the message's route. Routes have no responses: what it returns is ignored."""
        socket.active_at = self.clock.time
        key = self._route_key(text)
        event = self._event(socket, key, "MESSAGE", messageId=self._new_id()) | {"body": text}
        try:
            self._run(key, event)
        except IntegrationFailed as failure:
            self._send_error(socket, str(failure), event)

    def find(self, connection_id: str) -> WebSocket | None:
        """The open connection with this id. Closes the connection first if it has expired."""
        with self._lock:
            socket = self._open.get(connection_id)
            if socket and socket.expires_at <= self.clock.time + EPSILON:
                self.end(socket, 1001, "Going away")
                return None
            return socket

    def end(self, socket: WebSocket, code: int, reason: str) -> None:
        """Close a connection. `run_disconnects` runs its $disconnect later."""
        with self._lock:
            self.remove(socket)
            socket.receive_close(code, reason)
            self._closed.append((socket, code, reason))

    def remove(self, socket: WebSocket) -> None:
        if self._open.get(socket.connection_id) is socket:
            del self._open[socket.connection_id]

    def next_expiry(self) -> float | None:
        """When the next connection expires."""
        return min((socket.expires_at for socket in self._open.values()), default=None)

    def run_disconnects(self) -> int:
        """Run $disconnect for each closed connection, once. Returns how many there were."""
        for socket in list(self._open.values()):
            self.find(socket.connection_id)
        closed, self._closed = self._closed, []
        for socket, code, reason in closed:
            self._run_disconnect(socket, code, reason)
        return len(closed)

    def post(self, socket: WebSocket, data: bytes) -> None:
        with self._lock:
            socket.receive(data.decode())

    def _only_stage(self, deployment: Deployment) -> Resource:
        found = parts(self.id, deployment, "Stage")
        if len(found) != 1:
            raise Unsupported(f"{len(found)} stages of a WebSocket API")
        return found[0]

    def _run_connect(self, socket: WebSocket, query: list[tuple[str, str]]) -> None:
        if "$connect" not in self._routes:
            return
        event = self._event(socket, "$connect", "CONNECT") | headers_of(socket.headers) | query_of(query)
        try:
            status = int(self._run("$connect", event)["statusCode"])
        except IntegrationFailed as failure:
            raise HandshakeRefused(failure.status) from failure
        if not 200 <= status < 300:
            raise HandshakeRefused(status)

    def _run_disconnect(self, socket: WebSocket, code: int, reason: str) -> None:
        if "$disconnect" not in self._routes:
            return
        why = {"disconnectStatusCode": code, "disconnectReason": reason}
        headers = {"Host": self.host, "x-api-key": "", "X-Forwarded-For": "", "x-restapi": ""}
        event = self._event(socket, "$disconnect", "DISCONNECT", **why) | headers_of(headers)
        try:
            self._run("$disconnect", event)
        except IntegrationFailed:
            return

    def _route_key(self, text: str) -> str:
        try:
            value = self._selected(json.loads(text))
        except ValueError:
            value = None
        return value if value in self._routes and value not in LIFECYCLE else "$default"

    def _run(self, key: str, event: dict[str, Any]) -> dict[str, Any]:
        if key not in self._routes:
            raise IntegrationFailed(403, "Forbidden")
        route, started = self._routes[key], self.clock.time
        result = self.functions.call(self.functions.get(route.function), event)
        if self.clock.time - started > route.seconds:
            raise IntegrationFailed(504, "Endpoint request timed out")
        if result.error or not well_formed(result.value):
            raise IntegrationFailed(502, "Internal server error")
        answer: dict[str, Any] = result.value
        return answer

    def _send_error(self, socket: WebSocket, message: str, event: dict[str, Any]) -> None:
        context = event["requestContext"]
        failure = {"message": message, **{name: context[name] for name in ("connectionId", "requestId")}}
        if socket.is_open:  # the function may have closed it
            self.post(socket, json.dumps(failure).encode())

    def _event(self, socket: WebSocket, key: str, kind: str, **more: Any) -> dict[str, Any]:
        now = datetime.fromtimestamp(self.clock.time, UTC)
        request_id = self._new_id()
        context = {
            "routeKey": key,
            "eventType": kind,
            "extendedRequestId": request_id,
            "requestTime": f"{now:%d/%b/%Y:%H:%M:%S +0000}",
            "messageDirection": "IN",
            "stage": self.stage_name,
            "connectedAt": int(socket.connected_at * 1000),
            "requestTimeEpoch": int(self.clock.time * 1000),
            "identity": {"userAgent": socket.headers["User-Agent"], "sourceIp": SOURCE_IP},
            "requestId": request_id,
            "domainName": self.host,
            "connectionId": socket.connection_id,
            "apiId": self.id,
            **more,
        }
        return {"requestContext": context, "isBase64Encoded": False}

    def _handshake_headers(self) -> dict[str, str]:
        return {
            "Host": self.host,
            "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
            "User-Agent": "tests",
            "X-Forwarded-For": SOURCE_IP,
            "X-Forwarded-Port": "443",
            "X-Forwarded-Proto": "https",
        }

    def _new_id(self) -> str:
        """An id in the form of API Gateway's (11 bytes in base64) that is the same in every run."""
        with self._lock:
            self._ids += 1
            digest = hashlib.sha256(f"{self.id}/{self._ids}".encode()).digest()
        return base64.urlsafe_b64encode(digest[:11]).decode()


def parts(api_id: str, deployment: Deployment, kind: str) -> list[Resource]:
    found = deployment.of(f"AWS::ApiGatewayV2::{kind}")
    return [part for part in found if part.properties["ApiId"] == api_id]


def routes(api_id: str, deployment: Deployment) -> dict[str, Route]:
    """The routes of the API by route key."""
    integrations = {part.reference: part.properties for part in parts(api_id, deployment, "Integration")}
    found: dict[str, Route] = {}
    for part in parts(api_id, deployment, "Route"):
        integration = integrations[part.properties["Target"].removeprefix("integrations/")]
        found[part.properties["RouteKey"]] = Route(
            function=function_arn(integration["IntegrationUri"]),
            seconds=integration.get("TimeoutInMillis", INTEGRATION_SECONDS * 1000) / 1000,
        )
    return found


def selection(expression: str) -> Any:
    """A function that finds the route key in a decoded message.

    Raises `Unsupported` unless `expression` is like `$request.body.action` or `${request.body.action}`.
    """
    match = re.fullmatch(r"\$(?:request\.body\.([\w.]+)|\{request\.body\.([\w.]+)\})", expression)
    if not match:
        raise Unsupported(f"the route selection expression {expression}")
    names = (match[1] or match[2]).split(".")

    def select(body: Any) -> str | None:
        for name in names:
            body = body.get(name) if isinstance(body, dict) else None
        return body if isinstance(body, str) else None

    return select


def headers_of(headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "headers": dict(headers),
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
    }


def query_of(query: list[tuple[str, str]]) -> dict[str, Any]:
    """The query string fields of an event. API Gateway omits them without a query string."""
    values: dict[str, list[str]] = {}
    for name, value in query:
        values.setdefault(name, []).append(value)
    if not values:
        return {}
    return {"queryStringParameters": dict(query), "multiValueQueryStringParameters": values}


def is_own(endpoint: str) -> bool:
    """Whether this is API Gateway's own endpoint of an API, and not a custom domain name."""
    return (urlsplit(endpoint).hostname or "").endswith(f"execute-api.{REGION}.amazonaws.com")


def reached(apis: Iterable[WebSocketApi], endpoint: str) -> list[WebSocketApi]:
    """The APIs that a client with this endpoint may reach: all of them for a custom domain name."""
    if not is_own(endpoint):
        return list(apis)
    return [api for api in apis if endpoint.rstrip("/") == api.endpoint]


def manage(apis: Sequence[WebSocketApi], call: Call) -> dict[str, Any]:
    """The @connections API. An endpoint of API Gateway that is not that of a deployed stage is forbidden."""
    if call.operation not in OPERATIONS:
        raise NotImplementedError(call.action)
    candidates = reached(apis, call.client.meta.endpoint_url)
    if not candidates:
        raise client_error(call, "ForbiddenException", "Forbidden")
    for api in candidates:
        if socket := api.find(call.params["ConnectionId"]):
            return OPERATIONS[call.operation](api, socket, call)
    raise client_error(call, "GoneException", "")


def post_to_connection(api: WebSocketApi, socket: WebSocket, call: Call) -> dict[str, Any]:
    data = call.params["Data"]
    raw: bytes = data.encode() if isinstance(data, str) else data.read() if hasattr(data, "read") else bytes(data)
    if len(raw) > MESSAGE_LIMIT:
        raise client_error(call, "PayloadTooLargeException", "Message too long")
    api.post(socket, raw)
    return done(200)


def delete_connection(api: WebSocketApi, socket: WebSocket, call: Call) -> dict[str, Any]:
    api.end(socket, 1000, "Connection Closed Normally")
    return done(204)


def done(status: int) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPStatusCode": status, "RequestId": "simulated", "RetryAttempts": 0}}


OPERATIONS = {
    "PostToConnection": post_to_connection,
    "DeleteConnection": delete_connection,
}
