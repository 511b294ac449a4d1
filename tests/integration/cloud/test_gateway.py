"""API Gateway: what reaches a function, and what a client gets."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from tests.support import sample
from tests.support.sample import raising

Event = dict[str, Any]


@pytest.fixture(autouse=True)
def functions(it: sample.Sample) -> None:
    it.scripts["web"] = lambda event, context: {"statusCode": 200, "body": json.dumps(event)}
    it.scripts["guard"] = lambda event, context: {
        "principalId": "me",
        "policyDocument": {"Statement": [{"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": "*"}]},
        "context": {"owner": "me", "level": 3, "admin": True},
    }


def test_a_request_becomes_a_proxy_event(it: sample.Sample) -> None:
    """Path, query (also repeated), headers, body and context."""
    answer = it.request("POST", "/a/b%20c?x=1&x=2&y=", json={"k": 1}, headers={"X-Own": "v"})
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
def test_literal_parts_win(it: sample.Sample, method: str, path: str, resource: str) -> None:
    """Then parameters, then the greedy rest."""
    event = it.request(method, path, headers={"Authorization": "t"}).json()
    assert event["resource"] == resource


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/things"), ("POST", "/things/special"), ("GET", "/things/7/8")]
)
def test_there_is_no_way_back_from_a_literal_part(it: sample.Sample, method: str, path: str) -> None:
    """`{proxy+}` at the root does not serve what is below `/things`."""
    answer = it.request(method, path, headers={"Authorization": "t"})
    assert (answer.status, answer.json()) == (403, {"message": "Missing Authentication Token"})


def test_without_identity_the_authorizer_is_not_asked(it: sample.Sample) -> None:
    """401, in the words of the API's own gateway response."""
    answer = it.request("GET", "/things/7")
    assert (answer.status, answer.json()) == (401, {"title": "Unauthorized"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert it.functions.invocations == []


def test_the_authorizers_context_reaches_the_function_as_strings(it: sample.Sample) -> None:
    """All of its values."""
    context = it.request("GET", "/things/7", headers={"Authorization": "t"}).json()["requestContext"]
    assert context["authorizer"] | {"integrationLatency": "1"} == {
        "principalId": "me",
        "owner": "me",
        "level": "3",
        "admin": "true",
        "integrationLatency": "1",
    }


def test_an_authorizer_may_refuse_with_unauthorized(it: sample.Sample) -> None:
    """An exception with exactly this message is a 401; any other failure is a 500."""

    def guard(event: Event, context: Any) -> Any:
        raise Exception("Unauthorized" if event["headers"]["Authorization"] == "bad" else "bug")

    it.scripts["guard"] = guard
    assert it.request("GET", "/things/7", headers={"Authorization": "bad"}).status == 401
    assert it.request("GET", "/things/7", headers={"Authorization": "odd"}).status == 500


def test_a_deny_is_a_403(it: sample.Sample) -> None:
    """And so is a policy that does not speak of the method."""
    for effect, resource in (("Deny", "*"), ("Allow", "arn:aws:execute-api:*:*:*/v1/GET/other")):
        statement = {"Action": "execute-api:Invoke", "Effect": effect, "Resource": resource}
        it.scripts["guard"] = lambda event, context, statement=statement: {
            "principalId": "me",
            "policyDocument": {"Statement": [statement]},
        }
        assert it.request("GET", "/things/7", headers={"Authorization": effect}).status == 403


def test_the_authorizers_answer_is_cached_for_its_time(it: sample.Sample) -> None:
    """Per identity, on the virtual clock; a test can switch it off."""

    def asked() -> int:
        it.request("GET", "/things/7", headers={"Authorization": "t"})
        return sum(invocation.name == "sample_guard" for invocation in it.functions.invocations)

    assert [asked(), asked()] == [1, 1]
    it.clock.advance(301)
    assert asked() == 2
    it.gateways[0].caches = False
    assert [asked(), asked()] == [3, 4]


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
def test_a_malformed_answer_is_a_502(it: sample.Sample, answer: Any) -> None:
    """The function's answer has to be a proxy response."""
    it.scripts["web"] = lambda event, context: answer
    refused = it.request("GET", "/x")
    assert (refused.status, refused.json()) == (502, {"message": "Internal server error"})


def test_a_function_that_fails_is_a_502(it: sample.Sample) -> None:
    """Nothing of the error gets out."""
    it.scripts["web"] = raising
    assert it.request("GET", "/x").json() == {"message": "Internal server error"}


def test_a_function_that_takes_too_long_is_a_504(it: sample.Sample) -> None:
    """29 seconds."""
    it.scripts["web"] = lambda event, context: time.sleep(29.5)
    assert it.request("GET", "/x").status == 504


def test_some_headers_come_out_under_another_name(it: sample.Sample) -> None:
    """API Gateway keeps WWW-Authenticate and others to itself."""
    headers = {"WWW-Authenticate": "Bearer", "ETag": '"1"'}
    it.scripts["web"] = lambda event, context: {"statusCode": 401, "headers": headers}
    answer = it.request("GET", "/x")
    assert answer.headers["x-amzn-remapped-www-authenticate"] == "Bearer"
    assert answer.headers["etag"] == '"1"'
    assert "www-authenticate" not in answer.headers


def test_base64_is_decoded_for_binary_types_only(it: sample.Sample) -> None:
    """The first type that the client accepts decides."""
    it.scripts["web"] = lambda event, context: {
        "statusCode": 200,
        "body": base64.b64encode(b"\x89PNG").decode(),
        "isBase64Encoded": True,
    }
    assert it.request("GET", "/x", headers={"Accept": "image/png"}).body == b"\x89PNG"
    assert it.request("GET", "/x").body == base64.b64encode(b"\x89PNG")


def test_a_preflight_is_answered_by_the_gateway(it: sample.Sample) -> None:
    """By the MOCK integration that CDK makes."""
    answer = it.request("OPTIONS", "/things")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")


def test_a_body_is_validated_by_its_model(it: sample.Sample) -> None:
    """400 before any function runs."""
    assert it.request("POST", "/things", json={"name": "a"}).status == 200
    refused = it.request("POST", "/things", json={})
    assert (refused.status, refused.json()) == (400, {"message": "Invalid request body"})
    assert it.request("POST", "/things", body="{").status == 400


def test_a_body_over_ten_megabytes_is_refused(it: sample.Sample) -> None:
    """413."""
    assert it.request("POST", "/x", body=b"x" * (10 * 1024 * 1024 + 1)).status == 413
