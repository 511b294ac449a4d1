"""API Gateway (REST APIs): routes, authorizers, validation, Lambda proxy integrations and gateway responses.

https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-rest-api.html
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from requests.structures import CaseInsensitiveDict

from .clock import Clock
from .deployment import Deployment
from .functions import ACCOUNT, REGION, Functions
from .iam_policies import effect_of
from .resources import Resource

BODY_LIMIT = 10 * 1024 * 1024
INTEGRATION_SECONDS = 29.0
STATUS = {
    "ACCESS_DENIED": 403,
    "AUTHORIZER_CONFIGURATION_ERROR": 500,
    "AUTHORIZER_FAILURE": 500,
    "DEFAULT_5XX": 502,
    "INTEGRATION_TIMEOUT": 504,
    "MISSING_AUTHENTICATION_TOKEN": 403,
    "REQUEST_TOO_LARGE": 413,
    "UNAUTHORIZED": 401,
}
MESSAGES = {
    "ACCESS_DENIED": "User is not authorized to access this resource",
    "DEFAULT_5XX": "Internal server error",
    "INTEGRATION_TIMEOUT": "Endpoint request timed out",
    "MISSING_AUTHENTICATION_TOKEN": "Missing Authentication Token",
    "REQUEST_TOO_LARGE": "Request Too Long",
    "UNAUTHORIZED": "Unauthorized",
}
# API Gateway renames these headers of an integration's response.
REMAPPED = {"authorization", "connection", "date", "server", "www-authenticate"}


class GatewayError(Exception):
    """API Gateway answers itself, with the gateway response of this type."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(kind)
        self.kind = kind
        self.message = message or MESSAGES.get(kind, "Internal server error")


@dataclass(frozen=True)
class Response:
    """The response to the client."""

    status: int
    headers: CaseInsensitiveDict[str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Request:
    """A request. `authorizer` is the context of the authorizer that has allowed it."""

    method: str
    path: str
    headers: CaseInsensitiveDict[str]
    query: list[tuple[str, str]]
    body: bytes
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    source_ip: str = "203.0.113.7"
    resource_path: str = ""
    resource_id: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    authorizer: dict[str, str] | None = None

    def query_last(self) -> dict[str, str] | None:
        return dict(self.query) or None

    def query_all(self) -> dict[str, list[str]] | None:
        values: dict[str, list[str]] = {}
        for key, value in self.query:
            values.setdefault(key, []).append(value)
        return values or None


@dataclass
class Node:
    """One API resource: a part of a path, with its methods and child resources."""

    id: str
    path: str
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)

    def match(self, parts: list[str]) -> tuple[Node, dict[str, str]] | None:
        """The resource for the rest of a path, with its path parameters.

        A literal part wins over a parameter, and there is no backtracking.
        """
        if not parts:
            return self, {}
        if parts[0] in self.children:
            return self.children[parts[0]].match(parts[1:])
        for name, child in sorted(self.children.items(), key=lambda item: item[0].endswith("+}")):
            if name.endswith("+}"):
                return child, {name[1:-2]: "/".join(parts)}
            if name.startswith("{"):
                found = child.match(parts[1:])
                return found and (found[0], {name[1:-1]: unquote(parts[0]), **found[1]})
        return None


