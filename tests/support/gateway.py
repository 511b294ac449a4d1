"""API Gateway (REST): routes, authorizers, validation, Lambda proxy integrations and gateway responses."""

from __future__ import annotations

import base64
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
from .resources import Resource

BODY_LIMIT = 10 * 1024 * 1024
INTEGRATION_SECONDS = 29.0
STATUS = {
    "ACCESS_DENIED": 403,
    "AUTHORIZER_CONFIGURATION_ERROR": 500,
    "AUTHORIZER_FAILURE": 500,
    "BAD_REQUEST_BODY": 400,
    "BAD_REQUEST_PARAMETERS": 400,
    "DEFAULT_5XX": 502,
    "INTEGRATION_TIMEOUT": 504,
    "MISSING_AUTHENTICATION_TOKEN": 403,
    "REQUEST_TOO_LARGE": 413,
    "UNAUTHORIZED": 401,
}
MESSAGES = {
    "ACCESS_DENIED": "User is not authorized to access this resource",
    "BAD_REQUEST_BODY": "Invalid request body",
    "DEFAULT_5XX": "Internal server error",
    "INTEGRATION_TIMEOUT": "Endpoint request timed out",
    "MISSING_AUTHENTICATION_TOKEN": "Missing Authentication Token",
    "REQUEST_TOO_LARGE": "Request Too Long",
    "UNAUTHORIZED": "Unauthorized",
}
# What API Gateway does not let an integration set under its own name.
REMAPPED = {"authorization", "connection", "date", "server", "www-authenticate"}


