"""What speaks to WebSockets works with, made once per warm function: `live`, `live_push` and `live_ping` alike."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from core.aws import clients, settings
from core.jobs import JobStore, Kind
from core.live.sockets import Sockets
from core.live.subscriptions import Audience
from kinds import KINDS


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    live_url: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    kinds: Mapping[str, Kind]
    jobs: JobStore
    audience: Audience
    sockets: Sockets


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    return Dependencies(
        KINDS,
        JobStore(dynamodb, config.jobs_table),
        Audience(dynamodb, config.jobs_table),
        Sockets(clients.management(config.live_url)),
    )