class RestApi:
    """One deployed REST API with its stage."""

    def __init__(self, api: Resource, deployment: Deployment, functions: Functions, clock: Clock) -> None:
        self.id = api.reference
        self.functions = functions
        self.clock = clock
        self._cache: dict[tuple[str, tuple[str, ...]], tuple[float, dict[str, Any]]] = {}
        parts = {kind: self._parts(deployment, kind) for kind in PART_KINDS}
        self.stage = next(iter(parts["Stage"]), None)
        self._root = tree(api, parts["Resource"], parts["Method"])
        self._authorizers = {part.reference: part.properties for part in parts["Authorizer"]}
        self._answers = {p.properties["ResponseType"]: p.properties for p in parts["GatewayResponse"]}

    @property
    def stage_name(self) -> str:
        return self.stage.reference if self.stage else "prod"

    def reset(self) -> None:
        self._cache.clear()

    def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        params: Iterable[tuple[str, str]] = (),
    ) -> Response:
        """Send a request. `target` is the path below the stage, with or without a query string."""
        url = urlsplit(target)
        request = Request(
            method=method.upper(),
            path=url.path or "/",
            headers=CaseInsensitiveDict({"Host": self.host, "User-Agent": "tests", **(headers or {})}),
            query=[*parse_qsl(url.query, keep_blank_values=True), *params],
            body=body,
        )
        try:
            return self._serve(request)
        except GatewayError as error:
            return self._gateway_response(request, error)

    @property
    def host(self) -> str:
        return f"{self.id}.execute-api.{REGION}.amazonaws.com"

    def _parts(self, deployment: Deployment, kind: str) -> list[Resource]:
        found = deployment.of(f"AWS::ApiGateway::{kind}")
        return [part for part in found if part.properties["RestApiId"] == self.id]

    def _serve(self, request: Request) -> Response:
        method = self._route(request)
        if len(request.body) > BODY_LIMIT:
            raise GatewayError("REQUEST_TOO_LARGE")
        if method.get("AuthorizationType") == "CUSTOM":
            self._authorize(request, self._authorizers[method["AuthorizerId"]])
        integration = method["Integration"]
        if integration["Type"] == "MOCK":
            return mock_response(integration)
        return self._proxy(request, integration)

    def _route(self, request: Request) -> dict[str, Any]:
        parts = [part for part in request.path.strip("/").split("/") if part]
        found = self._root.match(parts)
        method = found and (found[0].methods.get(request.method) or found[0].methods.get("ANY"))
        if not found or not method:
            raise GatewayError("MISSING_AUTHENTICATION_TOKEN")
        node, request.parameters = found
        request.resource_path, request.resource_id = node.path, node.id
        return method

    def _authorize(self, request: Request, authorizer: dict[str, Any]) -> None:
        identity = identity_of(request, authorizer)
        arn = self._method_arn(request)
        answer = self._authorizer_result(request, authorizer, identity, arn)
        context = authorizer_context(answer)
        effect = effect_of(answer["policyDocument"], arn)
        if effect != "Allow":
            suffix = " with an explicit deny" if effect == "Deny" else ""
            raise GatewayError("ACCESS_DENIED", MESSAGES["ACCESS_DENIED"] + suffix)
        request.authorizer = {"principalId": str(answer["principalId"]), **context, "integrationLatency": "1"}

    def _authorizer_result(
        self, request: Request, authorizer: dict[str, Any], identity: tuple[str, ...], arn: str
    ) -> dict[str, Any]:
        seconds = float(authorizer.get("AuthorizerResultTtlInSeconds", 300))
        key = (authorizer["AuthorizerUri"], identity)
        if seconds and key in self._cache and self._cache[key][0] > self.clock.time:
            return self._cache[key][1]
        answer = self._invoke_authorizer(request, authorizer, identity, arn)
        if seconds:
            self._cache[key] = (self.clock.time + seconds, answer)
        return answer

    def _invoke_authorizer(
        self, request: Request, authorizer: dict[str, Any], identity: tuple[str, ...], arn: str
    ) -> dict[str, Any]:
        event = {"type": "REQUEST", "methodArn": arn, **self._event(request)}
        result = self.functions.call(self._function(authorizer["AuthorizerUri"]), event)
        if result.error:
            unauthorized = str(result.error) == "Unauthorized"
            raise GatewayError("UNAUTHORIZED" if unauthorized else "AUTHORIZER_FAILURE")
        answer = result.value
        if not isinstance(answer, dict) or not {"principalId", "policyDocument"} <= set(answer):
            raise GatewayError("AUTHORIZER_CONFIGURATION_ERROR")
        return answer

    def _proxy(self, request: Request, integration: dict[str, Any]) -> Response:
        if integration["Type"] != "AWS_PROXY":
            raise NotImplementedError(f"an integration of type {integration['Type']}")
        started = self.clock.time
        result = self.functions.call(self._function(integration["Uri"]), self._event(request))
        if self.clock.time - started > integration.get("TimeoutInMillis", INTEGRATION_SECONDS * 1000) / 1000:
            raise GatewayError("INTEGRATION_TIMEOUT")
        if result.error:
            raise GatewayError("DEFAULT_5XX")
        return self._answer(request, result.value)

    def _answer(self, request: Request, answer: Any) -> Response:
        if not well_formed(answer):
            raise GatewayError("DEFAULT_5XX")
        headers: CaseInsensitiveDict[str] = CaseInsensitiveDict({"Content-Type": "application/json"})
        given = {key: [value] for key, value in (answer.get("headers") or {}).items()}
        for name, values in {**given, **(answer.get("multiValueHeaders") or {})}.items():
            exposed = f"x-amzn-Remapped-{name}" if name.lower() in REMAPPED else name
            headers[exposed] = ", ".join(as_text(value) for value in values)
        headers["x-amzn-RequestId"] = request.id
        # Without binary media types, API Gateway does not decode a body in base64.
        return Response(int(answer["statusCode"]), headers, (answer.get("body") or "").encode())

    def _function(self, uri: str) -> Any:
        return self.functions.get(function_arn(uri))

    def _method_arn(self, request: Request) -> str:
        path = quote(request.path.strip("/"))
        return f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{self.id}/{self.stage_name}/{request.method}/{path}"

    def _event(self, request: Request) -> dict[str, Any]:
        return {
            "resource": request.resource_path,
            "path": unquote(request.path),
            "httpMethod": request.method,
            "headers": dict(request.headers),
            "multiValueHeaders": {name: [value] for name, value in request.headers.items()},
            "queryStringParameters": request.query_last(),
            "multiValueQueryStringParameters": request.query_all(),
            "pathParameters": request.parameters or None,
            "stageVariables": None,
            "requestContext": self._context(request),
            "body": request.body.decode("utf-8", "replace") or None,
            "isBase64Encoded": False,
        }

    def _context(self, request: Request) -> dict[str, Any]:
        now = datetime.fromtimestamp(self.clock.time, UTC)
        context: dict[str, Any] = {
            "accountId": ACCOUNT,
            "apiId": self.id,
            "domainName": self.host,
            "domainPrefix": self.id,
            "extendedRequestId": request.id,
            "httpMethod": request.method,
            "identity": {"sourceIp": request.source_ip, "userAgent": request.headers["User-Agent"]},
            "path": f"/{self.stage_name}{request.path}",
            "protocol": "HTTP/1.1",
            "requestId": request.id,
            "requestTime": f"{now:%d/%b/%Y:%H:%M:%S +0000}",
            "requestTimeEpoch": int(self.clock.time * 1000),
            "resourceId": request.resource_id,
            "resourcePath": request.resource_path,
            "stage": self.stage_name,
        }
        if request.authorizer is not None:
            context["authorizer"] = request.authorizer
        return context

    def _gateway_response(self, request: Request, error: GatewayError) -> Response:
        status = STATUS[error.kind]
        family = "DEFAULT_4XX" if status < 500 else "DEFAULT_5XX"
        answer = self._answers.get(error.kind) or self._answers.get(family) or {}
        variables = self._variables(request, error)
        templates = answer.get("ResponseTemplates") or {
            "application/json": '{"message":$context.error.messageString}'
        }
        media_type = chosen_type(templates, request.headers.get("Accept", ""))
        headers: CaseInsensitiveDict[str] = CaseInsensitiveDict({"Content-Type": media_type})
        headers["x-amzn-RequestId"] = request.id
        headers["x-amzn-ErrorType"] = error.kind
        for name, value in (answer.get("ResponseParameters") or {}).items():
            headers[name.removeprefix("gatewayresponse.header.")] = static_or_variable(value, variables)
        body = filled(templates[media_type], variables)
        return Response(int(answer.get("StatusCode", status)), headers, body.encode())

    def _variables(self, request: Request, error: GatewayError) -> dict[str, str]:
        values = {
            "context.error.message": error.message,
            "context.error.messageString": json.dumps(error.message),
            "context.error.responseType": error.kind,
            "context.identity.sourceIp": request.source_ip,
            **{f"context.authorizer.{key}": value for key, value in (request.authorizer or {}).items()},
        }
        context = self._context(request).items()
        return values | {f"context.{key}": str(value) for key, value in context if not isinstance(value, dict)}


