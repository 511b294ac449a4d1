"""Long polls: a job's status and events, and the test of a webhook.

They have a function of their own, so that waiting requests do not take the concurrency of other requests.
"""

from __future__ import annotations

import functools
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver

from core.dependencies import dependencies
from core.http import resolver
from rest.long_poll import jobs, webhook_ping


@functools.cache
def app() -> APIGatewayRestResolver:
    return resolver(dependencies.settings.cors_origins, jobs.router, webhook_ping.router)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app().resolve(event, context)
