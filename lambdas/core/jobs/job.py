"""The job as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FINAL = frozenset({"completed", "failed", "canceled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Times are RFC 3339 UTC, except for `expires_at` (epoch seconds).

    - `subject`: the field of the input that events and views show, such as `{"document_id": …}`; may be empty.
    - `exclusive`: the subject, if no other open job of the kind may be about the same one.
    - `lease`: the execution or the invocation that holds the job.
    - `lease_until`, `not_before`: on a queue worker, when the invocation ends, and the earliest next attempt.
    - `link_key`: signs the tokens of the job's links.
    - `has_steps`: the work writes steps beside the log, which are sent to those who follow the job.
    - `result_key`: the S3 key of a result that is too large for the item.
    """

    job_id: str
    owner: str
    kind: str
    input: Mapping[str, Any]
    created_at: str
    updated_at: str
    deadline: str
    expires_at: int
    subject: Mapping[str, str] = field(default_factory=dict)
    exclusive: str | None = None
    status: str = "queued"
    stage: str = "queued"
    attempts: int = 0
    version: int = 1
    sequence: int = 0
    steps: tuple[str, ...] = ()
    lease: str | None = None
    lease_until: str | None = None
    not_before: str | None = None
    waiting_for: str | None = None
    waiting_since: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    link_key: str = ""
    has_steps: bool = False
    webhook_url: str | None = None
    webhook_events: tuple[str, ...] = ()
    retry_of: str | None = None
    result: Mapping[str, Any] | None = None
    result_key: str | None = None
    error: Mapping[str, str] | None = None

    @property
    def is_final(self) -> bool:
        return self.status in FINAL
