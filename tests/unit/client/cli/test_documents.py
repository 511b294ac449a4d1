"""Commands for documents."""

from __future__ import annotations

import json

import pytest

from tests.unit.client.cli.conftest import Run
from tests.unit.client.stub_http import DOCUMENT, HIT
from tests.unit.client.stub_service import StubService

pytestmark = pytest.mark.enable_socket


def test_search(run: Run, service: StubService) -> None:
    """Hits are lines. Text from documents cannot break a line or move the cursor."""
    service.responses["POST /search"] = (200, {"hits": [HIT]})
    code, out, _ = run("search", "Where?", "-k", "1", "--document", "a.md", "--metadata", "lang=en")
    assert (code, out) == (0, "0.5000\ta.md\t0\t7\t\tone two\N{REPLACEMENT CHARACTER}[31m\n")
    assert json.loads(service.bodies[0]) == {
        "query": "Where?",
        "top_k": 1,
        "filter": {"document_ids": ["a.md"], "metadata": {"lang": "en"}},
    }


def test_search_prints_hits_for_people(run: Run, service: StubService, for_people: None) -> None:
    """Document and score are above the text, which has no escape sequences."""
    service.responses["POST /search"] = (200, {"hits": [HIT]})
    _, out, _ = run("search", "Where?")
    assert out.startswith("1. a.md  0.500\none two")
    assert "\x1b" not in out


def test_search_without_hits(run: Run, service: StubService) -> None:
    """The note says how to list the searchable documents."""
    service.responses["POST /search"] = (200, {"hits": []})
    code, out, err = run("search", "Where?")
    assert (code, out, "recado documents" in err) == (0, "", True)


def test_documents(run: Run, service: StubService) -> None:
    """Documents are lines."""
    service.responses["GET /documents"] = (200, {"documents": [DOCUMENT]})
    assert run("documents")[1] == "a.md\t3\t9\ttext/plain\t2026-11-29T08:00:00.000Z\n"


def test_documents_deletes_a_document(run: Run, service: StubService) -> None:
    """Its name may contain a slash."""
    service.responses["DELETE /documents/a%2Fb"] = (200, None)
    code, out, err = run("documents", "--delete", "a/b")
    assert (code, out, err) == (0, "", "a/b is deleted.\n")
