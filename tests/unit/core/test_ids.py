"""Ids (core.ids)."""

from __future__ import annotations

import time

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from core import ids


@given(st.from_regex(r"[a-z]{3,4}", fullmatch=True))
def test_new(prefix: str) -> None:
    """A new id has its prefix, a ULID and no dot, and is an id with this prefix only."""
    made = ids.new(prefix)
    assert made.startswith(f"{prefix}_")
    assert "." not in made
    assert ids.is_id(prefix, made)
    assert not ids.is_id(f"{prefix}x", made)
    assert ids.ulid_of(made) == made.removeprefix(f"{prefix}_")


def test_distinct() -> None:
    """Ids of the same millisecond differ."""
    with time_machine.travel(1_796_000_000, tick=False):
        assert len({ids.new("job") for _ in range(1000)}) == 1000


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=5, unique=True))
def test_sortable(milliseconds: list[int]) -> None:
    """Ids sort as strings by time in milliseconds."""
    made = []
    for moment in sorted(milliseconds):
        with time_machine.travel(moment / 1000, tick=False):
            assert abs(time.time() - moment / 1000) < 0.001
            made.append(ids.new("job"))
    assert made == sorted(made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job_",
        "01JDXQ3V8N2M4K6H8G0F2E4D6C",
        "evt_01JDXQ3V8N2M4K6H8G0F2E4D6C",
        "job_01JDXQ3V8N2M4K6H8G0F2E4D6",
        "job_01JDXQ3V8N2M4K6H8G0F2E4D6CC",
        "job_01jdxq3v8n2m4k6h8g0f2e4d6c",
        "job_01JDXQ3V8N2M4K6H8G0F2E4D6I",
        "job_01JDXQ3V8N2M4K6H8G0F2E4D6C\n",
        "job_01JDXQ3V8N2M4K6H8G0F2E4D6C#META",
        "JOB_01JDXQ3V8N2M4K6H8G0F2E4D6C",
    ],
)
def test_not_an_id(text: str) -> None:
    """Strings with another prefix, other characters or another length are not ids."""
    assert not ids.is_id("job", text)


@given(st.integers(0, 2**42), st.integers(1, 10**6))
def test_floor(milliseconds: int, gap: int) -> None:
    """A floor sorts before every id of its millisecond and of later ones, and after all earlier ones.

    Also where a float has the time as a little less than it is, such as 1796000000.567.
    """
    floor = ids.floor("job", milliseconds / 1000)
    assert ids.is_id("job", floor)
    for moment, later in ((milliseconds, True), (milliseconds + gap, True), (milliseconds - gap, False)):
        if moment >= 0:
            made = f"job_{ULID.from_timestamp(moment)}"
            assert (made >= floor) == later


def test_floor_has_no_side_effect() -> None:
    """Making a floor does not affect new ids."""
    with time_machine.travel(1_796_000_000, tick=False):
        first = ids.new("job")
        floor = ids.floor("job", 1_700_000_000)
        assert floor == ids.floor("job", 1_700_000_000) < first
        assert first < ids.new("job")
