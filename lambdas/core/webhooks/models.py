"""Requests and responses of /webhooks and /deliveries, for validation and /openapi.json."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, ValidationInfo, field_validator

from core.models import Request, Text, encodable
from core.webhooks.endpoints import filters, headers
from core.webhooks.transport import signing

Format = Literal["recado", "cloudevents", "slack", "thin"]
Signing = Literal["hmac", "ed25519"]
DeliveryStatus = Literal["pending", "sending", "delivered", "failed", "discarded", "canceled"]
Recoverable = Literal["failed", "discarded"]

MAX_PATTERNS = 50
MAX_FILTER_BYTES = 16_384  # of JSON: 200 endpoints fit into a response, of which Lambda allows 6 MB
MAX_GRACE_SECONDS = 7 * 86_400
DAY_SECONDS = 86_400

# https://www.rfc-editor.org/rfc/rfc3339#section-5.6
_RFC_3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})", re.ASCII | re.IGNORECASE
)


def _moment(text: str) -> str:
    """In the form of events: UTC with milliseconds, so that texts sort like times."""
    if not _RFC_3339.fullmatch(text):
        raise ValueError("use a time such as 2026-11-29T08:00:00Z (RFC 3339; in a query, write + as %2B)")
    try:
        moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("this time does not exist") from None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _filter(tree: dict[str, Any]) -> dict[str, Any]:
    checked = filters.check_filter(tree)
    if len(encodable(json.dumps(checked, ensure_ascii=False)).encode()) > MAX_FILTER_BYTES:
        raise ValueError(f"filter: use at most {MAX_FILTER_BYTES} bytes of JSON")
    return checked


def _own_secret(secret: str) -> str:
    signing.decode(secret)
    return secret


def _distinct(values: list[str]) -> list[str]:
    return list(dict.fromkeys(values))


Moment = Annotated[str, AfterValidator(_moment)]
Url = Annotated[Text, StringConstraints(max_length=2048)]
Patterns = Annotated[list[str], Field(min_length=1, max_length=MAX_PATTERNS)]
"""The route checks each pattern against the registered kinds."""

Filter = Annotated[dict[str, Any], AfterValidator(_filter)]
Description = Annotated[Text, StringConstraints(max_length=512)]
Headers = Annotated[dict[str, str], AfterValidator(headers.check_headers)]
RateLimit = Annotated[float, Field(ge=0.1, le=1000)]
OwnSecret = Annotated[str, AfterValidator(_own_secret)]


def _absent() -> Any:
    """The default of a field that can be left out but cannot be null."""
    return None


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────


class WebhookRequest(Request):
    """A URL that gets events."""

    url: Url
    events: Patterns = Field(description="Names, `<kind>.*`, `*.<verb>` or `*`.")
    filter: Filter | None = Field(None, description="Only events whose payload matches: see docs/webhooks.md.")
    description: Description = ""
    headers: Headers | None = Field(None, description="Sent with each request. Their values are never shown.")
    rate_limit: RateLimit | None = Field(None, description="Requests per second at most.")
    format: Format = "recado"
    ordered: bool = Field(False, description="Send the events of a job in order: each waits for the one before.")
    signing: Signing = "hmac"
    secret: OwnSecret | None = Field(
        None, description="Your own: `whsec_` and the base64 of 24 to 64 bytes. Generated if left out."
    )

    @field_validator("secret")
    @classmethod
    def _only_for_hmac(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("signing") == "ed25519":
            raise ValueError("an ed25519 key is generated here; leave the secret out")
        return value


class WebhookPatch(Request):
    """The fields to change; the others stay as they are. `null` clears `filter`, `headers` and `rate_limit`."""

    url: Url = Field(default_factory=_absent)
    events: Patterns = Field(default_factory=_absent)
    filter: Filter | None = None
    description: Description = Field(default_factory=_absent)
    headers: Headers | None = Field(None, description="All headers: they replace the existing ones.")
    rate_limit: RateLimit | None = None
    format: Format = Field(default_factory=_absent)
    ordered: bool = Field(default_factory=_absent)
    enabled: bool = Field(default_factory=_absent)

    @property
    def changes(self) -> dict[str, Any]:
        """The fields that were sent, with their values."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class RotationRequest(Request):
    """A new secret. The old one also signs for `grace_seconds`."""

    grace_seconds: int = Field(DAY_SECONDS, ge=0, le=MAX_GRACE_SECONDS)
    secret: OwnSecret | None = Field(None, description="Your own. Generated if left out.")


