"""core.webhooks.endpoints.patterns"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.events import Event
from core.jobs import Kind
from core.webhooks.endpoints.patterns import (
    all_patterns,
    check_filter,
    check_pattern,
    event_names,
    matches,
    passes,
)
from kinds.document.kind import DOCUMENT
from kinds.registry import KINDS
from kinds.replay.kind import REPLAY
from tests.unit.examples import event

KNOWN = tuple(KINDS.values())
NAMES, PATTERNS = event_names(KNOWN), all_patterns(KNOWN)
GOOD_ENDS = {"document.indexed", "replay.completed"} | {f"{kind.name}.{kind.good_end}" for kind in KNOWN}


def happened(name: str) -> Event:
    """An event of this name, as the registered kinds log it."""
    kind = KINDS.get(name.partition(".")[0])
    if kind is None:
        return event(name=name, kind="endpoint", job_id=None, sequence=None, status=None, lifecycle=None)
    statuses = dict(zip(kind.final_names, ("completed", "failed", "canceled"), strict=True))
    told = {"status": statuses.get(name, "running"), "lifecycle": "ended" if name in statuses else "progress"}
    return event(name=name, kind=kind.name, **told)


names = st.sampled_from(NAMES)
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


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_is_for_something(pattern: str) -> None:
    """What can be subscribed to is taken as it is, and covers at least one event."""
    assert check_pattern(pattern, KNOWN) == pattern
    assert any(matches([pattern], happened(name)) for name in NAMES)


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("document.indexed", {"document.indexed"}),
        ("document.*", set(DOCUMENT.names)),
        ("endpoint.*", {"endpoint.disabled"}),
        ("*.disabled", {"endpoint.disabled"}),
        ("*.failed", {f"{name}.failed" for name in KINDS}),
        ("*.completed", GOOD_ENDS),
        ("*.indexed", {"document.indexed"}),
        ("*", {"endpoint.disabled", *(name for kind in KINDS.values() for name in kind.names)}),
    ],
)
def test_what_a_pattern_covers(pattern: str, covered: set[str]) -> None:
    """A name covers itself, the others their kind, their verb or everything."""
    assert {name for name in NAMES if matches([pattern], happened(name))} == covered


def test_what_there_is_to_subscribe_to() -> None:
    """Names and patterns follow from the kinds, and of an owner's own events one can be subscribed to."""
    assert event_names((REPLAY,)) == (*REPLAY.names, "endpoint.disabled")
    assert all_patterns((REPLAY,)) == (
        *(*REPLAY.names, "endpoint.disabled", "replay.*", "endpoint.*"),
        *("*.requested", "*.started", "*.completed", "*.failed", "*.canceled", "*.retried", "*.progressed"),
        *("*.disabled", "*"),
    )
    assert all_patterns(()) == ("endpoint.disabled", "endpoint.*", "*.disabled", "*.completed", "*")


@pytest.mark.parametrize("kinds", [KNOWN, (DOCUMENT,), (REPLAY,), ()], ids=["both", "document", "replay", "none"])
def test_each_pattern_once(kinds: tuple[Kind, ...]) -> None:
    """However many kinds have a verb, its pattern is named once, and every name is among the patterns."""
    found = all_patterns(kinds)
    assert len(set(found)) == len(found)
    assert set(event_names(kinds)) < set(found)
    assert "ping" not in found