class Refusal(Exception):
    """The gateway itself answers, with the response of this type."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(kind)
        self.kind = kind
        self.message = message or MESSAGES.get(kind, "Internal server error")


@dataclass(frozen=True)
class Response:
    """What the client gets."""

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
    """A request on its way in; `authorizer` is filled in when one has let it pass."""

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
    """One resource: a part of a path, with its methods and what is below it."""

    id: str
    path: str
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)

    def match(self, parts: list[str]) -> tuple[Node, dict[str, str]] | None:
        """The resource for the rest of a path. A literal part wins, and there is no way back from it."""
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


class Gateway:
    """One REST API, as deployed. `authorizers` can be given no cache with `caches = False`."""

    def __init__(self, api: Resource, deployment: Deployment, functions: Functions, clock: Clock) -> None:
        self.id = api.reference
        self.functions = functions
        self.clock = clock
        self.binary_types: list[str] = api.properties.get("BinaryMediaTypes", [])
        self.caches = True
        self._cache: dict[tuple[str, tuple[str, ...]], tuple[float, dict[str, Any]]] = {}
        parts = {kind: self._parts(deployment, kind) for kind in PART_KINDS}
        self.stage = next(iter(parts["Stage"]), None)
        self._root = tree(api, parts["Resource"], parts["Method"])
        self._authorizers = {part.reference: part.properties for part in parts["Authorizer"]}
        self._validators = {part.reference: part.properties for part in parts["RequestValidator"]}
        self._models = {part.reference: part.properties for part in parts["Model"]}
        self._answers = {p.properties["ResponseType"]: p.properties for p in parts["GatewayResponse"]}

    @property
    def stage_name(self) -> str:
        return self.stage.reference if self.stage else "prod"

    def reset(self) -> None:
        self.caches = True
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
        """Send a request below the stage; `target` may have a query."""
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
        except Refusal as refusal:
            return self._refuse(request, refusal)

    @property
    def host(self) -> str:
        return f"{self.id}.execute-api.{REGION}.amazonaws.com"

    def _parts(self, deployment: Deployment, kind: str) -> list[Resource]:
        found = deployment.of(f"AWS::ApiGateway::{kind}")
        return [part for part in found if part.properties["RestApiId"] == self.id]

    def _serve(self, request: Request) -> Response:
        method = self._route(request)
        if len(request.body) > BODY_LIMIT:
            raise Refusal("REQUEST_TOO_LARGE")
        if method.get("AuthorizationType") == "CUSTOM":
            self._authorize(request, self._authorizers[method["AuthorizerId"]])
        self._validate(request, method)
        integration = method["Integration"]
        if integration["Type"] == "MOCK":
            return mock_response(integration)
        return self._proxy(request, integration)

    def _route(self, request: Request) -> dict[str, Any]:
        parts = [part for part in request.path.strip("/").split("/") if part]
        found = self._root.match(parts)
        method = found and (found[0].methods.get(request.method) or found[0].methods.get("ANY"))
        if not found or not method:
            raise Refusal("MISSING_AUTHENTICATION_TOKEN")
        node, request.parameters = found
        request.resource_path, request.resource_id = node.path, node.id
        return method

    def _authorize(self, request: Request, authorizer: dict[str, Any]) -> None:
        identity = identity_of(request, authorizer)
        arn = self._method_arn(request)
        answer = self._decision(request, authorizer, identity, arn)
        context = authorizer_context(answer)
        effect = evaluate(answer["policyDocument"], arn)
        if effect != "Allow":
            suffix = " with an explicit deny" if effect == "Deny" else ""
            raise Refusal("ACCESS_DENIED", MESSAGES["ACCESS_DENIED"] + suffix)
        request.authorizer = {"principalId": str(answer["principalId"]), **context, "integrationLatency": "1"}

    def _decision(
        self, request: Request, authorizer: dict[str, Any], identity: tuple[str, ...], arn: str
    ) -> dict[str, Any]:
        seconds = float(authorizer.get("AuthorizerResultTtlInSeconds", 300)) if self.caches else 0.0
        key = (authorizer["AuthorizerUri"], identity)
        if seconds and key in self._cache and self._cache[key][0] > self.clock.time:
            return self._cache[key][1]
        answer = self._ask(request, authorizer, identity, arn)
        if seconds:
            self._cache[key] = (self.clock.time + seconds, answer)
        return answer

    def _ask(
        self, request: Request, authorizer: dict[str, Any], identity: tuple[str, ...], arn: str
    ) -> dict[str, Any]:
        event: dict[str, Any] = {"type": authorizer["Type"], "methodArn": arn}
        if authorizer["Type"] == "TOKEN":
            event["authorizationToken"] = identity[0]
        else:
            event |= self._event(request)
        outcome = self.functions.call(self._function(authorizer["AuthorizerUri"]), event)
        if outcome.error:
            unauthorized = str(outcome.error) == "Unauthorized"
            raise Refusal("UNAUTHORIZED" if unauthorized else "AUTHORIZER_FAILURE")
        answer = outcome.value
        if not isinstance(answer, dict) or not {"principalId", "policyDocument"} <= set(answer):
            raise Refusal("AUTHORIZER_CONFIGURATION_ERROR")
        return answer

    def _validate(self, request: Request, method: dict[str, Any]) -> None:
        validator = self._validators.get(method.get("RequestValidatorId", ""), {})
        if validator.get("ValidateRequestParameters"):
            validate_parameters(request, method.get("RequestParameters", {}))
        if validator.get("ValidateRequestBody"):
            self._validate_body(request, method.get("RequestModels", {}))

    def _validate_body(self, request: Request, models: dict[str, str]) -> None:
        content_type = request.headers.get("Content-Type", "application/json").split(";")[0]
        if content_type not in models:
            return
        import jsonschema  # slow to import, and few APIs have models

        schema = self._models[models[content_type]]["Schema"]
        try:
            jsonschema.Draft4Validator(schema).validate(json.loads(request.body))
        except (ValueError, jsonschema.ValidationError) as error:
            raise Refusal("BAD_REQUEST_BODY") from error

    def _proxy(self, request: Request, integration: dict[str, Any]) -> Response:
        if integration["Type"] != "AWS_PROXY":
            raise NotImplementedError(f"an integration of type {integration['Type']}")
        started = self.clock.time
        outcome = self.functions.call(self._function(integration["Uri"]), self._event(request))
        if self.clock.time - started > integration.get("TimeoutInMillis", INTEGRATION_SECONDS * 1000) / 1000:
            raise Refusal("INTEGRATION_TIMEOUT")
        if outcome.error:
            raise Refusal("DEFAULT_5XX")
        return self._answer(request, outcome.value)

    def _answer(self, request: Request, answer: Any) -> Response:
        if not well_formed(answer):
            raise Refusal("DEFAULT_5XX")
        headers: CaseInsensitiveDict[str] = CaseInsensitiveDict({"Content-Type": "application/json"})
        given = {key: [value] for key, value in (answer.get("headers") or {}).items()}
        for name, values in {**given, **(answer.get("multiValueHeaders") or {})}.items():
            exposed = f"x-amzn-Remapped-{name}" if name.lower() in REMAPPED else name
            headers[exposed] = ", ".join(as_text(value) for value in values)
        headers["x-amzn-RequestId"] = request.id
        body = (answer.get("body") or "").encode()
        if answer.get("isBase64Encoded") and self._is_binary(request.headers.get("Accept", "").split(",")[0]):
            body = base64.b64decode(body)
        return Response(int(answer["statusCode"]), headers, body)

    def _is_binary(self, media_type: str) -> bool:
        return bool({"*/*", media_type.split(";")[0].strip()} & set(self.binary_types))

    def _function(self, uri: str) -> Any:
        return self.functions.get(function_arn(uri))

    def _method_arn(self, request: Request) -> str:
        path = quote(request.path.strip("/"))
        return f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{self.id}/{self.stage_name}/{request.method}/{path}"

    def _event(self, request: Request) -> dict[str, Any]:
        binary = bool(request.body) and self._is_binary(request.headers.get("Content-Type", ""))
        body = base64.b64encode(request.body).decode() if binary else request.body.decode("utf-8", "replace")
        return {
            "resource": request.resource_path,
            "path": unquote(request.path),
            "httpMethod": request.method,
            "headers": dict(request.headers),
            "multiValueHeaders": {name: [value] for name, value in request.headers.items()},
            "queryStringParameters": request.query_last(),
            "multiValueQueryStringParameters": request.query_all(),
            "pathParameters": request.parameters or None,
            "stageVariables": self.stage.properties.get("Variables") if self.stage else None,
            "requestContext": self._context(request),
            "body": body or None,
            "isBase64Encoded": binary,
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

    def _refuse(self, request: Request, refusal: Refusal) -> Response:
        status = STATUS[refusal.kind]
        family = "DEFAULT_4XX" if status < 500 else "DEFAULT_5XX"
        answer = self._answers.get(refusal.kind) or self._answers.get(family) or {}
        variables = self._variables(request, refusal)
        templates = answer.get("ResponseTemplates") or {
            "application/json": '{"message":$context.error.messageString}'
        }
        media_type = chosen_type(templates, request.headers.get("Accept", ""))
        headers: CaseInsensitiveDict[str] = CaseInsensitiveDict({"Content-Type": media_type})
        headers["x-amzn-RequestId"] = request.id
        headers["x-amzn-ErrorType"] = refusal.kind
        for name, value in (answer.get("ResponseParameters") or {}).items():
            headers[name.removeprefix("gatewayresponse.header.")] = static_or_variable(value, variables)
        body = filled(templates[media_type], variables)
        return Response(int(answer.get("StatusCode", status)), headers, body.encode())

    def _variables(self, request: Request, refusal: Refusal) -> dict[str, str]:
        values = {
            "context.error.message": refusal.message,
            "context.error.messageString": json.dumps(refusal.message),
            "context.error.responseType": refusal.kind,
            "context.error.validationErrorString": refusal.message,
            "context.identity.sourceIp": request.source_ip,
            **{f"context.authorizer.{key}": value for key, value in (request.authorizer or {}).items()},
        }
        context = self._context(request).items()
        return values | {f"context.{key}": str(value) for key, value in context if not isinstance(value, dict)}


PART_KINDS = ("Stage", "Resource", "Method", "Authorizer", "RequestValidator", "Model", "GatewayResponse")


def function_arn(uri: str) -> str:
    """The function of an integration's or authorizer's URI."""
    return uri.split("/functions/")[1].removesuffix("/invocations")


def tree(api: Resource, resources: list[Resource], methods: list[Resource]) -> Node:
    """The root of the API's resources."""
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


