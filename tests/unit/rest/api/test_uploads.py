from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import ids
from rest.api.uploads import _safe
from tests.simulated_cloud import presigned
from tests.unit.conftest import forget
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]
FILE = {"filename": "Año 2026 (final).pdf", "content_type": "application/pdf", "size": 7}


def created(api: Api, **facts: Any) -> dict[str, Any]:
    answer = api("POST", "/uploads", FILE | facts)
    assert answer.status == 201, answer
    body: dict[str, Any] = answer.json
    return body


def test_place(api: Api) -> None:
    """A place is the owner's own, new each time, and keeps what can be kept of the file's name."""
    one, two = created(api), created(api)
    prefix, owner, upload, name = one["s3_key"].split("/")
    assert (prefix, owner, name) == ("uploads", "ana", "A_o_2026_final_.pdf")
    assert ids.is_id("upl", upload)
    assert one["s3_key"] != two["s3_key"]
    assert one["method"] == "PUT"


def test_what_is_signed(api: Api) -> None:
    """The signature binds length, type and `if-none-match`; the headers to send are told exactly."""
    place = created(api)
    query = parse_qs(urlsplit(place["url"]).query)
    assert query["X-Amz-SignedHeaders"] == ["content-length;content-type;host;if-none-match"]
    assert query["X-Amz-Expires"] == ["3600"]
    assert place["headers"] == {"Content-Type": "application/pdf", "If-None-Match": "*"}


def test_one_upload_of_this_form(api: Api) -> None:
    """What is signed verifies with these headers and this length, and with nothing else, and for an hour."""
    place, now = created(api), datetime.now(UTC)
    sent = place["headers"] | {"Content-Length": "7"}
    presigned.check("PUT", place["url"], sent, now)
    for wrong in ({"Content-Length": "8"}, {"Content-Type": "text/html"}, {"If-None-Match": ""}):
        with pytest.raises(presigned.Forbidden):
            presigned.check("PUT", place["url"], sent | wrong, now)
    with pytest.raises(presigned.Forbidden):
        presigned.check("GET", place["url"], sent, now)
    with pytest.raises(presigned.Forbidden):
        presigned.check("PUT", place["url"], sent, now + timedelta(hours=1, minutes=1))
    expires = datetime.fromisoformat(place["expires_at"])
    assert timedelta(minutes=59) < expires - now < timedelta(minutes=61)


@pytest.mark.parametrize(
    "filename", ["a b.pdf", "it's.pdf", '"; rm -rf ~; ".pdf', "$(id).pdf", "-o.pdf", "a[1-2]{b,c}.pdf", "👩‍🚀"]
)
def test_curl(api: Api, filename: str) -> None:
    """The line is one command with the file's own name, whatever characters a shell or curl would read in it."""
    place = created(api, filename=filename)
    words = shlex.split(place["curl"])
    assert words[:5] == ["curl", "-fsS", "-T", filename, "-g"]
    assert words[-1] == place["url"]
    assert {"Content-Type: application/pdf", "If-None-Match: *"} == {
        words[i + 1] for i, word in enumerate(words) if word == "-H"
    }


@pytest.mark.parametrize(("size", "status"), [(1, 201), (1000, 201), (1001, 413), (10**30, 413)])
def test_limit(api: Api, size: int, status: int) -> None:
    """What is larger than the limit is refused before it is sent."""
    answer = api("POST", "/uploads", FILE | {"size": size})
    assert answer.status == status
    if status == 413:
        assert problem(answer, 413, "payload_too_large")["field"] == "size"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"size": 0}, "size"),
        ({"size": -1}, "size"),
        ({"size": 1.5}, "size"),
        ({"size": None}, "size"),
        ({"filename": ""}, "filename"),
        ({"filename": "a\nb"}, "filename"),
        ({"filename": "a" * 257}, "filename"),
        ({"filename": "\ud800"}, "filename"),
        ({"content_type": "pdf"}, "content_type"),
        ({"content_type": "a/b\r\nx: y"}, "content_type"),
        ({"content_type": "téxt/plain"}, "content_type"),
        ({"content_type": "a/b; c"}, "content_type"),
        ({"name": "x"}, "name"),
    ],
)
def test_what_is_wrong_is_named(api: Api, wrong: dict[str, Any], field: str) -> None:
    """A description that no upload could fit is a 422 that names the field."""
    assert problem(api("POST", "/uploads", FILE | wrong), 422, "invalid_request")["field"] == field


