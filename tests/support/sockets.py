"""API Gateway (WebSocket): clients' connections, routes to functions, and the @connections API.

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
from .cooperative import EPSILON
from .deployment import Deployment
from .functions import REGION, Functions
from .gateway import INTEGRATION_SECONDS, function_arn, well_formed
from .resources import Resource
from .template import Unsupported

# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
FRAME_LIMIT = 32 * 1024
MESSAGE_LIMIT = 128 * 1024
IDLE_SECONDS = 600.0
LIFE_SECONDS = 7200.0

SERVICE = "apigatewaymanagementapi"
METHODS = {"PostToConnection": "POST", "GetConnection": "GET", "DeleteConnection": "DELETE"}
LIFECYCLE = ("$connect", "$disconnect")
SOURCE_IP = "203.0.113.7"


class Refused(Exception):
    """The handshake got this HTTP status instead of 101."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class Closed(ConnectionError):
    """Nothing can be sent over a connection that is closed."""


class IntegrationFailed(Exception):
    """The function gave no answer that API Gateway can use."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Route:
    """A route and the function behind it. `answers`: what the function returns as `body` goes to the client."""

    function: str
    seconds: float
    answers: bool


class Socket:
    """One connection, as its client sees it. `texts` has what arrived and was not taken yet, in order."""

    def __init__(self, api: SocketApi, connection_id: str, headers: CaseInsensitiveDict[str]) -> None:
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
        """Why it was closed (RFC 6455, 7.4); None while it is open, and after `vanish` or a reset."""
        return self._close[0] if not self.is_open and self._close else None

    @property
    def messages(self) -> list[Any]:
        """`texts`, decoded. Raises ValueError where one is not JSON."""
        return [json.loads(text) for text in self.texts]

    @property
    def ends_at(self) -> float:
        """When API Gateway will close it, if nothing is sent in either direction until then."""
        return min(self.active_at + IDLE_SECONDS, self.connected_at + LIFE_SECONDS)

    def take(self) -> list[Any]:
        """The messages, which are then forgotten."""
        taken = self.messages
        self.texts.clear()
        return taken

    @outside_functions()
    def send(self, message: Any, *, fragmented: bool = False) -> None:
        """Send a text, or anything else as JSON, and wait for the function behind its route.

        In one frame, of at most 32 KB; `fragmented`, in as many as it takes for a message of at most 128 KB.
        """
        if not self.is_open:
            raise Closed(self.connection_id)
        text = message if isinstance(message, str) else json.dumps(message)
        if len(text.encode()) > (MESSAGE_LIMIT if fragmented else FRAME_LIMIT):
            self.close(1009, "Message too big")
        else:
            self._api.message(self, text)

    @outside_functions()
    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close it: it is gone at once, and then $disconnect runs. Nothing happens if it is closed already."""
        if self.is_open:
            self._api.end(self, code, reason)
            self._api.run_disconnects()

    def vanish(self) -> None:
        """Be gone without $disconnect, which API Gateway does not promise to run."""
        self._api.forget(self)

    def arrive(self, text: str) -> None:
        """Called by the API: a message has reached the client."""
        self.texts.append(text)
        self.active_at = self._api.clock.time

    def closed_with(self, code: int, reason: str) -> None:
        """Called by the API: a close frame has reached the client."""
        self._close = (code, reason)


