"""Links to one job, for clients that can send no header: a shell loop, a browser's EventSource, a WebSocket.

A link carries a token: the job's id, until when it holds, and an HMAC over both with a key that is the job's own
and never leaves its row. So a token opens one job for reading, wherever it turns up, and nothing else; what checks
it reads the job anyway, and there is no secret of the whole service that could leak or must be rotated.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass

from core import ids
from core.errors import Forbidden, NotFound
from core.jobs.job import Job
from core.jobs.store import Snapshot

HOUR_SECONDS = 3600
SIGNATURE_BYTES = 24
_TOKEN = re.compile(r"([0-9A-HJKMNP-TV-Z]{26})\.([1-9][0-9]{0,11})\.([A-Za-z0-9_-]{32})")
REFUSED = "This link does not hold, or no more. GET /jobs/{job_id} with your key has new ones."


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it was read, not yet checked. `expires_at` is epoch seconds."""

    job_id: str
    expires_at: int
    signature: str


def make_key() -> str:
    """What the tokens of one job are signed with."""
    return secrets.token_urlsafe(SIGNATURE_BYTES)


def make_token(job: Job, *, now: float, hours: int) -> str:
    """A token for this job that holds for `hours`, and up to one more: so that links stay the same for a while."""
    expires_at = (int(now) // HOUR_SECONDS + 1 + hours) * HOUR_SECONDS
    return f"{ids.ulid_of(job.job_id)}.{expires_at}.{_sign(job, expires_at)}"


def read_token(text: str) -> Token:
    """Raises Forbidden where the text is no token at all."""
    match = _TOKEN.fullmatch(text)
    if not match:
        raise Forbidden(REFUSED)
    return Token(f"job_{match[1]}", int(match[2]), match[3])


def check_token(token: Token, job: Job, *, now: float) -> None:
    """Raise Forbidden unless this job made the token, and its time is not over."""
    genuine = hmac.compare_digest(token.signature, _sign(job, token.expires_at))
    if not (job.link_key and genuine and job.job_id == token.job_id and now < token.expires_at):
        raise Forbidden(REFUSED)


def resolve(text: str, read: Callable[[str], Snapshot], *, now: float) -> Snapshot:
    """What a token opens; `read` finds a job by its id. Raises Forbidden: what is wrong is nobody's business."""
    token = read_token(text)
    try:
        found = read(token.job_id)
    except NotFound:
        raise Forbidden(REFUSED) from None
    check_token(token, found.job, now=now)
    return found


def _sign(job: Job, expires_at: int) -> str:
    text = f"{job.job_id}.{expires_at}"
    return urlsafe_b64encode(
        hmac.digest(job.link_key.encode(), text.encode(), "sha256")[:SIGNATURE_BYTES]
    ).decode()
