"""The OpenAPI document (rest.api.openapi)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rest.api.openapi import document
from tests.unit.http_calls import Answer

pytestmark = pytest.mark.usefixtures("environment", "secrets_key")
Api = Callable[..., Answer]
GZIP = {"Accept-Encoding": "gzip"}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def test_form() -> None:
    """The document is OpenAPI 3.1 with title, version, and responses for each operation."""
    described = document()
    assert described["openapi"].startswith("3.1")
    assert described["info"]["title"] == "Recado"
    assert re.fullmatch(r"\d+\.\d+\.\d+", described["info"]["version"])
    identifiers = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(identifiers)) == len(identifiers)
    for _, _, operation in operations():
        assert operation["summary"]
        assert operation["tags"]
        assert all(re.fullmatch(r"[1-5]\d\d", status) for status in operation["responses"])
        assert all(answer["description"] for answer in operation["responses"].values())


def test_references() -> None:
    """All references are resolved."""
    described = document()
    found = set(references(described))
    assert found
    for reference in found:
        place: Any = described
        for part in reference.removeprefix("#/").split("/"):
            assert part in place, reference
            place = place[part]


def test_path_parameters() -> None:
    """Each parameter of a path is declared once, as required."""
    for _, path, operation in operations():
        declared = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path" and p["required"]]
        assert declared == re.findall(r"{(\w+)}", path)


def test_errors() -> None:
    """401, 403, 422 and 429 are problem documents, and so is what a deleted or open job answers."""
    reference = {"$ref": "#/components/schemas/Problem"}
    for method, path, operation in operations():
        problems = {status for status in operation["responses"] if status.startswith("4")}
        expected = {"403", "422", "429"} if path.startswith("/follow/") else {"401", "403", "422", "429"}
        expected |= {"404", "410"} if path.startswith("/jobs/{job_id}") else set()
        expected |= {("post", "/jobs"): {"410"}, ("delete", "/jobs/{job_id}"): {"409"}}.get((method, path), set())
        assert problems == expected
        for status in problems:
            assert operation["responses"][status]["content"] == {"application/problem+json": {"schema": reference}}
    assert set(document()["components"]["schemas"]["Problem"]["properties"]) == {
        "type",
        "title",
        "status",
        "detail",
        "field",
        "job_id",
    }


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("post", "/webhooks", "201"),
        ("patch", "/webhooks/{webhook_id}", "200"),
        ("delete", "/webhooks/{webhook_id}", "204"),
        ("post", "/webhooks/{webhook_id}/recover", "202"),
        ("post", "/webhooks/{webhook_id}/replay", "202"),
        ("post", "/deliveries/{delivery_id}/redeliver", "202"),
        ("post", "/jobs", "202"),
        ("post", "/jobs/{job_id}/retry", "202"),
        ("post", "/uploads", "201"),
        ("post", "/uploads/{upload_id}/complete", "200"),
        ("delete", "/uploads/{upload_id}", "204"),
        ("delete", "/documents/{document_id}", "204"),
        ("get", "/jobs/{job_id}/status", "200"),
        ("post", "/search", "200"),
    ],
)
def test_success(method: str, path: str, status: str) -> None:
    """The response of success has the operation's status."""
    described = document()["paths"][path][method]["responses"]
    assert [code for code in described if code.startswith("2")] == [status]


@pytest.mark.parametrize("root", ["/jobs/{job_id}", "/follow/{token}"])
def test_responses_of_long_polls(root: str) -> None:
    """A status can be a 304. A log is a model or a stream, which can be a 204."""
    status, log = (document()["paths"][f"{root}/{name}"]["get"]["responses"] for name in ("status", "events"))
    assert {code for code in status if code[0] in "23"} == {"200", "304"}
    assert {code for code in log if code[0] in "23"} == {"200", "204"}
    for answer, model in ((status, "JobStatus"), (log, "EventLog")):
        schema = answer["200"]["content"]["application/json"]["schema"]
        assert schema["$ref"].rpartition("/")[2] == model


def test_responses_of_ping() -> None:
    """A test of an endpoint is a delivery (200) or its location (202)."""
    described = document()["paths"]["/webhooks/{webhook_id}/test"]["post"]["responses"]
    models = {
        status: answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for status, answer in described.items()
        if status.startswith("2")
    }
    assert models == {"200": "DeliveryView", "202": "PingPending"}


def test_optional_fields() -> None:
    """A change of an endpoint requires no field, and only three of them can be null."""
    described = document()["components"]["schemas"]["WebhookPatch"]
    assert "required" not in described
    nullable = {
        name for name, field in described["properties"].items() if {"type": "null"} in field.get("anyOf", [])
    }
    assert nullable == {"filter", "headers", "rate_limit"}
    assert not [field for field in described["properties"].values() if "default" in field and "anyOf" not in field]


def test_bodies() -> None:
    """Requests are described field by field, and unknown fields are not allowed."""
    described = document()
    request = described["components"]["schemas"]["DocumentJob"]
    assert request["required"] == ["kind", "input"]
    assert request["additionalProperties"] is False
    assert set(request["properties"]) == {"kind", "input", "webhook_url", "webhook_events", "metadata"}
    content = described["paths"]["/jobs"]["post"]["requestBody"]["content"]
    assert "#/components/schemas/DocumentJob" in references(content["application/json"]["schema"])


def test_page(api: Api) -> None:
    """The page loads nothing from other hosts, and no description ends its script."""
    page = api("GET", "/docs", owner=None, headers=GZIP).body
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)\s*=\s*[\"']?https?:", page)
