"""Links to one job, for clients that cannot send headers: shell loops, EventSource and WebSockets of browsers.

A link contains a token: the job's id, when it expires, and an HMAC of both. Each job has an HMAC key of its own,
which is stored with the job only. A token therefore allows reading one job and nothing else, checking it costs no
extra read, and there is no secret of the whole service to leak or rotate.
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
REFUSED = "This link is invalid or has expired. GET /jobs/{job_id} with your key returns a new one."


@dataclass(frozen=True, slots=True)
class Token:
    """A parsed token whose signature is not checked yet. `expires_at` is epoch seconds."""

    job_id: str
    expires_at: int
    signature: str


def make_key() -> str:
    """A new key for signing the tokens of one job."""
    return secrets.token_urlsafe(SIGNATURE_BYTES)


def make_token(job: Job, *, now: float, hours: int) -> str:
    """A token that is valid for `hours` to `hours + 1`: it expires on the hour, so links change once an hour."""
    expires_at = (int(now) // HOUR_SECONDS + 1 + hours) * HOUR_SECONDS
    return f"{ids.ulid_of(job.job_id)}.{expires_at}.{_sign(job, expires_at)}"


def read_token(text: str) -> Token:
    """Raises Forbidden if the text does not have the form of a token."""
    match = _TOKEN.fullmatch(text)
    if not match:
        raise Forbidden(REFUSED)
    return Token(f"job_{match[1]}", int(match[2]), match[3])


def check_token(token: Token, job: Job, *, now: float) -> None:
    """Raise Forbidden unless this job signed the token and it has not expired."""
    valid = hmac.compare_digest(token.signature, _sign(job, token.expires_at))
    if not (job.link_key and valid and job.job_id == token.job_id and now < token.expires_at):
        raise Forbidden(REFUSED)


def resolve(text: str, read: Callable[[str], Snapshot], *, now: float) -> Snapshot:
    """The job of a token; `read` gets a job by its id. Raises Forbidden, without telling why."""
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
