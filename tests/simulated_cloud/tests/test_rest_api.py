"""API Gateway (REST): the events of functions and the responses to clients."""

from __future__ import annotations

import base64
import json
import time
from functools import partial
from typing import Any

import pytest

from tests.simulated_cloud.tests.sample import Sample, raising

Event = dict[str, Any]


@pytest.fixture(autouse=True)
def functions(sample: Sample) -> None:
    sample.scripts["web"] = lambda event, context: {"statusCode": 200, "body": json.dumps(event)}
    sample.scripts["guard"] = lambda event, context: {
        "principalId": "me",
        "policyDocument": {"Statement": [{"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": "*"}]},
        "context": {"owner": "me", "level": 3, "admin": True},
    }


def test_a_request_becomes_a_proxy_event(sample: Sample) -> None:
    """The event has the path, the query with repeated parameters, the headers, the body and the context."""
    answer = sample.request("POST", "/a/b%20c?x=1&x=2&y=", json={"k": 1}, headers={"X-Own": "v"})
    event = answer.json()
    assert (answer.status, event["path"], event["resource"]) == (200, "/a/b c", "/{proxy+}")
    assert event["pathParameters"] == {"proxy": "a/b%20c"}
    assert event["queryStringParameters"] == {"x": "2", "y": ""}
    assert event["multiValueQueryStringParameters"]["x"] == ["1", "2"]
    assert event["headers"]["X-Own"] == "v"
    assert json.loads(event["body"]) == {"k": 1}
    assert event["requestContext"]["path"] == "/v1/a/b%20c"
    assert "authorizer" not in event["requestContext"]


@pytest.mark.parametrize(
    ("method", "path", "resource"),
    [
        ("GET", "/things/special", "/things/special"),
        ("GET", "/things/7", "/things/{thing_id}"),
        ("GET", "/elsewhere", "/{proxy+}"),
    ],
)
def test_a_literal_part_wins_over_a_parameter(sample: Sample, method: str, path: str, resource: str) -> None:
    """A literal part wins over a parameter, and a parameter over the greedy rest."""
    event = sample.request(method, path, headers={"Authorization": "t"}).json()
    assert event["resource"] == resource


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/things"), ("POST", "/things/special"), ("GET", "/things/7/8")]
)
def test_routing_does_not_backtrack_from_a_literal_part(sample: Sample, method: str, path: str) -> None:
    """`{proxy+}` at the root does not serve what is below `/things`."""
    answer = sample.request(method, path, headers={"Authorization": "t"})
    assert (answer.status, answer.json()) == (403, {"message": "Missing Authentication Token"})


def test_without_identity_the_authorizer_is_not_invoked(sample: Sample) -> None:
    """The client gets the gateway response UNAUTHORIZED of the template."""
    answer = sample.request("GET", "/things/7")
    assert (answer.status, answer.json()) == (401, {"title": "Unauthorized"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert sample.functions.invocations == []


def test_the_authorizers_context_reaches_the_function_as_strings(sample: Sample) -> None:
    """All values of the authorizer's context become strings."""
    context = sample.request("GET", "/things/7", headers={"Authorization": "t"}).json()["requestContext"]
    assert context["authorizer"] | {"integrationLatency": "1"} == {
        "principalId": "me",
        "owner": "me",
        "level": "3",
        "admin": "true",
        "integrationLatency": "1",
    }


def test_an_authorizer_may_refuse_with_unauthorized(sample: Sample) -> None:
    """An exception with exactly this message gives a 401, any other a 500."""

    def guard(event: Event, context: Any) -> Any:
        raise Exception("Unauthorized" if event["headers"]["Authorization"] == "bad" else "bug")

    sample.scripts["guard"] = guard
    assert sample.request("GET", "/things/7", headers={"Authorization": "bad"}).status == 401
    assert sample.request("GET", "/things/7", headers={"Authorization": "odd"}).status == 500


def test_a_deny_is_a_403(sample: Sample) -> None:
    """A policy with a Deny, or without a statement about the method, gives a 403."""
    for effect, resource in (("Deny", "*"), ("Allow", "arn:aws:execute-api:*:*:*/v1/GET/other")):
        statement = {"Action": "execute-api:Invoke", "Effect": effect, "Resource": resource}
        answer = {"principalId": "me", "policyDocument": {"Statement": [statement]}}
        sample.scripts["guard"] = partial(lambda answer, event, context: answer, answer)
        assert sample.request("GET", "/things/7", headers={"Authorization": effect}).status == 403


def test_the_authorizers_response_is_cached_for_its_time(sample: Sample) -> None:
    """The cache is per identity and expires on the virtual clock."""

    def asked() -> int:
        sample.request("GET", "/things/7", headers={"Authorization": "t"})
        return sum(invocation.name == "sample_guard" for invocation in sample.functions.invocations)

    assert [asked(), asked()] == [1, 1]
    sample.clock.advance(301)
    assert asked() == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "text",
        {"body": "x"},
        {"statusCode": "abc"},
        {"statusCode": 200, "body": {"a": 1}},
        {"statusCode": 200, "headers": {"a": ["b"]}},
        {"statusCode": 200, "status": 1},
    ],
)
def test_a_malformed_response_is_a_502(sample: Sample, answer: Any) -> None:
    """A response that is not a proxy response gives a 502."""
    sample.scripts["web"] = lambda event, context: answer
    refused = sample.request("GET", "/x")
    assert (refused.status, refused.json()) == (502, {"message": "Internal server error"})


def test_a_function_that_fails_is_a_502(sample: Sample) -> None:
    """The response says nothing about the error of the function."""
    sample.scripts["web"] = raising
    assert sample.request("GET", "/x").json() == {"message": "Internal server error"}


def test_a_function_that_takes_too_long_is_a_504(sample: Sample) -> None:
    """The timeout of an integration is 29 seconds."""
    sample.scripts["web"] = lambda event, context: time.sleep(29.5)
    assert sample.request("GET", "/x").status == 504


def test_some_headers_are_remapped(sample: Sample) -> None:
    """API Gateway renames WWW-Authenticate and some other headers of a function."""
    headers = {"WWW-Authenticate": "Bearer", "ETag": '"1"'}
    sample.scripts["web"] = lambda event, context: {"statusCode": 401, "headers": headers}
    answer = sample.request("GET", "/x")
    assert answer.headers["x-amzn-remapped-www-authenticate"] == "Bearer"
    assert answer.headers["etag"] == '"1"'
    assert "www-authenticate" not in answer.headers


def test_a_base64_body_is_not_decoded(sample: Sample) -> None:
    """API Gateway decodes bodies for binary media types only, and the simulation has none."""
    body = base64.b64encode(b"\x89PNG").decode()
    sample.scripts["web"] = lambda event, context: {"statusCode": 200, "body": body, "isBase64Encoded": True}
    assert sample.request("GET", "/x", headers={"Accept": "image/png"}).text == body


def test_a_preflight_is_answered_by_a_mock_integration(sample: Sample) -> None:
    """No function runs for the MOCK integration that CDK makes for CORS."""
    answer = sample.request("OPTIONS", "/things")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")


def test_a_body_over_ten_megabytes_is_refused(sample: Sample) -> None:
    """A request body of more than 10 MB gives a 413."""
    assert sample.request("POST", "/x", body=b"x" * (10 * 1024 * 1024 + 1)).status == 413
