"""Properties of the API's objects."""

from __future__ import annotations

from typing import Any

import pytest

from recado.models import Job, JobSummary
from tests.unit.client.stub_http import JOB


@pytest.mark.parametrize(
    ("kind", "own", "subject"),
    [
        ("document", {"document_id": "notes"}, ("document_id", "notes")),
        ("replay", {"webhook_id": "wh_1"}, ("webhook_id", "wh_1")),
        ("completion", {}, None),
        ("dataset", {"table": "sales"}, ("table", "sales")),
        ("document", {"region": "eu", "trace_id": "t", "document_id": "notes"}, ("document_id", "notes")),
        ("errand", {"region": "eu", "shop_id": "s"}, ("shop_id", "s")),
        ("completion", {"region_count": 3, "labels": {}}, None),
    ],
)
def test_the_subject_is_the_field_that_not_all_jobs_have(kind: str, own: dict[str, Any], subject: Any) -> None:
    """The kind's own id is preferred to other ids, and those to other fields."""
    job = {
        **JOB,
        "kind": kind,
        **own,
        "retry_of": "job_0",
        "waiting_for": "backoff",
        "webhook_secret": "whsec_…",
    }
    assert Job.of(job).subject == subject
    listed = {name: JOB[name] for name in ("job_id", "kind", "status", "stage", "created_at", "links")}
    assert JobSummary.of({**listed, "kind": kind, **own}).subject == subject


def test_document_id_is_none_for_other_kinds() -> None:
    """Only jobs of documents have a `document_id`."""
    assert Job.of({**JOB, "document_id": "notes"}).document_id == "notes"
    assert Job.of(JOB).document_id is None
