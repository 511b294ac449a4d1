"""Webhooks that jobs name themselves: the check of their URLs, and the secret that signs them."""

from __future__ import annotations

from core.dependencies import dependencies
from core.errors import InvalidRequest, Refused
from core.jobs import Job
from core.submission import Secret
from core.webhooks.transport.guard import check_url


def check_webhook(url: str, *, field: str) -> None:
    """Raise InvalidRequest, with the field, for a URL that webhooks may not reach."""
    try:
        check_url(url, dependencies.policy)
    except Refused as error:
        raise InvalidRequest(str(error), field=field) from None


def first_secret(job: Job) -> Secret:
    """A new secret, if the job has a webhook and its owner has no secret yet."""
    if job.webhook_url is None or dependencies.endpoints.find(job.owner):
        return None, ()
    secret, operation = dependencies.endpoints_with_secrets.draft_default(job.owner)
    return secret, (operation,)