PART_KINDS = ("Stage", "Resource", "Method", "Authorizer", "GatewayResponse")


def function_arn(uri: str) -> str:
    """The ARN of the function in the URI of an integration or authorizer."""
    return uri.split("/functions/")[1].removesuffix("/invocations")


def tree(api: Resource, resources: list[Resource], methods: list[Resource]) -> Node:
    """The root resource of the API."""
    root = Node(api.attributes["RootResourceId"], "/")
    nodes = {root.id: root, **{resource.reference: Node(resource.reference, "") for resource in resources}}
    for resource in resources:
        nodes[resource.properties["ParentId"]].children[resource.properties["PathPart"]] = nodes[
            resource.reference
        ]
    for method in methods:
        nodes[method.properties["ResourceId"]].methods[method.properties["HttpMethod"]] = method.properties
    name_paths(root, "")
    return root


def name_paths(node: Node, above: str) -> None:
    for part, child in node.children.items():
        child.path = f"{above}/{part}"
        name_paths(child, child.path)


def identity_of(request: Request, authorizer: dict[str, Any]) -> tuple[str, ...]:
    """The values of the identity sources. Raises `GatewayError` if one is missing or empty."""
    places: dict[str, Mapping[str, str]] = {
        "header": request.headers,
        "querystring": dict(request.query),
    }
    values = []
    for source in filter(None, authorizer.get("IdentitySource", "").split(",")):
        _, _, place, name = source.strip().split(".", 3)
        values.append(places[place].get(name, ""))
    if not all(values):
        raise GatewayError("UNAUTHORIZED")
    return tuple(values)