@pytest.mark.parametrize(
    "content_type", ["text/plain; charset=utf-8", "image/svg+xml", "application/vnd.ms-excel"]
)
def test_media_types(api: Api, content_type: str) -> None:
    """Ordinary media types pass, with a parameter too; one that is not told is taken for bytes."""
    assert created(api, content_type=content_type)["headers"]["Content-Type"] == content_type
    answer = api("POST", "/uploads", {"filename": "a", "size": 1})
    assert answer.json["headers"]["Content-Type"] == "application/octet-stream"


@given(st.text(min_size=1))
def test_safe_names(filename: str) -> None:
    """A name in a key is short and plain, and no step of a path that clients shorten."""
    safe = _safe(filename)
    assert 1 <= len(safe) <= 100
    assert not set(safe) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert not safe.startswith(".")


@pytest.mark.parametrize(
    ("filename", "safe"),
    [("..", "file"), (".", "file"), ("../../x", "_.._x"), ("a" * 200 + ".pdf", "a" * 96 + ".pdf")],
)
def test_awkward_names(filename: str, safe: str) -> None:
    """Dots alone are no name, and of a long name the end is kept, which has the suffix."""
    assert _safe(filename) == safe


def test_scope(api: Api) -> None:
    """A place to upload needs the scope to write."""
    problem(api("POST", "/uploads", FILE, scopes="jobs:read"), 403, "forbidden")


def test_parts(api: Api) -> None:
    """An upload in parts has a place like any other, a URL for each part, and links for what comes after them."""
    place = created(api, parts=True)
    assert place["s3_key"].startswith("uploads/ana/upl_")
    (part,) = place["parts"]
    assert (part["number"], part["size"], place["part_size"]) == (1, 7, 7)
    own = f"https://api.example.com/v1/uploads/{place['upload_id']}"
    assert place["links"] == {"complete": f"{own}/complete", "abort": own}
    assert not {"url", "headers", "curl", "method"} & set(place)


def test_one_part_of_this_form(api: Api) -> None:
    """A part's URL verifies with this length and method, and with nothing else, and for an hour."""
    place, now = created(api, parts=True), datetime.now(UTC)
    url = place["parts"][0]["url"]
    presigned.check("PUT", url, {"Content-Length": "7"}, now)
    for method, length, when in (
        ("PUT", "8", now),
        ("GET", "7", now),
        ("PUT", "7", now + timedelta(hours=1, minutes=1)),
    ):
        with pytest.raises(presigned.Forbidden):
            presigned.check(method, url, {"Content-Length": length}, when)
    for changed in (url.replace("partNumber=1", "partNumber=2"), url.replace("uploadId=", "uploadId=x")):
        with pytest.raises(presigned.Forbidden):
            presigned.check("PUT", changed, {"Content-Length": "7"}, now)


def test_the_largest_file(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the configuration allows at most is 63 parts, and an answer far below Lambda's 6 MB."""
    monkeypatch.setenv("MAX_UPLOAD_BYTES", "524288000")
    forget()
    answer = api("POST", "/uploads", FILE | {"size": 524_288_000, "parts": True})
    place = answer.json
    assert [part["number"] for part in place["parts"]] == list(range(1, 64))
    assert sum(part["size"] for part in place["parts"]) == 524_288_000
    token = 2_000  # of the function's role, in each URL, which has none here
    assert len(answer.body) + 63 * token < 600_000
    assert len({part["url"] for part in place["parts"]}) == 63


def test_scopes_of_parts(api: Api) -> None:
    """Completing and giving up need the scope to write, too."""
    upload_id = created(api, parts=True)["upload_id"]
    done = {"parts": [{"number": 1, "etag": "e"}]}
    problem(api("POST", f"/uploads/{upload_id}/complete", done, scopes="jobs:read"), 403, "forbidden")
    problem(api("DELETE", f"/uploads/{upload_id}", scopes="jobs:read"), 403, "forbidden")