class SocketApi:
    """One WebSocket API, as deployed, with its open connections."""

    def __init__(self, api: Resource, deployment: Deployment, functions: Functions, clock: Clock) -> None:
        self.id = api.reference
        self.host = f"{self.id}.execute-api.{REGION}.amazonaws.com"
        self.functions = functions
        self.clock = clock
        self._stage = self._only_stage(deployment)
        self._selected = selection(api.properties["RouteSelectionExpression"])
        self._routes = routes(self.id, deployment)
        self._lock = threading.RLock()  # handlers post from threads of their own
        self._open: dict[str, Socket] = {}
        self._departed: list[tuple[Socket, int, str]] = []
        self._ids = 0

    @property
    def stage_name(self) -> str:
        return self._stage.reference

    @property
    def url(self) -> str:
        return f"wss://{self.host}/{self.stage_name}"

    @property
    def endpoint(self) -> str:
        """Of its @connections API."""
        return f"https://{self.host}/{self.stage_name}"

    @property
    def sockets(self) -> list[Socket]:
        """The open connections, in the order in which they were made."""
        with self._lock:
            return [socket for socket in list(self._open.values()) if self.find(socket.connection_id)]

    def reset(self) -> None:
        self._open.clear()
        self._departed.clear()
        self._ids = 0

    def connect(self, place: SplitResult, headers: Mapping[str, str]) -> Socket:
        """Open a connection, which does not exist before the function behind $connect has agreed.

        Raises `Refused` with the function's own status, 502 if it fails, and 403 where the URL names no stage.
        """
        if place.path not in ("", f"/{self.stage_name}"):
            raise Refused(403)
        socket = Socket(self, self._new_id(), CaseInsensitiveDict({**self._handshake_headers(), **headers}))
        self._shake_hands(socket, parse_qsl(place.query, keep_blank_values=True))
        with self._lock:
            socket.active_at = self.clock.time
            self._open[socket.connection_id] = socket
        return socket

    def message(self, socket: Socket, text: str) -> None:
        """Hand a client's message to the function of its route."""
        socket.active_at = self.clock.time
        key = self._route_key(text)
        event = self._event(socket, key, "MESSAGE", messageId=self._new_id()) | {"body": text}
        try:
            answer = self._run(key, event)
        except IntegrationFailed as failure:
            self._tell(socket, str(failure), event)
            return
        if self._routes[key].answers and answer.get("body"):
            self._deliver(socket, answer["body"])

    def find(self, connection_id: str) -> Socket | None:
        """The open connection with this id. Its limits end it, whoever looks first."""
        with self._lock:
            socket = self._open.get(connection_id)
            if socket and socket.ends_at <= self.clock.time + EPSILON:
                self.end(socket, 1001, "Going away")
                return None
            return socket

    def end(self, socket: Socket, code: int, reason: str) -> None:
        """Close a connection; its $disconnect is still to run."""
        with self._lock:
            self.forget(socket)
            socket.closed_with(code, reason)
            self._departed.append((socket, code, reason))

    def forget(self, socket: Socket) -> None:
        if self._open.get(socket.connection_id) is socket:
            del self._open[socket.connection_id]

    def next_end(self) -> float | None:
        """When the next connection reaches a limit."""
        return min((socket.ends_at for socket in self._open.values()), default=None)

    def run_disconnects(self) -> int:
        """Tell functions of connections that are closed. Returns of how many. What goes wrong there is lost."""
        for socket in list(self._open.values()):
            self.find(socket.connection_id)
        departed, self._departed = self._departed, []
        for socket, code, reason in departed:
            self._say_goodbye(socket, code, reason)
        return len(departed)

    def post(self, socket: Socket, data: bytes) -> None:
        with self._lock:
            socket.arrive(data.decode())

    def _only_stage(self, deployment: Deployment) -> Resource:
        found = parts(self.id, deployment, "Stage")
        if len(found) != 1:
            raise Unsupported(f"{len(found)} stages of a WebSocket API")
        return found[0]

    def _shake_hands(self, socket: Socket, query: list[tuple[str, str]]) -> None:
        if "$connect" not in self._routes:
            return
        event = self._event(socket, "$connect", "CONNECT") | headers_of(socket.headers) | query_of(query)
        try:
            status = int(self._run("$connect", event)["statusCode"])
        except IntegrationFailed as failure:
            raise Refused(failure.status) from failure
        if not 200 <= status < 300:
            raise Refused(status)

    def _say_goodbye(self, socket: Socket, code: int, reason: str) -> None:
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
        outcome = self.functions.call(self.functions.get(route.function), event)
        if self.clock.time - started > route.seconds:
            raise IntegrationFailed(504, "Endpoint request timed out")
        if outcome.error or not well_formed(outcome.value):
            raise IntegrationFailed(502, "Internal server error")
        answer: dict[str, Any] = outcome.value
        return answer

    def _tell(self, socket: Socket, message: str, event: dict[str, Any]) -> None:
        context = event["requestContext"]
        failure = {"message": message, **{name: context[name] for name in ("connectionId", "requestId")}}
        self._deliver(socket, json.dumps(failure))

    def _deliver(self, socket: Socket, text: str) -> None:
        if socket.is_open:  # its function may have closed it
            self.post(socket, text.encode())

    def _event(self, socket: Socket, key: str, kind: str, **more: Any) -> dict[str, Any]:
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
        variables = self._stage.properties.get("StageVariables")
        given = {"stageVariables": variables} if variables else {}
        return {"requestContext": context, "isBase64Encoded": False, **given}

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
        """The same in every run, in the form of API Gateway's: eleven bytes."""
        with self._lock:
            self._ids += 1
            digest = hashlib.sha256(f"{self.id}/{self._ids}".encode()).digest()
        return base64.urlsafe_b64encode(digest[:11]).decode()