def authorizer_context(answer: dict[str, Any]) -> dict[str, str]:
    """The authorizer's context as functions get it: all values are strings. Lists and objects are refused."""
    context = answer.get("context") or {}
    if any(isinstance(value, dict | list) for value in context.values()):
        raise GatewayError("AUTHORIZER_CONFIGURATION_ERROR")
    return {key: as_text(value) for key, value in context.items() if value is not None}


def well_formed(answer: Any) -> bool:
    """Whether API Gateway accepts this response of a function. If not, the client gets a 502."""
    if not isinstance(answer, dict) or set(answer) - PROXY_FIELDS:
        return False
    status, body = answer.get("statusCode"), answer.get("body")
    valid_status = str(status).isdigit() and 100 <= int(str(status)) <= 599
    values = list((answer.get("headers") or {}).values())
    return (
        valid_status
        and (body is None or isinstance(body, str))
        and not any(isinstance(v, dict | list) for v in values)
    )


PROXY_FIELDS = {"statusCode", "headers", "multiValueHeaders", "body", "isBase64Encoded"}


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def mock_response(integration: dict[str, Any]) -> Response:
    """The first integration response of a MOCK integration; the CORS preflight of CDK uses no other."""
    answer = integration["IntegrationResponses"][0]
    headers: CaseInsensitiveDict[str] = CaseInsensitiveDict(
        {
            name.removeprefix("method.response.header."): value.strip("'")
            for name, value in answer.get("ResponseParameters", {}).items()
        }
    )
    return Response(int(answer["StatusCode"]), headers, b"")


def chosen_type(templates: dict[str, str], accept: str) -> str:
    wanted = [part.split(";")[0].strip() for part in accept.split(",")]
    for media_type in [*wanted, "application/json"]:
        if media_type in templates:
            return media_type
    return next(iter(templates))


def static_or_variable(value: str, variables: dict[str, str]) -> str:
    return value.strip("'") if value.startswith("'") else variables.get(value, "")


def filled(template: str, variables: dict[str, str]) -> str:
    """Replace the variables of a template. An unknown variable becomes an empty string, as in API Gateway."""
    names = r"\$(?:\{(context\.[\w.]+)\}|(context\.[A-Za-z]\w*(?:\.[A-Za-z]\w*)*))"
    return re.sub(names, lambda match: variables.get(match[1] or match[2], ""), template)
