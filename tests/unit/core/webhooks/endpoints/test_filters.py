"""core.webhooks.endpoints.filters"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.webhooks.endpoints.filters import check_filter, passes

numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)
documents = st.recursive(
    scalars | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
comparisons = st.lists(
    st.tuples(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), numbers), min_size=1, max_size=2
)
conditions = (
    scalars
    | st.fixed_dictionaries({"prefix": st.text(max_size=3)})
    | st.fixed_dictionaries({"exists": st.booleans()})
    | st.fixed_dictionaries({"numeric": comparisons.map(lambda pairs: [part for pair in pairs for part in pair])})
)


def filters(levels: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    fields: st.SearchStrategy[Any] = st.lists(conditions, min_size=1, max_size=2)
    if levels > 1:
        fields |= filters(levels - 1)
    return st.dictionaries(st.sampled_from("abc"), fields, min_size=1, max_size=2)


def nested(levels: int) -> dict[str, Any]:
    return {"a": nested(levels - 1)} if levels > 1 else {"a": [1]}


EXAMPLE = {
    "document_id": ["a", {"prefix": "x"}],
    "chunks": [{"numeric": [">=", 10, "<", 100]}],
    "error": {"code": [{"exists": True}]},
    "flag": [True, None],
}
MATCHING = {"document_id": "xyz", "chunks": 10, "error": {"code": "empty"}, "flag": None, "more": {}}


def test_a_filter_of_every_kind() -> None:
    """A payload passes if each field matches one condition of its list."""
    assert check_filter(EXAMPLE) is EXAMPLE
    assert passes(EXAMPLE, MATCHING)


@pytest.mark.parametrize(
    "change",
    [
        *({"document_id": "b"}, {"document_id": "ax"}, {"document_id": None}),
        *({"chunks": 9.99}, {"chunks": 100}, {"chunks": "10"}, {"chunks": True}),
        *({"error": {}}, {"error": None}, {"error": "code"}, {"flag": False}, {"flag": 1}),
    ],
)
def test_one_field_that_does_not_match(change: dict[str, Any]) -> None:
    """One field that does not match is enough to reject the payload."""
    assert not passes(EXAMPLE, MATCHING | change)


@pytest.mark.parametrize("name", EXAMPLE)
def test_absent_field(name: str) -> None:
    """A field that the payload lacks matches no value, not even null."""
    assert not passes(EXAMPLE, {key: value for key, value in MATCHING.items() if key != name})


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        *(
            (1, 1.0, True),
            (1.0, 1, True),
            (1, True, False),
            (True, 1, False),
            (0, False, False),
            (False, 0, False),
        ),
        *((True, True, True), (False, False, True), (True, False, False), (None, None, True), (None, 0, False)),
        *((None, False, False), (False, None, False), ("1", 1, False), (1, "1", False), ("", None, False)),
        *(("a", "A", False), ("é", "e\u0301", False), ("a", {"a": "a"}, False), ("", "", True)),
        *(({"prefix": "a"}, "a", True), ({"prefix": "a"}, "ba", False), ({"prefix": "1"}, 1, False)),
        *(({"prefix": ""}, "", True), ({"prefix": ""}, None, False), ({"prefix": "A"}, "ab", False)),
        *(({"exists": True}, None, True), ({"exists": True}, {}, True), ({"exists": True}, [], True)),
        *(({"exists": False}, None, False), ({"exists": False}, [], False), ({"exists": False}, 0, False)),
        *(({"numeric": ["=", 1]}, 1.0, True), ({"numeric": ["=", 1]}, True, False)),
        *(
            ({"numeric": ["!=", 1]}, 2, True),
            ({"numeric": ["!=", 1]}, 1, False),
            ({"numeric": ["!=", 1]}, "1", False),
        ),
        *(({"numeric": ["<", 1]}, 0, True), ({"numeric": ["<", 1]}, 1, False), ({"numeric": ["<=", 1]}, 1, True)),
        *(({"numeric": [">", 1]}, 2, True), ({"numeric": [">", 1]}, 1, False), ({"numeric": [">=", 1]}, 1, True)),
        *(({"numeric": [">", 0, "<=", 5]}, 5, True), ({"numeric": [">", 0, "<=", 5]}, 5.1, False)),
        *(({"numeric": [">", 0, "<=", 5]}, 0, False), ({"numeric": ["=", 1]}, float("nan"), False)),
        *(({"numeric": [">", 1e308]}, 10**400, True), (1e308, 10**400, False)),
        *(("a", ["b", "a"], True), ("a", [["b"], [["a"]]], True), ("a", [], False), (None, [None], True)),
        *(
            ({"numeric": [">", 1]}, [0, 5], True),
            ({"prefix": "a"}, [1, "ab"], True),
            ({"exists": True}, [1], True),
        ),
    ],
)
def test_one_condition(condition: object, value: object, holds: bool) -> None:
    """Values are equal as in JSON, true is not a number, and one element of a list is enough."""
    wanted = check_filter({"field": [condition]})
    assert passes(wanted, {"field": value}) is holds


@pytest.mark.parametrize(
    "payload", [{}, {"error": {}}, {"error": None}, {"error": []}, {"error": 5}, {"error": [1]}]
)
def test_absent_field_of_an_absent_object(payload: dict[str, Any]) -> None:
    """A field of an absent object does not exist."""
    assert passes({"error": {"code": [{"exists": False}]}}, payload)
    assert not passes({"error": {"code": [{"exists": True}]}}, payload)


def test_one_element_must_meet_all() -> None:
    """Conditions on objects in a list must all match the same object."""
    wanted = {"pages": {"number": [1], "text": ["a"]}}
    assert passes(wanted, {"pages": [{"number": 2}, {"number": 1, "text": "a"}]})
    assert not passes(wanted, {"pages": [{"number": 1, "text": "b"}, {"number": 2, "text": "a"}]})


def test_deeper_than_the_stack() -> None:
    """A payload of 100,000 nested lists is searched without recursion."""
    value: Any = "found"
    for _ in range(100_000):
        value = [value]
    try:
        assert passes({"a": ["found"]}, {"a": value})
        assert not passes({"a": {"b": [1]}}, {"a": value})
    finally:
        while isinstance(value, list):  # unwound here, as to free it at once would recurse
            value = value[0]


@pytest.mark.parametrize("payload", [None, 1, "text", [], [1], [[]], True])
def test_a_payload_that_is_no_object(payload: object) -> None:
    """A payload that is not an object has no fields."""
    assert not passes({"a": [1]}, payload)
    assert passes({"a": [{"exists": False}]}, payload)


@given(wanted=filters(), payload=documents)
def test_never_raises(wanted: dict[str, Any], payload: Any) -> None:
    """A valid filter accepts any JSON, with the same result after a round trip through JSON."""
    assert check_filter(wanted) is wanted
    result = passes(wanted, payload)
    assert result is passes(json.loads(json.dumps(wanted)), json.loads(json.dumps(payload)))


@given(first=filters(), second=filters(), payload=documents)
def test_fields_are_combined_with_and(first: dict[str, Any], second: dict[str, Any], payload: Any) -> None:
    """A filter of two filters on different fields passes what both of them pass."""
    both = {f"1{key}": value for key, value in first.items()} | {f"2{key}": value for key, value in second.items()}
    subject = payload if isinstance(payload, dict) else {"a": payload}
    doubled = {f"{n}{key}": value for n in "12" for key, value in subject.items()}
    assert passes(both, doubled) == (passes(first, subject) and passes(second, subject))


@given(first=conditions, second=conditions, value=documents)
def test_conditions_are_combined_with_or(first: Any, second: Any, value: Any) -> None:
    """A list of conditions matches if one of them matches."""
    either = passes({"a": [first]}, {"a": value}) or passes({"a": [second]}, {"a": value})
    assert passes({"a": [first, second]}, {"a": value}) == either


@given(value=documents)
def test_exists_and_its_opposite(value: Any) -> None:
    """Exactly one of `exists: true` and `exists: false` matches."""
    for payload in ({"a": value}, {"b": value}):
        assert passes({"a": [{"exists": True}]}, payload) != passes({"a": [{"exists": False}]}, payload)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        *(([], "filter: give an object"), ({}, "filter: give an object"), (None, "filter: give an object")),
        *(("a", "filter: give an object"), ({"a": {}}, r"filter\.a: give an object with at least one field")),
        *(({"a": []}, r"filter\.a: give a list with at least one"), ({"a": "x"}, r"filter\.a: give a list")),
        *(({"a": {"b": 1}}, r"filter\.a\.b: give a list"), ({"a": None}, r"filter\.a: give a list")),
        (
            {"a": [1, ["x"]]},
            r"filter\.a\[1\]: give a string, number, true, false or null, or an object with just one",
        ),
        ({"a": [{"suffix": "x"}]}, r"filter\.a\[0\]: give .* prefix, exists, numeric"),
        ({"a": [{"anything-but": ["x"]}]}, r"filter\.a\[0\]: give"),
        *(
            ({"a": [{}]}, r"filter\.a\[0\]: give"),
            ({"a": [{"prefix": "x", "exists": True}]}, r"filter\.a\[0\]: give"),
        ),
        ({"$or": [{"a": [1]}, {"b": [1]}]}, r"filter\.\$or: there is no \$or"),
        ({"a": [{"prefix": 1}]}, r"filter\.a\[0\]\.prefix: give a string"),
        ({"a": [{"prefix": "x" * 257}]}, r"filter\.a\[0\]\.prefix: give a string of at most 256"),
        ({"a": ["x" * 257]}, r"filter\.a\[0\]: give a string of at most 256"),
        ({"a" * 257: ["x"]}, r"filter, the field 'a{20}'…: give a string of at most 256"),
        *(
            ({"a": [{"exists": 1}]}, r"exists: give true or false"),
            ({"a": [{"exists": None}]}, "give true or false"),
        ),
        *(({"a": [{"numeric": 1}]}, "numeric: give one comparison or two"), ({"a": [{"numeric": []}]}, "or two")),
        *(({"a": [{"numeric": ["="]}]}, "or two"), ({"a": [{"numeric": ["<", 1] * 3}]}, "or two")),
        ({"a": [{"numeric": ["==", 1]}]}, r"filter\.a\[0\]\.numeric\[0\]: give one of = != < <= > >="),
        ({"a": [{"numeric": [["="], 1]}]}, r"numeric\[0\]: give one of"),
        ({"a": [{"numeric": [">", 1, "<", "2"]}]}, r"filter\.a\[0\]\.numeric\[3\]: give a finite number"),
        ({"a": [{"numeric": [">", True]}]}, r"numeric\[1\]: give a finite number"),
        *(({"a": [float("inf")]}, r"filter\.a\[0\]: give a finite"), ({"a": [float("nan")]}, "give a finite")),
        *(({"a": [10**400]}, "give a finite"), ({"a": [{"numeric": ["<", -(10**400)]}]}, "give a finite")),
        (nested(6), r"filter\.a\.a\.a\.a\.a: this is level 6; use at most 5"),
        (nested(900), "this is level 6; use at most 5"),
        ({"a": ["x"] * 51}, "filter: 51 conditions are too many; the limit is 50"),
        ({"a": {str(n): ["x"] for n in range(26)}, "b": ["x"] * 25}, "filter: 51 conditions are too many"),
    ],
)
def test_refused_filters(tree: object, message: str) -> None:
    """The message of an invalid filter has the path of the error and what to put there."""
    with pytest.raises(ValueError, match=message):
        check_filter(tree)


@pytest.mark.parametrize(
    "tree", [nested(5), {"a": ["x"] * 50}, {"a" * 256: ["x" * 256, {"prefix": "x" * 256}]}, {"a": [1e308, -5, ""]}]
)
def test_largest_filters(tree: object) -> None:
    """Filters at each limit are accepted."""
    assert check_filter(tree) is tree


@given(tree=documents, wanted=filters())
def test_any_json_is_accepted_or_refused(tree: object, wanted: dict[str, Any]) -> None:
    """Any JSON is a valid filter, or a ValueError that starts with the path."""
    for candidate in (tree, {**wanted, "z": tree}):
        refusal = ""
        try:
            assert passes(check_filter(candidate), tree) in (True, False)
        except ValueError as error:
            refusal = str(error)
        assert refusal == "" or refusal.startswith("filter")