def parts(api_id: str, deployment: Deployment, kind: str) -> list[Resource]:
    found = deployment.of(f"AWS::ApiGatewayV2::{kind}")
    return [part for part in found if part.properties["ApiId"] == api_id]


def routes(api_id: str, deployment: Deployment) -> dict[str, Route]:
    """The API's routes by their keys."""
    integrations = {part.reference: part.properties for part in parts(api_id, deployment, "Integration")}
    responses = {
        part.properties["RouteId"]
        for part in parts(api_id, deployment, "RouteResponse")
        if part.properties["RouteResponseKey"] == "$default"
    }
    found: dict[str, Route] = {}
    for part in parts(api_id, deployment, "Route"):
        integration = integrations[part.properties["Target"].removeprefix("integrations/")]
        selects = part.properties.get("RouteResponseSelectionExpression") == "$default"
        found[part.properties["RouteKey"]] = Route(
            function=function_arn(integration["IntegrationUri"]),
            seconds=integration.get("TimeoutInMillis", INTEGRATION_SECONDS * 1000) / 1000,
            answers=selects and part.reference in responses,
        )
    return found


def selection(expression: str) -> Any:
    """What finds the route key in a decoded message, by `$request.body.action` or `${request.body.action}`."""
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
    """Nothing at all without a query."""
    values: dict[str, list[str]] = {}
    for name, value in query:
        values.setdefault(name, []).append(value)
    if not values:
        return {}
    return {"queryStringParameters": dict(query), "multiValueQueryStringParameters": values}


def is_own(endpoint: str) -> bool:
    """Whether this is a host of API Gateway's, which says in its name what API it is."""
    return (urlsplit(endpoint).hostname or "").endswith(f"execute-api.{REGION}.amazonaws.com")


def reached(apis: Iterable[SocketApi], endpoint: str) -> list[SocketApi]:
    """The APIs that a client with this endpoint speaks to: all, where it is some other host's."""
    if not is_own(endpoint):
        return list(apis)
    return [api for api in apis if endpoint.rstrip("/") == api.endpoint]


def manage(apis: Sequence[SocketApi], call: Call) -> dict[str, Any]:
    """Answers the @connections API. An endpoint that is no API's and stage's is forbidden."""
    candidates = reached(apis, call.client.meta.endpoint_url)
    if not candidates:
        raise client_error(call, "ForbiddenException", "Forbidden")
    for api in candidates:
        if socket := api.find(call.params["ConnectionId"]):
            return OPERATIONS[call.operation](api, socket, call)
    raise client_error(call, "GoneException", "")


def post_to_connection(api: SocketApi, socket: Socket, call: Call) -> dict[str, Any]:
    data = call.params["Data"]
    raw: bytes = data.encode() if isinstance(data, str) else data.read() if hasattr(data, "read") else bytes(data)
    if len(raw) > MESSAGE_LIMIT:
        raise client_error(call, "PayloadTooLargeException", "Message too long")
    api.post(socket, raw)
    return done(200)


def get_connection(api: SocketApi, socket: Socket, call: Call) -> dict[str, Any]:
    return {
        "ConnectedAt": datetime.fromtimestamp(socket.connected_at, UTC),
        "LastActiveAt": datetime.fromtimestamp(socket.active_at, UTC),
        "Identity": {"SourceIp": SOURCE_IP, "UserAgent": socket.headers["User-Agent"]},
        **done(200),
    }


def delete_connection(api: SocketApi, socket: Socket, call: Call) -> dict[str, Any]:
    api.end(socket, 1000, "Connection Closed Normally")
    return done(204)


def done(status: int) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPStatusCode": status, "RequestId": "simulated", "RetryAttempts": 0}}


OPERATIONS = {
    "PostToConnection": post_to_connection,
    "GetConnection": get_connection,
    "DeleteConnection": delete_connection,
}
