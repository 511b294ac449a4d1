"""What a browser shows of the API cannot be framed, sniffed or scripted, and costs little to whoever asks."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.http import SECURITY_HEADERS
from rest.api.handler import accepts_gzip
from stacks.constructs import rest_api
from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.rest_api import Response
from tests.support.problems import assert_problem
from tests.support.service import Service

GZIP = {"Accept-Encoding": "gzip, deflate, br"}
NAMES = set(SECURITY_HEADERS)
JOB = "job_01JDXQ3V8N2M4K6H8G0F2E4D6C"

ASKED: dict[str, Callable[[Service], Response]] = {
    "a result": lambda service: service.call("GET", "/jobs"),
    "a created job": lambda service: service.call(
        "POST", "/jobs", json={"kind": "document", "input": {"text": "t"}}
    ),
    "a problem of the API": lambda service: service.call("GET", f"/jobs/{JOB}"),
    "a problem of the long poll": lambda service: service.call("GET", f"/jobs/{JOB}/status"),
    "a problem of the search": lambda service: service.call("POST", "/search", json={}),
    "a broken link": lambda service: service.cloud.request("GET", "/follow/x/status"),
    "a path that is not there": lambda service: service.call("GET", "/jobs/a/b/c"),
    "a refusal of the gateway": lambda service: service.cloud.request("GET", "/jobs"),
    "a path that the gateway does not know": lambda service: service.cloud.request("GET", "/health/x"),
    "a webhook": lambda service: service.call("POST", "/jobs", json={}, headers={"Recado-Delivery": "d"}),
    "the description": lambda service: service.cloud.request("GET", "/openapi.json"),
    "the page": lambda service: service.cloud.request("GET", "/docs", headers=GZIP),
}


@pytest.mark.parametrize("asked", ASKED)
def test_security_headers(service: Service, asked: str) -> None:
    """Every response, of each function and of the gateway itself, has all security headers."""
    headers = ASKED[asked](service).headers
    assert {name for name in NAMES if name not in headers} == set()
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    policy = {part.strip() for part in headers["Content-Security-Policy"].split(";")}
    assert policy & {"sandbox", "default-src 'none'"}


def test_the_gateway_sends_the_same_headers() -> None:
    """The gateway's own responses have the headers of the functions."""
    assert set(rest_api.SECURITY_HEADERS) == NAMES


def test_only_the_scripts_of_the_page_run(cloud: Cloud) -> None:
    """The policy of the page allows its own two scripts by their hashes, and no other host."""
    page = cloud.request("GET", "/docs", headers=GZIP)
    policy = dict(part.strip().split(" ", 1) for part in page.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}=' 'sha256-[A-Za-z0-9+/]{43}='", policy["script-src"])
    assert policy["connect-src"] == "'self'"


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_what_does_not_change_is_cached(cloud: Cloud, path: str) -> None:
    """A client that has the page gets 304 without a body."""
    first = cloud.request("GET", path, headers=GZIP)
    assert first.headers["Cache-Control"] == "public, max-age=3600"
    again = cloud.request("GET", path, headers=GZIP | {"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.text) == (304, "")
    changed = cloud.request("GET", path, headers=GZIP | {"If-None-Match": '"other"'})
    assert (changed.status, changed.text) == (200, first.text)


@pytest.mark.parametrize("accepted", [None, "", "identity", "gzip;q=0", "gzip; q=0.000", "br", "gzipx", "x-gzip2"])
def test_the_large_page_comes_compressed_only(cloud: Cloud, accepted: str | None) -> None:
    """Whoever does not accept a compressed page gets a short problem instead of 1.7 MB."""
    headers = {} if accepted is None else {"Accept-Encoding": accepted}
    found = assert_problem(cloud.request("GET", "/docs", headers=headers), 406, "not_acceptable")
    assert "--compressed" in found["detail"]


@given(
    st.lists(st.sampled_from(["br", "deflate", "identity;q=0.5", "*;q=0"])),
    st.sampled_from(["", ";q=0.1", "; q=1"]),
)
def test_gzip_among_others(others: list[str], quality: str) -> None:
    """gzip is accepted wherever it stands in the list, with any quality above zero."""
    assert accepts_gzip(", ".join([*others, f"GZip{quality}", *others]))
    assert not accepts_gzip(", ".join([*others, "gzip;q=0", *others]))