def validate_parameters(request: Request, declared: dict[str, bool]) -> None:
    """Refuse a request without the parameters that are declared as `true`."""
    places: dict[str, Mapping[str, str]] = {
        "header": request.headers,
        "querystring": dict(request.query),
        "path": request.parameters,
    }
    required = [name.split(".", 3)[2:] for name, needed in declared.items() if needed]
    missing = ", ".join(name for place, name in required if not places[place].get(name))
    if missing:
        raise Refusal("BAD_REQUEST_PARAMETERS", f"Missing required request parameters: [{missing}]")


def identity_of(request: Request, authorizer: dict[str, Any]) -> tuple[str, ...]:
    """The values of the identity sources. One that is missing or empty ends the request."""
    places: dict[str, Mapping[str, str]] = {
        "header": request.headers,
        "querystring": dict(request.query),
    }
    values = []
    for source in filter(None, authorizer.get("IdentitySource", "").split(",")):
        _, _, place, name = source.strip().split(".", 3)
        values.append(places[place].get(name, ""))
    if not all(values):
        raise Refusal("UNAUTHORIZED")
    return tuple(values)


def authorizer_context(answer: dict[str, Any]) -> dict[str, str]:
    """The authorizer's context as functions get it: every value a string, and none of them a structure."""
    context = answer.get("context") or {}
    if any(isinstance(value, dict | list) for value in context.values()):
        raise Refusal("AUTHORIZER_CONFIGURATION_ERROR")
    return {key: as_text(value) for key, value in context.items() if value is not None}


def evaluate(policy: dict[str, Any], arn: str) -> str | None:
    """`Allow`, `Deny`, or None where no statement speaks of the method."""
    effects = {
        statement["Effect"]
        for statement in policy["Statement"]
        if any(covers(pattern, "execute-api:Invoke") for pattern in listed(statement["Action"]))
        and any(covers(pattern, arn) for pattern in listed(statement["Resource"]))
    }
    return "Deny" if "Deny" in effects else "Allow" if "Allow" in effects else None


def covers(pattern: str, value: str) -> bool:
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, value, re.IGNORECASE) is not None


def listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def well_formed(answer: Any) -> bool:
    """Whether API Gateway accepts this from a function; otherwise the client gets a 502."""
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
    """The first integration response of a MOCK integration, which is all that CDK's preflight uses."""
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
    """Put the values in. An unknown variable becomes nothing, as in API Gateway."""
    names = r"\$(?:\{(context\.[\w.]+)\}|(context\.[A-Za-z]\w*(?:\.[A-Za-z]\w*)*))"
    return re.sub(names, lambda match: variables.get(match[1] or match[2], ""), template)
