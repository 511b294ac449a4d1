"""Makes the attempts that the webhooks queue asks for, concurrently."""

from __future__ import annotations

from typing import Any

from core.aws.batch import BatchResponse
from webhooks.sender.polling import run


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    return run(event["Records"])
