"""A request that somebody has seen is sent again, with other signature headers."""

from __future__ import annotations

import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recado
from core.webhooks.transport import signing

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"event":"document.indexed"}'
AT, DAY = 1_796_000_000, 86_400
SEEN = signing.sign(SECRET, event_id="evt_1", timestamp=AT, body=BODY)
STRONG = ("webhook-id", "webhook-timestamp", "webhook-signature")
ABSENT = object()

values = st.sampled_from([ABSENT, None, "", " ", "1"])
changes = st.fixed_dictionaries({}, optional=dict.fromkeys(STRONG, values))


def changed(change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (SEEN | change).items() if value is not ABSENT}


@pytest.mark.parametrize("extra", [{}, {"webhook-id": "evt_9"}, {"webhook-timestamp": str(AT + DAY)}])
def test_an_old_request_without_the_strong_signature_is_refused(extra: dict[str, str]) -> None:
    """X-Signature has no time, so it has to be asked for. The error says how."""
    headers = {"x-signature": SEEN["x-signature"], **extra}
    with pytest.raises(recado.MissingHeader, match="allow_plain=True"):
        recado.verify(headers, BODY, SECRET, now=AT + DAY)
    assert recado.verify(headers, BODY, SECRET, now=AT + DAY, allow_plain=True).scheme == "plain"


@given(change=changes)
def test_no_header_can_be_changed_or_left_out(change: dict[str, Any]) -> None:
    """Leaving out a header never gives more than sending it."""
    if change:
        with pytest.raises(recado.VerificationError):
            recado.verify(changed(change), BODY, SECRET, now=AT)
    else:
        assert recado.verify(SEEN, BODY, SECRET, now=AT).scheme == "v1"


@given(change=changes)
def test_a_strong_signature_that_is_wrong_does_not_fall_back(change: dict[str, Any]) -> None:
    """Also with `allow_plain`, X-Signature counts only if the request has no webhook-signature at all."""
    headers = changed(change)
    try:
        event = recado.verify(headers, BODY, SECRET, now=AT, allow_plain=True)
    except recado.VerificationError:
        return
    assert event.scheme == ("plain" if headers.get("webhook-signature") is None else "v1")
    assert event.scheme == "plain" or not change


@pytest.mark.parametrize("secret", ["", [], (), [""], [SECRET, ""], "whsec_", None])
def test_an_empty_secret_verifies_nothing(secret: Any) -> None:
    """Anyone can sign with an empty key."""
    signature = "sha256=" + hmac.digest(b"", BODY, "sha256").hex()
    with pytest.raises(recado.BadSecret):
        recado.verify({"x-signature": signature}, BODY, secret, now=AT, allow_plain=True)
