"""Replays of webhooks. Routes under /webhooks create these jobs, and the function `dispatch` runs them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from core.jobs import Kind

ReplayMode = Literal["recover", "replay"]


class ReplayInput(BaseModel):
    """The deliveries or events of `since` ≤ time < `until`."""

    webhook_id: str
    mode: ReplayMode
    since: str
    until: str | None
    statuses: list[str]
    events: list[str]


class ReplayRequested(BaseModel):
    """The input of the replay, except for the endpoint."""

    mode: ReplayMode
    since: str
    until: str
    statuses: list[str]
    events: list[str]


class ReplayResult(BaseModel):
    """How many deliveries were sent again."""

    sent: int


REPLAY = Kind(
    name="replay",
    input=ReplayInput,
    result=ReplayResult,
    subject="webhook_id",
    exclusive=True,
    stages=("send",),
    events={"requested": ReplayRequested, "completed": ReplayResult},
    runs_on="worker",
    submittable=False,
)
