"""core.webhooks.deliveries.model"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import ids
from core.webhooks.deliveries.model import (
    STATUSES,
    apply_attempt,
    delivery_id,
    destination_of,
    host_destination,
    is_delivery_id,
)
from tests.unit.core.webhooks.samples import ENDPOINT, attempt, delivery, failure

URL = "https://example.com/hook"


@given(
    trigger=st.sampled_from(["automatic", "manual", "probe"]),
    succeeded=st.booleans(),
    wait=st.none() | st.integers(0, 10**6),
    status=st.sampled_from(STATUSES),
    single=st.booleans(),
)
def test_apply_attempt(trigger: str, succeeded: bool, wait: int | None, status: str, single: bool) -> None:
    """Only automatic attempts count for the schedule. A success ends the delivery. A wait starts now."""
    before = delivery(status=status, single=single, tries=2, attempts=4)
    one = (attempt if succeeded else failure)(5, trigger=trigger)
    done = apply_attempt(before, one, wait=wait, now=1000)
    assert (done.attempts, done.last_attempt, done.lease_until) == (5, one, 0)
    assert done.tries == 2 + (trigger != "manual")
    assert (done.status == "delivered") == (succeeded or (status == "delivered" and trigger == "manual"))
    if not succeeded and trigger != "manual" and not single:
        assert (done.status, done.due) == (("failed", before.due) if wait is None else ("pending", 1000 + wait))


def test_ids() -> None:
    """An event has one delivery id per endpoint, and each of them is valid."""
    event, other = ids.new("evt"), ids.new("evt")
    made = {delivery_id(event, ENDPOINT), delivery_id(event, "default"), delivery_id(other, ENDPOINT)}
    assert len(made) == 3
    assert all(map(is_delivery_id, made))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dlv_",
        "dlv__default",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_other",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_default\n",
        "dlv_01jdxq3v8n2m4k6h8g0f2e4d6c_default",
        "dlv_dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_default",
        "01JDXQ3V8N2M4K6H8G0F2E4D6C_default",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_default#META",
    ],
)
def test_malformed_ids(text: str) -> None:
    """Text of another form is not a delivery id."""
    assert not is_delivery_id(text)


def test_destination() -> None:
    """An endpoint is one destination with any URL, and so is each URL of a job."""
    assert destination_of(ENDPOINT, None) == destination_of(ENDPOINT, URL) == ENDPOINT
    destinations = {destination_of("default", URL), destination_of("default", URL + "2")}
    assert len(destinations) == 2
    assert all(len(each) < 64 and each.replace("-", "").isalnum() for each in destinations)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://EXAMPLE.com:443/a?order=1",
        "https://example.com/b?order=2",
        "HTTPS://example.com?x",
        "http://example.com:443/",
    ],
)
def test_host_destination(url: str) -> None:
    """All URLs of a host and port are one destination."""
    assert host_destination(url) == "host#example.com:443"


def test_other_hosts() -> None:
    """Another port or host is another destination. Names and addresses have one form."""
    assert host_destination("https://example.com:8443/") == "host#example.com:8443"
    assert host_destination("http://example.com/") == "host#example.com:80"
    assert host_destination("https://[2001:DB8::0:1]/") == "host#[2001:db8::1]:443"
    assert host_destination("https://b\u00fccher.example/") == "host#xn--bcher-kva.example:443"


@pytest.mark.parametrize("url", [None, "", "no url", "https://a b/", "https://user@example.com/"])
def test_host_of_a_malformed_url(url: str | None) -> None:
    """Malformed URLs share a destination, as no request is made to them."""
    assert host_destination(url) == "host#"
