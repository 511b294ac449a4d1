"""Fingerprints of requests (core.jobs.idempotency)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs import fingerprint

numbers = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)


json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    """JSON equality: as in Python, except that true is not 1."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, bool) == isinstance(b, bool) and type(a is None) is type(b is None) and bool(a == b)


def rewritten(value: Any) -> Any:
    """The same value with other spelling: keys reversed, whole numbers as floats and vice versa."""
    if isinstance(value, dict):
        return {name: rewritten(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [rewritten(part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@given(json_values)
def test_rewritten_json_has_the_same_fingerprint(value: Any) -> None:
    """The order of keys, 1 or 1.0 and white space do not change the fingerprint."""
    other = rewritten(value)
    assert fingerprint(other) == fingerprint(value)
    assert fingerprint(json.loads(json.dumps(other, indent=3))) == fingerprint(value)


@given(json_values, json_values)
def test_fingerprints_of_any_values(a: Any, b: Any) -> None:
    """Two values have the same fingerprint if and only if they are equal."""
    assert (fingerprint(a) == fingerprint(b)) == same(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (0, False),
        (0, None),
        ("1", 1),
        ([], {}),
        ({"a": None}, {}),
        ([1, 2], [2, 1]),
        ("é", "e\u0301"),
        (2**53, 2**53 + 1),
        (0.1, 0.1000000001),
        ("\ud800", "\udc00"),
        (float("inf"), 10**308),
    ],
)
def test_similar_values(a: Any, b: Any) -> None:
    """Similar values, and those equal only in Python, have different fingerprints."""
    assert fingerprint(a) != fingerprint(b)
