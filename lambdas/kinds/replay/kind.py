"""Webhooks sent again: a job that routes under /webhooks make, and nobody submits. `notify` works it in slices."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from core.jobs import Kind


class ReplayAsked(BaseModel):
    """Which deliveries or events: those of `since` ≤ time < `until`."""

    webhook_id: str
    mode: Literal["recover", "replay"]
    since: str
    until: str | None
    statuses: list[str]
    events: list[str]


class ReplayRequested(BaseModel):
    """What was asked for, beside the endpoint."""

    mode: Literal["recover", "replay"]
    since: str
    until: str
    statuses: list[str]
    events: list[str]


class ReplayResult(BaseModel):
    """How many deliveries are sent again."""

    sent: int


REPLAY = Kind(
    name="replay",
    input=ReplayAsked,
    result=ReplayResult,
    subject="webhook_id",
    stages=("send",),
    events={"requested": ReplayRequested, "completed": ReplayResult},
    runs_on="worker",
    submittable=False,
)
