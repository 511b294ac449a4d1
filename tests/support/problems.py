"""What every refusal looks like: https://www.rfc-editor.org/rfc/rfc9457."""

from __future__ import annotations

from typing import Any

from tests.simulated_cloud.rest_api import Response


def assert_problem(answer: Response, status: int, kind: str) -> dict[str, Any]:
    """A problem document of this status and type, that says what to do. Returns it."""
    problem: dict[str, Any] = answer.json()
    # the gateway's template for errors of any status cannot name it, and the member is optional
    assert (answer.status, problem.get("status", status)) == (status, status), answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem["type"] == f"urn:recado:problem:{kind}"
    assert problem["title"]
    assert len(problem["detail"]) > 15
    return problem
