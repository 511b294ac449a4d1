"""A receiver on Flask. Run: RECADO_WEBHOOK_SECRET=whsec_… flask --app flask_app run"""

from __future__ import annotations

import os
import time
from typing import Any

from flask import Flask, Response, request

import recado

SECRETS = os.environ["RECADO_WEBHOOK_SECRET"].split()  # two of them while one takes the other's place
if not SECRETS:
    raise ValueError("RECADO_WEBHOOK_SECRET is empty. Set it to the secret of the endpoint, whsec_…")
TOLERANCE_SECONDS = 300
app = Flask(__name__)
app.logger.setLevel("INFO")
app.config["MAX_CONTENT_LENGTH"] = 1024 * 1024
seen: dict[str, float] = {}


@app.post("/webhooks")
def receive() -> Response:
    try:
        event = recado.verify(request.headers, request.get_data(), SECRETS, TOLERANCE_SECONDS)
    except recado.VerificationError as error:
        app.logger.warning("refused a webhook: %s: %s", error.code, error)
        return Response(status=403)
    if not is_known(str(event.id)):
        process(event.json())
        # Only now: had it failed, the next attempt must not pass for one that is done already.
        seen[str(event.id)] = time.time()
    return Response(status=204)


def is_known(event_id: str) -> bool:
    """Whether it was processed, for as long as a copy of the request would still be accepted."""
    forgotten = time.time() - 2 * TOLERANCE_SECONDS
    for known in [known for known, at in list(seen.items()) if at < forgotten]:
        seen.pop(known, None)
    return event_id in seen


def process(event: Any) -> None:
    """Your work goes here. What takes longer than a few seconds belongs in a queue of your own."""
    app.logger.info("received %s", event)
