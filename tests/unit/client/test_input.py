"""A job's input, as it is said on a command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado import _input

NAMES = st.text(st.characters(exclude_characters="=.", exclude_categories=["Cs"]), min_size=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(NAMES, min_size=1, max_size=4), JSON)
def test_any_json_can_be_set(path: list[str], value: Any) -> None:
    """A value that is JSON arrives as what it is, as deep as its dotted name says."""
    found = _input.field(f"{'.'.join(path)}={json.dumps(value)}")
    for name in path:
        assert list(found) == [name]
        found = found[name]
    assert found == value
    assert type(found) is type(value)


@given(NAMES, st.text() | st.text("0123456789.eE+-NaInfity"))
def test_what_is_no_json_is_text(name: str, text: str) -> None:
    """Anything else arrives as the text that was typed; nothing is sent that JSON cannot say."""
    (value,) = _input.field(f"{name}={text}").values()
    assert value == (json.loads(text) if is_json(text) else text)


def is_json(text: str) -> bool:
    try:
        json.dumps(json.loads(text), allow_nan=False)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[1e999]", "1" * 5000, "[" * 100_000])
def test_numbers_that_json_has_not_are_text(text: str) -> None:
    """Python reads more as JSON than JSON is: that stays text, rather than become what no service can read."""
    assert _input.field(f"a={text}") == {"a": text}


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_any_object_is_an_input(value: dict[str, Any]) -> None:
    """An input that is given whole is sent as it is."""
    assert _input.joined([_input.whole(json.dumps(value))]) == value


OBJECTS = st.recursive(
    st.integers(0, 3), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=2), max_leaves=6
).filter(lambda value: isinstance(value, dict))


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {key: leaf for name, inner in value.items() for key, leaf in leaves(inner, (*path, name)).items()}


@given(OBJECTS, OBJECTS)
def test_no_field_is_lost_where_objects_are_joined(one: Any, other: Any) -> None:
    """Either every field of both is in the result, or one is named that is in both; the order does not matter."""
    if clash(one, other):
        for parts in ([one, other], [other, one]):
            with pytest.raises(ValueError, match=r"^[abc.]+ is given twice$"):
                _input.joined(parts)
    else:
        together = _input.joined([one, other])
        assert together == _input.joined([other, one])
        assert leaves(together) == leaves(one) | leaves(other)


def clash(one: Any, other: Any) -> bool:
    """Whether both say what a field is, other than that it is an object."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return True
    return any(clash(one[name], other[name]) for name in one.keys() & other.keys())
