"""A job's input on the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado._cli import job_input

NAMES = st.text(st.characters(exclude_characters="=.", exclude_categories=["Cs"]), min_size=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(NAMES, min_size=1, max_size=4), JSON)
def test_any_json_can_be_set(path: list[str], value: Any) -> None:
    """A JSON value keeps its type, at the depth of its dotted name."""
    found = job_input.parse_field(f"{'.'.join(path)}={json.dumps(value)}")
    for name in path:
        assert list(found) == [name]
        found = found[name]
    assert found == value
    assert type(found) is type(value)


@given(NAMES, st.text() | st.text("0123456789.eE+-NaInfity"))
def test_other_values_are_text(name: str, text: str) -> None:
    """A value that is not JSON is text."""
    (value,) = job_input.parse_field(f"{name}={text}").values()
    assert value == (json.loads(text) if is_json(text) else text)


def is_json(text: str) -> bool:
    try:
        json.dumps(json.loads(text), allow_nan=False)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[1e999]", "1" * 5000, "[" * 100_000])
def test_numbers_that_are_not_json_are_text(text: str) -> None:
    """Python's parser accepts more than JSON. The service could not parse it."""
    assert job_input.parse_field(f"a={text}") == {"a": text}


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_any_object_is_an_input(value: dict[str, Any]) -> None:
    """An object is not changed."""
    assert job_input.merge([job_input.parse_input(json.dumps(value))]) == value


OBJECTS = st.recursive(
    st.integers(0, 3), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=2), max_leaves=6
).filter(lambda value: isinstance(value, dict))


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {key: leaf for name, inner in value.items() for key, leaf in leaves(inner, (*path, name)).items()}


@given(OBJECTS, OBJECTS)
def test_merging_loses_no_field(one: Any, other: Any) -> None:
    """The result has the fields of both objects, or a field of both is named. The order does not matter."""
    if conflict(one, other):
        for parts in ([one, other], [other, one]):
            with pytest.raises(ValueError, match=r"^[abc.]+ is given twice\.$"):
                job_input.merge(parts)
    else:
        merged = job_input.merge([one, other])
        assert merged == job_input.merge([other, one])
        assert leaves(merged) == leaves(one) | leaves(other)


def conflict(one: Any, other: Any) -> bool:
    """Whether both have the same field, and it is not an object in both."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return True
    return any(conflict(one[name], other[name]) for name in one.keys() & other.keys())
