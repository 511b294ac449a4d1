"""Multipart uploads (rest.api.parts)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.errors import NotFound
from rest.api.parts import MAX_PARTS, PART_BYTES, MultipartId, part_sizes

LEAST_BYTES = 5 * 1024 * 1024
KEY = "uploads/ana/upl_01JDX000000000000000000000/a.csv"


@given(st.integers(1, 10**12))
@example(1)
@example(PART_BYTES)
@example(PART_BYTES + 1)
@example(PART_BYTES * MAX_PARTS)
@example(PART_BYTES * MAX_PARTS + 1)
def test_part_sizes(size: int) -> None:
    """The sizes add up to the file's. All but the last are equal and allowed by S3, and their number is, too."""
    first, *others = part_sizes(size)
    assert first + sum(others) == size
    assert set(others[:-1]) <= {first}
    assert not others or first >= LEAST_BYTES
    assert 0 < [first, *others][-1] <= first
    assert 1 + len(others) <= MAX_PARTS


def test_usual_part_size() -> None:
    """A part has 8 MiB, unless that makes more than a thousand parts."""
    assert part_sizes(524_288_000)[0] == 8_388_608
    assert len(part_sizes(524_288_000)) == 63
    assert part_sizes(10**11)[0] == 10**8


@given(st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True), st.integers(1, 10**15 - 1))
def test_upload_id(s3_id: str, size: int) -> None:
    """An upload id needs no escapes in a URL, and is parsed as it was made."""
    ticket = MultipartId(s3_id, KEY, size)
    assert str(ticket).replace("-", "").replace("_", "").isalnum()
    assert MultipartId.read(str(ticket), owner="ana") == ticket


def packed(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "a",
        "ñ",
        "/w==",
        packed(KEY),
        packed(f"\n7\n{KEY}"),
        packed(f"id/..\n7\n{KEY}"),
        packed(f"id\n-7\n{KEY}"),
        packed(f"id\n{'9' * 16}\n{KEY}"),
        packed(f"id\n٧\n{KEY}"),
        packed(f"id\n7\n{KEY}/b"),
        packed(f"id\n7\n{KEY.replace('ana', 'ben')}"),
        packed(f"id\n7\n{KEY.replace('ana', 'ana/ana')}"),
        packed("id\n7\nvectors/ana/upl_01JDX000000000000000000000/a.csv"),
        packed(f"id\n7\nuploads/ana/upl_01JDX000000000000000000000/{'a' * 101}"),
    ],
)
def test_foreign_upload_ids(text: str) -> None:
    """An upload id of another owner, or anything else, is a 404."""
    with pytest.raises(NotFound):
        MultipartId.read(text, owner="ana")


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    """Any text is an upload id or a 404."""
    with pytest.raises(NotFound):
        MultipartId.read(text, owner="ana")
