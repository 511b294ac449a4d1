"""The function for POST /search, which loads the embedding model."""

from __future__ import annotations

import functools
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver

from core.dependencies import dependencies
from core.http import resolver
from kinds.document.search.routes import router


@functools.cache
def app() -> APIGatewayRestResolver:
    return resolver(dependencies.settings.cors_origins, router)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app().resolve(event, context)
