"""The REST API: authorization, routes, throttling, access log, and the gateway's own errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core import http
from tests.stacks.templates import Assembly, Resource

CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
PROBLEM_JSON = "application/problem+json"
OPEN = {("GET", "/health"), ("GET", "/openapi.json"), ("GET", "/docs")}
LINKED = {("GET", "/follow/{token}/status"), ("GET", "/follow/{token}/events")}  # the token stands for a key
# None of these can contain a token or a text.
LOGGED = {
    *("$context.requestId", "$context.requestTime", "$context.httpMethod", "$context.resourcePath"),
    *("$context.status", "$context.responseLatency", "$context.authorizer.owner", "$context.identity.sourceIp"),
    "$context.error.responseType",
}

STATUSES = {
    "UNAUTHORIZED": "401",
    "ACCESS_DENIED": "403",
    "MISSING_AUTHENTICATION_TOKEN": "404",
    "REQUEST_TOO_LARGE": "413",
    "THROTTLED": "429",
    "INTEGRATION_TIMEOUT": "504",
    "DEFAULT_4XX": None,
    "DEFAULT_5XX": None,
}


def paths(app: Assembly) -> dict[str, str]:
    """Paths by the names of their resources."""
    (api,) = app.of("AWS::ApiGateway::RestApi")
    found = {api.name: "", f"{api.name}.RootResourceId": ""}
    for resource in sorted(app.of("AWS::ApiGateway::Resource"), key=lambda r: len(r.path)):
        parent = last(resource.properties["ParentId"])
        found[resource.name] = f"{found[parent]}/{resource.properties['PathPart']}"
    return found


def last(reference: str) -> str:
    return reference.rpartition(":")[2]


def methods(app: Assembly) -> dict[tuple[str, str], dict[str, Any]]:
    """Properties of methods by (verb, path)."""
    by_resource = paths(app)
    return {
        (m.properties["HttpMethod"], by_resource[last(m.properties["ResourceId"])] or "/"): m.properties
        for m in app.of("AWS::ApiGateway::Method")
    }


def stage(app: Assembly) -> dict[str, Any]:
    (found,) = app.of("AWS::ApiGateway::Stage")
    return found.properties


def gateway_responses(app: Assembly) -> dict[str, dict[str, Any]]:
    return {r.properties["ResponseType"]: r.properties for r in app.of("AWS::ApiGateway::GatewayResponse")}


@pytest.mark.parametrize("name", ["app", "overridden"])
def test_every_method_but_the_open_ones_needs_a_key(request: pytest.FixtureRequest, name: str) -> None:
    """Health, OpenAPI, docs, links and preflight are open. Every other method has the authorizer."""
    assembly: Assembly = request.getfixturevalue(name)
    (authorizer,) = assembly.of("AWS::ApiGateway::Authorizer")
    for (verb, path), method in methods(assembly).items():
        if verb == "OPTIONS" or (verb, path) in OPEN | LINKED:
            assert method["AuthorizationType"] == "NONE", (verb, path)
        else:
            assert method["AuthorizationType"] == "CUSTOM", (verb, path)
            assert method["AuthorizerId"] == authorizer.name, (verb, path)


def test_open_methods(app: Assembly) -> None:
    """Exactly three calls and two links need no key. Without configured origins there is no preflight."""
    keyless = {call for call, method in methods(app).items() if method["AuthorizationType"] == "NONE"}
    assert keyless == OPEN | LINKED


def test_each_path_leads_to_its_function(app: Assembly) -> None:
    """`long_poll` gets the calls that hold a request open, `search` gets searches, and `api` gets the rest."""
    functions = {f"{function.name}/invocations": name for name, function in app.functions().items()}
    found = {call: functions[last(method["Integration"]["Uri"])] for call, method in methods(app).items()}
    assert found == {
        ("ANY", "/jobs"): "api",
        ("ANY", "/jobs/{job_id}"): "api",
        ("ANY", "/jobs/{job_id}/{proxy+}"): "api",
        ("ANY", "/jobs/{job_id}/status"): "long_poll",
        ("ANY", "/jobs/{job_id}/events"): "long_poll",
        ("ANY", "/webhooks"): "api",
        ("ANY", "/webhooks/{webhook_id}"): "api",
        ("ANY", "/webhooks/{webhook_id}/{proxy+}"): "api",
        ("ANY", "/webhooks/{webhook_id}/test"): "long_poll",
        ("ANY", "/search"): "search",
        ("ANY", "/{proxy+}"): "api",
        **dict.fromkeys(OPEN, "api"),
        **dict.fromkeys(LINKED, "long_poll"),
    }


def test_integrations_pass_the_whole_request(app: Assembly) -> None:
    """Every integration is a Lambda proxy, which API Gateway has to call by POST."""
    found = {(m["Integration"]["Type"], m["Integration"]["IntegrationHttpMethod"]) for m in methods(app).values()}
    assert found == {("AWS_PROXY", "POST")}


def test_gateway_may_call_the_function_of_each_method(app: Assembly) -> None:
    """Each method's function has a permission for its verb and path."""
    (api,) = app.of("AWS::ApiGateway::RestApi")
    for (verb, path), method in methods(app).items():
        function = last(method["Integration"]["Uri"]).removesuffix("/invocations")
        allowed = [
            source(p) for p in app.of("AWS::Lambda::Permission") if last(p.properties["FunctionName"]) == function
        ]
        segments = ["*" if part.startswith("{") else part for part in path.strip("/").split("/")]
        wanted = "/".join([api.name, stage_name(app), "*" if verb == "ANY" else verb, *segments])
        assert wanted in allowed, (verb, path)


def source(permission: Resource) -> str:
    return last(permission.properties["SourceArn"])


