"""Routes under /documents (kinds.document.routes)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from kinds.document.index.catalog import Catalog, Document
from rest.api.handler import handler
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import document
from tests.unit.http_calls import Answer, call, problem

Api = Callable[..., Answer]
NAMES = [
    "notes",
    "a/b/c.txt",
    "100%.txt",
    "a%2Fb.txt",
    "a b+c&d=e?f#g.txt",
    "año/👩‍🚀",
    '"quoted"\\back',
    "a//b/",
    "..",
    "<b>[x]{y}|^`~",
    "中文。",
]


@pytest.fixture
def api(environment: dict[str, str], jobs_table: str, secrets_key: str, queues: None) -> Api:
    """The API with these routes."""
    return functools.partial(call, handler)


@pytest.fixture
def catalog(dynamodb: Any, jobs_table: str) -> Catalog:
    return Catalog(dynamodb, jobs_table)


@pytest.fixture
def published(catalog: Catalog, dynamodb: Any) -> Callable[..., Document]:
    def publish(name: str, owner: str = "ana", **facts: Any) -> Document:
        subject = document(document_id=name, **facts)
        dynamodb.put_item(**catalog.publish(owner, subject)["Put"])
        return subject

    return publish


Published = Callable[..., Document]


def test_list(api: Api, published: Published) -> None:
    """An owner's documents are listed by name, without internal fields and without others' documents."""
    published("b", metadata={"year": "2026"})
    published("a")
    published("c", owner="ben")
    listed = api("GET", "/documents").json["documents"]
    assert [shown["document_id"] for shown in listed] == ["a", "b"]
    assert set(listed[1]) == {
        "document_id",
        "version",
        "job_id",
        "chunks",
        "characters",
        "media_type",
        "indexed_at",
        "metadata",
    }
    assert listed[1]["metadata"] == {"year": "2026"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("encoded", [True, False], ids=["encoded", "decoded"])
def test_names(api: Api, published: Published, name: str, *, encoded: bool) -> None:
    """A document is found under its encoded name, whether API Gateway decodes the path or not."""
    subject = published(name, chunks=7)
    answer = api("GET", "/documents/" + (quote(name, safe="") if encoded else name))
    assert (answer.status, answer.json.get("chunks")) == (200, 7)
    assert answer.json["document_id"] == subject.document_id


@pytest.mark.parametrize("name", NAMES)
def test_delete(api: Api, published: Published, messages: Callable[[str], list[Any]], name: str) -> None:
    """A deleted document is not found at once, and the deletion of its vectors is queued."""
    subject = published(name)
    removed = api("DELETE", f"/documents/{quote(name, safe='')}")
    assert (removed.status, removed.body) == (204, "")
    problem(api("GET", f"/documents/{quote(name, safe='')}"), 404, "not_found")
    assert api("GET", "/documents").json == {"documents": []}
    (message,) = messages("INDEXING_QUEUE_URL")
    assert (message["event"], message["owner"], message["document_id"]) == ("document.deleted", "ana", name)
    assert message["version"] > subject.version


def test_group(api: Api, published: Published) -> None:
    """The message of a deletion has its owner as the group."""
    published("notes")
    calls = Calls(Clock())
    with calls.intercepted():
        api("DELETE", "/documents/notes")
    (sent,) = (call.params for call in calls.log if call.operation == "SendMessage")
    assert sent["MessageGroupId"] == "ana"


def test_unknown_document(api: Api) -> None:
    """An unknown name is a 404 that says where to find the names."""
    for method in ("GET", "DELETE"):
        refused = problem(api(method, "/documents/a/b"), 404, "not_found")
        assert "GET /documents" in refused["detail"]


def test_scopes(api: Api, published: Published) -> None:
    """Reading needs the scope to read, and deleting the scope to write, also for a name with a slash."""
    published("a/b")
    problem(api("GET", "/documents/a/b", scopes="jobs:write search"), 403, "forbidden")
    problem(api("DELETE", "/documents/a/b", scopes="jobs:read search"), 403, "forbidden")
