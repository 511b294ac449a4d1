"""A receiver on FastAPI. Run: RECADO_WEBHOOK_SECRET=whsec_… uvicorn fastapi_app:app"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

import recado

SECRETS = os.environ["RECADO_WEBHOOK_SECRET"].split()  # two of them while one takes the other's place
if not SECRETS:
    raise ValueError("RECADO_WEBHOOK_SECRET is empty. Set it to the secret of the endpoint, whsec_…")
TOLERANCE_SECONDS = 300
log = logging.getLogger("uvicorn.error")
app = FastAPI()
seen: dict[str, float] = {}


@app.post("/webhooks", status_code=204)
async def receive(request: Request) -> Response:
    body = await request.body()  # not a model: FastAPI would parse it, and only its bytes are signed
    try:
        event = recado.verify(request.headers, body, SECRETS, TOLERANCE_SECONDS)
    except recado.VerificationError as error:
        log.warning("refused a webhook: %s: %s", error.code, error)
        return Response(status_code=403)
    if not is_known(str(event.id)):
        await run_in_threadpool(process, event.json())
        # Only now: had it failed, the next attempt must not pass for one that is done already.
        seen[str(event.id)] = time.time()
    return Response(status_code=204)


def is_known(event_id: str) -> bool:
    """Whether it was processed, for as long as a copy of the request would still be accepted."""
    forgotten = time.time() - 2 * TOLERANCE_SECONDS
    for known in [known for known, at in seen.items() if at < forgotten]:
        del seen[known]
    return event_id in seen


def process(event: Any) -> None:
    """Your work goes here. What takes longer than a few seconds belongs in a queue of your own."""
    log.info("received %s", event)