@pytest.mark.parametrize("status", ["completed", "failed", "canceled", "running", "queued", None])
@pytest.mark.parametrize("lifecycle", ["ended", "progress", "submitted", None])
def test_every_good_end(status: str | None, lifecycle: str | None) -> None:
    """`*.completed` covers the event with which a job has completed, whatever its verb is, and no other."""
    ended = event(name="document.indexed", status=status, lifecycle=lifecycle)
    assert matches(["*.completed"], ended) == ((status, lifecycle) == ("completed", "ended"))
    assert matches(["*.completed"], event(name="other.completed", status="failed"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ping_is_for_the_endpoint_under_test(pattern: str) -> None:
    """No pattern covers a ping, which all endpoints of an owner would else get."""
    assert not matches([pattern, "ping"], happened("ping"))


@given(name=names, first=st.lists(st.sampled_from(PATTERNS)), second=st.lists(st.sampled_from(PATTERNS)))
def test_patterns_add_up(name: str, first: list[str], second: list[str]) -> None:
    """Several patterns cover what one of them covers, and none covers nothing."""
    told = happened(name)
    assert matches([*first, *second], told) == (matches(first, told) or matches(second, told))
    assert not matches([], told)


@pytest.mark.parametrize(
    "text",
    [
        *("documents.*", "document.index", "*.fail", "Document.indexed", "document", "document.", ".failed", ""),
        *(
            "**",
            "*.*",
            "document*",
            "doc*.failed",
            "document.indexed ",
            "*\n",
            "endpoint.failed",
            "\ud800",
            "*" * 9999,
        ),
    ],
)
def test_misspelt_patterns(text: str) -> None:
    """What covers nothing is refused, with all that there is to choose from, and at no great length."""
    with pytest.raises(ValueError, match="names no event") as caught:
        check_pattern(text, KNOWN)
    message = str(caught.value)
    assert all(choice in message.rpartition("choose from ")[2].split(", ") for choice in PATTERNS)
    assert message.isascii()
    assert len(message) < 2000


def test_ping_cannot_be_subscribed() -> None:
    """The refusal of ping says how one gets it."""
    with pytest.raises(ValueError, match="endpoint under test"):
        check_pattern("ping", KNOWN)


@given(st.text())
def test_only_the_listed_patterns(text: str) -> None:
    """Any other text is refused."""
    try:
        assert check_pattern(text, KNOWN) in PATTERNS
    except ValueError:
        assert text not in PATTERNS


EXAMPLE = {
    "document_id": ["a", {"prefix": "x"}],
    "chunks": [{"numeric": [">=", 10, "<", 100]}],
    "error": {"code": [{"exists": True}]},
    "flag": [True, None],
}
FITTING = {"document_id": "xyz", "chunks": 10, "error": {"code": "empty"}, "flag": None, "more": {}}


def test_a_filter_of_every_kind() -> None:
    """A payload that meets each key by one condition of its list passes."""
    assert check_filter(EXAMPLE) is EXAMPLE
    assert passes(EXAMPLE, FITTING)


@pytest.mark.parametrize(
    "change",
    [
        *({"document_id": "b"}, {"document_id": "ax"}, {"document_id": None}),
        *({"chunks": 9.99}, {"chunks": 100}, {"chunks": "10"}, {"chunks": True}),
        *({"error": {}}, {"error": None}, {"error": "code"}, {"flag": False}, {"flag": 1}),
    ],
)
def test_one_key_that_fails(change: dict[str, Any]) -> None:
    """All keys must hold: one that does not is enough to keep the event back."""
    assert not passes(EXAMPLE, FITTING | change)


@pytest.mark.parametrize("name", EXAMPLE)
def test_a_key_that_is_absent(name: str) -> None:
    """A field that the payload lacks equals nothing, not even null."""
    assert not passes(EXAMPLE, {key: value for key, value in FITTING.items() if key != name})


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
    """Equality is that of JSON, true is no number, and of a list one element is enough."""
    wanted = check_filter({"field": [condition]})
    assert passes(wanted, {"field": value}) is holds


@pytest.mark.parametrize(
    "payload", [{}, {"error": {}}, {"error": None}, {"error": []}, {"error": 5}, {"error": [1]}]
)
def test_absent_below_what_is_absent(payload: dict[str, Any]) -> None:
    """A field of an object that is not there does not exist either."""
    assert passes({"error": {"code": [{"exists": False}]}}, payload)
    assert not passes({"error": {"code": [{"exists": True}]}}, payload)


def test_one_element_must_meet_all() -> None:
    """Conditions on the objects of a list hold if one object meets them together, not each another."""
    wanted = {"pages": {"number": [1], "text": ["a"]}}
    assert passes(wanted, {"pages": [{"number": 2}, {"number": 1, "text": "a"}]})
    assert not passes(wanted, {"pages": [{"number": 1, "text": "b"}, {"number": 2, "text": "a"}]})


def test_deeper_than_the_stack() -> None:
    """A payload of a hundred thousand lists in each other is searched like any other."""
    value: Any = "found"
    for _ in range(100_000):
        value = [value]
    try:
        assert passes({"a": ["found"]}, {"a": value})
        assert not passes({"a": {"b": [1]}}, {"a": value})
    finally:
        while isinstance(value, list):  # unwound by hand: freeing it at once would recurse
            value = value[0]


@pytest.mark.parametrize("payload", [None, 1, "text", [], [1], [[]], True])
def test_a_payload_that_is_no_object(payload: object) -> None:
    """It has no fields, and that is all."""
    assert not passes({"a": [1]}, payload)
    assert passes({"a": [{"exists": False}]}, payload)


@given(wanted=filters(), payload=documents)
def test_never_raises(wanted: dict[str, Any], payload: Any) -> None:
    """A filter that was taken judges any JSON, as it does after a trip through JSON."""
    assert check_filter(wanted) is wanted
    verdict = passes(wanted, payload)
    assert verdict is passes(json.loads(json.dumps(wanted)), json.loads(json.dumps(payload)))


@given(first=filters(), second=filters(), payload=documents)
def test_keys_are_and(first: dict[str, Any], second: dict[str, Any], payload: Any) -> None:
    """Two filters over different keys, put together, pass an object that passes both."""
    both = {f"1{key}": value for key, value in first.items()} | {f"2{key}": value for key, value in second.items()}
    subject = payload if isinstance(payload, dict) else {"a": payload}
    doubled = {f"{n}{key}": value for n in "12" for key, value in subject.items()}
    assert passes(both, doubled) == (passes(first, subject) and passes(second, subject))


@given(first=conditions, second=conditions, value=documents)
def test_lists_are_or(first: Any, second: Any, value: Any) -> None:
    """A list of conditions holds where one of them holds."""
    either = passes({"a": [first]}, {"a": value}) or passes({"a": [second]}, {"a": value})
    assert passes({"a": [first, second]}, {"a": value}) == either


@given(value=documents)
def test_exists_and_its_opposite(value: Any) -> None:
    """A field is there or it is not, whatever it holds."""
    for payload in ({"a": value}, {"b": value}):
        assert passes({"a": [{"exists": True}]}, payload) != passes({"a": [{"exists": False}]}, payload)


@pytest.mark.parametrize(
    ("tree", "said"),
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
        (nested(6), r"filter\.a\.a\.a\.a\.a: this is level 6; nest at most 5"),
        (nested(900), "this is level 6; nest at most 5"),
        ({"a": ["x"] * 51}, "filter: 51 conditions are too many; keep to 50"),
        ({"a": {str(n): ["x"] for n in range(26)}, "b": ["x"] * 25}, "filter: 51 conditions are too many"),
    ],
)
def test_refused_filters(tree: object, said: str) -> None:
    """The refusal names the place and what to put there."""
    with pytest.raises(ValueError, match=said):
        check_filter(tree)


@pytest.mark.parametrize(
    "tree", [nested(5), {"a": ["x"] * 50}, {"a" * 256: ["x" * 256, {"prefix": "x" * 256}]}, {"a": [1e308, -5, ""]}]
)
def test_largest_filters(tree: object) -> None:
    """At each limit a filter is still taken."""
    assert check_filter(tree) is tree


@given(tree=documents, wanted=filters())
def test_any_tree_is_taken_or_refused(tree: object, wanted: dict[str, Any]) -> None:
    """Whatever JSON is given, the answer is the filter or a ValueError that begins with the path."""
    for candidate in (tree, {**wanted, "z": tree}):
        refusal = ""
        try:
            assert passes(check_filter(candidate), tree) in (True, False)
        except ValueError as error:
            refusal = str(error)
        assert refusal == "" or refusal.startswith("filter")
