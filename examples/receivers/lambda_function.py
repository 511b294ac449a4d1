"""A receiver as a Lambda function behind API Gateway: REST API, HTTP API, or a function URL.

Handler: lambda_function.handler. The secret is in the variable RECADO_WEBHOOK_SECRET, or better, read from Secrets
Manager when the function starts.
"""

from __future__ import annotations

import logging
import os
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import recado

SECRETS = os.environ["RECADO_WEBHOOK_SECRET"].split()  # two of them while one takes the other's place
if not SECRETS:
    raise ValueError("RECADO_WEBHOOK_SECRET is empty. Set it to the secret of the endpoint, whsec_…")
log = logging.getLogger()
log.setLevel(logging.INFO)


def handler(request: Mapping[str, Any], _context: object = None) -> dict[str, Any]:
    try:
        event = recado.verify(request.get("headers", {}), raw_body(request), SECRETS)
    except recado.VerificationError as error:
        log.warning("refused a webhook: %s: %s", error.code, error)
        return {"statusCode": 403}
    process(str(event.id), event.json())
    return {"statusCode": 204}


def raw_body(request: Mapping[str, Any]) -> bytes:
    """The bytes that were sent: API Gateway gives text, or base64 and a flag, or None for nothing."""
    body = request.get("body") or ""
    return b64decode(body) if request.get("isBase64Encoded") else body.encode()


def process(event_id: str, event: Any) -> None:
    """Your work goes here. The same id may come again: keep it where all your functions can see it."""
    log.info("received %s: %s", event_id, event)