class Window(Request):
    """`since` ≤ time < `until`. The default of `until` is now."""

    since: Moment
    until: Moment | None = None


class RecoverRequest(Window):
    """Send the deliveries again that ended without success."""

    status: Annotated[list[Recoverable], Field(min_length=1, max_length=2), AfterValidator(_distinct)] = Field(
        default_factory=lambda: list(get_args(Recoverable))
    )


class ReplayRequest(Window):
    """Send events again, also delivered ones and those from before the endpoint existed."""

    events: Patterns | None = Field(None, description="Patterns. The default is those of the endpoint.")


# ── responses ────────────────────────────────────────────────────────────────────────────────────

IfAny = Annotated[str | None, Field(exclude_if=lambda value: value is None)]
"""Absent, not null, if it does not apply to the endpoint."""


class Circuit(BaseModel):
    """While it is open, deliveries wait and use no attempts."""

    state: Literal["closed", "open", "draining"]
    next_probe_at: str | None


class Counters(BaseModel):
    """`attempts` are HTTP requests. `delivered` and `failed` are deliveries that ended with that status."""

    attempts: int
    delivered: int
    failed: int
    consecutive_failures: int
    last_success_at: str | None
    last_failure_at: str | None


class OldSecret(BaseModel):
    """An old secret that still signs, together with the current one."""

    expires_at: str


class WebhookView(BaseModel):
    """An endpoint. Secrets and the values of headers are not shown.

    The endpoint `default` has no URL, circuit or counters: each job names its own URL.
    """

    webhook_id: str
    url: str | None
    events: list[str]
    filter: dict[str, Any] | None
    description: str
    headers: dict[str, str]
    rate_limit: float | None
    format: Format
    ordered: bool
    signing: Signing
    enabled: bool
    disabled_reason: str | None
    disabled_at: str | None
    failing_since: str | None
    circuit: Circuit | None
    host_circuit: Circuit | None = Field(description="Of all your webhooks to the same host and port.")
    counters: Counters | None
    old_secrets: list[OldSecret]
    public_key: IfAny = None
    created_at: str
    updated_at: str
    links: dict[str, str]


class WebhookWithSecret(WebhookView):
    """The only response that shows the secret. An ed25519 endpoint has a `public_key` instead."""

    secret: IfAny = None


class WebhookList(BaseModel):
    """All endpoints of the owner, oldest first."""

    webhooks: list[WebhookView]


class PublicKey(BaseModel):
    """A key that verifies signatures: the current one, or an old one until `expires_at`."""

    public_key: str
    current: bool
    expires_at: str | None


class PublicKeys(BaseModel):
    keys: list[PublicKey]


class OwnerEvents(BaseModel):
    """The owner's own events, newest first. `cursor` is for the next page; null if there is none."""

    events: list[dict[str, Any]]
    cursor: str | None


class AttemptSummary(BaseModel):
    """One HTTP request. `error` is a class such as `timeout` or `http_5xx`; null for a 2xx."""

    number: int
    at: str
    trigger: str
    duration_ms: int
    status: int | None
    error: str | None
    message: str | None


class AttemptView(AttemptSummary):
    """With the request and the response: the first 16 KiB of the body, as base64 if they are not UTF-8."""

    url: str
    request_headers: dict[str, str]
    response_headers: dict[str, str]
    body: str | None
    body_is_base64: bool
    truncated: bool


class Delivery(BaseModel):
    """One event to one endpoint."""

    delivery_id: str
    webhook_id: str
    event: str
    event_id: str
    job_id: str | None
    sequence: int | None
    format: str
    status: DeliveryStatus
    attempt_count: int
    next_attempt_at: str | None
    waits_for: Literal["circuit", "host_circuit"] | None = Field(
        description="The open circuit, of the endpoint or of its host, that the next attempt waits for."
    )
    created_at: str
    expires_at: str
    links: dict[str, str]


class DeliverySummary(Delivery):
    """A delivery in a list."""

    last_attempt: AttemptSummary | None


class DeliveryView(Delivery):
    """The delivery with all attempts, oldest first, and `payload`, the exact text of the request body.

    The payload is empty after the job was deleted.
    """

    attempts: list[AttemptView]
    payload: str


class DeliveryPage(BaseModel):
    """Deliveries, newest first. `cursor` is for the next page; null if there is none."""

    deliveries: list[DeliverySummary]
    cursor: str | None


class PingPending(BaseModel):
    """The ping has no response yet. The link leads to its delivery."""

    delivery_id: str
    links: dict[str, str]