def stage_name(app: Assembly) -> str:
    (found,) = app.of("AWS::ApiGateway::Stage")
    return found.name


def test_authorizer_results_are_cached_by_key(app: Assembly) -> None:
    """The only identity source is the Authorization header, and the cache's lifetime is configured."""
    (authorizer,) = app.of("AWS::ApiGateway::Authorizer")
    assert authorizer.properties["Type"] == "REQUEST"
    assert authorizer.properties["IdentitySource"] == "method.request.header.Authorization"
    assert authorizer.properties["AuthorizerResultTtlInSeconds"] == CONTEXT["authorizer_cache_seconds"]
    assert app.functions()["authorizer"].name in authorizer.properties["AuthorizerUri"]


@pytest.mark.parametrize("name", ["api", "long_poll"])
def test_links_end_before_a_revoked_key(app: Assembly, name: str) -> None:
    """Functions that make and check links cache epochs for a minute, and no longer than the authorizer."""
    variables = app.functions()[name].properties["Environment"]["Variables"]
    assert int(variables["EPOCH_CACHE_SECONDS"]) == min(60, CONTEXT["authorizer_cache_seconds"])


def test_calls_are_throttled_as_configured(app: Assembly) -> None:
    """Rate and burst of every method are configured, and no payload is logged.

    A method that needs no key has a throttle of its own, so it takes no call from those who have one.
    """
    common, *open_methods = stage(app)["MethodSettings"]
    assert common == {
        "HttpMethod": "*",
        "ResourcePath": "/*",
        "ThrottlingRateLimit": CONTEXT["api_throttle_rate"],
        "ThrottlingBurstLimit": CONTEXT["api_throttle_burst"],
        "DataTraceEnabled": False,
    }
    throttled = {
        (method["HttpMethod"], method["ResourcePath"].replace("~1", "/")[1:]): method for method in open_methods
    }
    assert throttled.keys() == OPEN | LINKED
    for call, method in throttled.items():
        group = "open" if call in OPEN else "link"
        for name, knob in (("ThrottlingRateLimit", "rate"), ("ThrottlingBurstLimit", "burst")):
            assert method[name] == CONTEXT[f"{group}_throttle_{knob}"] < common[name]


def test_no_trace_has_a_token(app: Assembly) -> None:
    """The stage is not traced: X-Ray records paths, and the path of a link is a token."""
    assert not stage(app).get("TracingEnabled")


def test_large_responses_are_compressed(app: Assembly) -> None:
    """API Gateway compresses a response of over a kibibyte for clients that accept it."""
    (api,) = app.of("AWS::ApiGateway::RestApi")
    assert api.properties["MinimumCompressionSize"] == 1024


def test_the_access_log_has_no_path_and_no_query(app: Assembly) -> None:
    """The access log has the resource instead, since a path or query may contain a token. Its format is JSON."""
    logged = json.loads(stage(app)["AccessLogSetting"]["Format"])
    assert set(logged.values()) <= LOGGED
    assert {"request_id", "resource", "status", "owner"} <= set(logged)


def test_access_is_logged(app: Assembly) -> None:
    """The access log goes to a log group of the stack."""
    assert last(stage(app)["AccessLogSetting"]["DestinationArn"]) in {
        g.name for g in app.of("AWS::Logs::LogGroup")
    }


@pytest.mark.parametrize("name", STATUSES)
def test_gateway_errors_are_problem_documents(app: Assembly, name: str) -> None:
    """For every `Accept` header, an error of the gateway is an RFC 9457 problem with the API's type and title."""
    response = gateway_responses(app)[name]
    assert response["ResponseParameters"]["gatewayresponse.header.Content-Type"] == f"'{PROBLEM_JSON}'"
    assert set(response["ResponseTemplates"]) == {"application/json", PROBLEM_JSON}
    for template in response["ResponseTemplates"].values():
        problem = json.loads(template)
        assert {"type", "title", "detail"} <= set(problem)
        assert problem.get("status") == (int(response["StatusCode"]) if "StatusCode" in response else None)
        kind = problem["type"].rpartition(":")[2]
        of_the_api = json.loads(http.problem(500, kind, "").body or "")
        assert (problem["type"], problem["title"]) == (of_the_api["type"], of_the_api["title"])


def test_gateway_errors_quote_nothing_of_the_request(app: Assembly) -> None:
    """The templates have no variables, which could quote a token or break the JSON."""
    assert not any("$" in t for r in gateway_responses(app).values() for t in r["ResponseTemplates"].values())


def test_statuses_of_gateway_errors(app: Assembly) -> None:
    """Each type of error has its status, and 401 alone has `WWW-Authenticate`."""
    responses = gateway_responses(app)
    assert {name: responses[name].get("StatusCode") for name in responses} == STATUSES
    challenge = "gatewayresponse.header.WWW-Authenticate"
    assert {name for name in responses if challenge in responses[name]["ResponseParameters"]} == {"UNAUTHORIZED"}


def test_gateway_errors_have_cors_headers(app: Assembly, overridden: Assembly) -> None:
    """The gateway's errors allow the configured origin, and none if none is configured."""
    header = "gatewayresponse.header.Access-Control-Allow-Origin"

    def origins(assembly: Assembly) -> set[str | None]:
        return {r["ResponseParameters"].get(header) for r in gateway_responses(assembly).values()}

    assert origins(app) == {None}
    assert origins(overridden) == {"'https://app.example.com'"}


def test_preflight_is_answered_at_every_path(overridden: Assembly) -> None:
    """If an origin is configured, every resource answers OPTIONS."""
    answered = {path for verb, path in methods(overridden) if verb == "OPTIONS"}
    assert answered >= {path for verb, path in methods(overridden) if verb != "OPTIONS"}
