"""Links to one job, for clients that cannot send headers: shell loops, EventSource and WebSockets of browsers.

A link contains a token: the job's id, when it expires, and an HMAC of both. Each job has an HMAC key of its own,
which is stored with the job only. A token therefore allows reading one job and nothing else, checking it costs no
extra read, and there is no secret of the whole service to leak or rotate.

Two things end links before they expire: a new key of the job ends the job's links, and a higher epoch of the owner
(`core.auth`) ends all of the owner's links. Epoch 0 is not part of the signed text.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from core import ids
from core.errors import Forbidden, NotFound
from core.jobs.job import Job
from core.jobs.machine import Transition
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


def replace_key(job: Job, now: str) -> Transition:
    """End the job's links: give the job a new key. No event is logged."""
    return Transition(replace(job, link_key=make_key()))


def key_fingerprint(job: Job) -> str:
    """Names the job's key without telling it. A connection that was opened by a link has it."""
    return hashlib.sha256(job.link_key.encode()).hexdigest()[:16]


def make_token(job: Job, *, now: float, hours: int, epoch: int = 0) -> str:
    """A token that is valid for `hours` to `hours + 1`: it expires on the hour, so links change once an hour."""
    expires_at = (int(now) // HOUR_SECONDS + 1 + hours) * HOUR_SECONDS
    return f"{ids.ulid_of(job.job_id)}.{expires_at}.{_sign(job, expires_at, epoch)}"


def read_token(text: str) -> Token:
    """Raises Forbidden if the text does not have the form of a token."""
    match = _TOKEN.fullmatch(text)
    if not match:
        raise Forbidden(REFUSED)
    return Token(f"job_{match[1]}", int(match[2]), match[3])


def check_token(token: Token, job: Job, *, now: float, epoch: int = 0) -> None:
    """Raise Forbidden unless this job signed the token in this epoch and it has not expired."""
    valid = hmac.compare_digest(token.signature, _sign(job, token.expires_at, epoch))
    if not (job.link_key and valid and job.job_id == token.job_id and now < token.expires_at):
        raise Forbidden(REFUSED)


def resolve(
    text: str, read: Callable[[str], Snapshot], *, now: float, epochs: Callable[[str], Iterable[int]]
) -> tuple[Snapshot, int]:
    """The job of a token, and the epoch that the token was made in. Raises Forbidden, without telling why.

    `read` gets a job by its id. `epochs` gets the valid epochs of an owner.
    """
    token = read_token(text)
    try:
        found = read(token.job_id)
    except NotFound:
        raise Forbidden(REFUSED) from None
    for epoch in epochs(found.job.owner):
        with suppress(Forbidden):
            check_token(token, found.job, now=now, epoch=epoch)
            return found, epoch
    raise Forbidden(REFUSED)


def _sign(job: Job, expires_at: int, epoch: int) -> str:
    text = f"{job.job_id}.{expires_at}" + (f".{epoch}" if epoch else "")
    return urlsafe_b64encode(
        hmac.digest(job.link_key.encode(), text.encode(), "sha256")[:SIGNATURE_BYTES]
    ).decode()
