"""Routes under /uploads (rest.api.uploads)."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import ids
from rest.api.uploads import _safe
from tests.unit.conftest import forget
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]
FILE = {"filename": "Año 2026 (final).pdf", "content_type": "application/pdf", "size": 7}


def created(api: Api, **facts: Any) -> dict[str, Any]:
    answer = api("POST", "/uploads", FILE | facts)
    assert answer.status == 201, answer
    body: dict[str, Any] = answer.json
    return body


def test_key(api: Api) -> None:
    """The key is the owner's, new each time, and contains the file's name as far as possible."""
    one, two = created(api), created(api)
    prefix, owner, upload, name = one["s3_key"].split("/")
    assert (prefix, owner, name) == ("uploads", "ana", "A_o_2026_final_.pdf")
    assert ids.is_id("upl", upload)
    assert one["s3_key"] != two["s3_key"]
    assert one["method"] == "PUT"


@pytest.mark.parametrize(
    "filename", ["a b.pdf", "it's.pdf", '"; rm -rf ~; ".pdf', "$(id).pdf", "-o.pdf", "a[1-2]{b,c}.pdf", "👩‍🚀"]
)
def test_curl(api: Api, filename: str) -> None:
    """The command has the file's own name, whatever special characters it contains."""
    place = created(api, filename=filename)
    words = shlex.split(place["curl"])
    assert words[:5] == ["curl", "-fsS", "-T", filename, "-g"]
    assert words[-1] == place["url"]
    assert {"Content-Type: application/pdf", "If-None-Match: *"} == {
        words[i + 1] for i, word in enumerate(words) if word == "-H"
    }


@pytest.mark.parametrize(("size", "status"), [(1, 201), (1000, 201), (1001, 413), (10**30, 413)])
def test_limit(api: Api, size: int, status: int) -> None:
    """A file over the limit is refused."""
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
def test_invalid_fields(api: Api, wrong: dict[str, Any], field: str) -> None:
    """An invalid field is a 422 that names it."""
    assert problem(api("POST", "/uploads", FILE | wrong), 422, "invalid_request")["field"] == field


@pytest.mark.parametrize(
    "content_type", ["text/plain; charset=utf-8", "image/svg+xml", "application/vnd.ms-excel"]
)
def test_media_types(api: Api, content_type: str) -> None:
    """Media types can have a parameter. The default is application/octet-stream."""
    assert created(api, content_type=content_type)["headers"]["Content-Type"] == content_type
    answer = api("POST", "/uploads", {"filename": "a", "size": 1})
    assert answer.json["headers"]["Content-Type"] == "application/octet-stream"


@given(st.text(min_size=1))
def test_safe_names(filename: str) -> None:
    """The name in a key is short and has safe characters, and is no segment that clients normalize."""
    safe = _safe(filename)
    assert 1 <= len(safe) <= 100
    assert not set(safe) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert not safe.startswith(".")


@pytest.mark.parametrize(
    ("filename", "safe"),
    [("..", "file"), (".", "file"), ("../../x", "_.._x"), ("a" * 200 + ".pdf", "a" * 96 + ".pdf")],
)
def test_special_names(filename: str, safe: str) -> None:
    """A name of dots is replaced, and of a long name the end is kept."""
    assert _safe(filename) == safe


def test_parts(api: Api) -> None:
    """An upload in parts has a key, a URL for each part, and links to complete and abort it."""
    place = created(api, parts=True)
    assert place["s3_key"].startswith("uploads/ana/upl_")
    (part,) = place["parts"]
    assert (part["number"], part["size"], place["part_size"]) == (1, 7, 7)
    own = f"https://api.example.com/v1/uploads/{place['upload_id']}"
    assert place["links"] == {"complete": f"{own}/complete", "abort": own}
    assert not {"url", "headers", "curl", "method"} & set(place)


def test_largest_file(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest document has 63 parts, and the response is far below Lambda's limit of 6 MB."""
    monkeypatch.setenv("MAX_DOCUMENT_BYTES", "524288000")
    forget()
    answer = api("POST", "/uploads", FILE | {"size": 524_288_000, "parts": True})
    place = answer.json
    assert [part["number"] for part in place["parts"]] == list(range(1, 64))
    assert sum(part["size"] for part in place["parts"]) == 524_288_000
    token = 2_000  # of the function's role, in each URL, which has none here
    assert len(answer.body) + 63 * token < 600_000
    assert len({part["url"] for part in place["parts"]}) == 63


@pytest.mark.parametrize("kind", ["nothing", "replay", ""])
def test_kind_of_upload(api: Api, kind: str) -> None:
    """An upload for a kind that nobody can submit is refused. The error names the field."""
    assert problem(api("POST", "/uploads", FILE | {"kind": kind}), 422, "invalid_request")["field"] == "kind"
