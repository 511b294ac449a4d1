"""local.model.tools: tools as one JSON schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.model.events import Text, ToolCall
from local.model.tools import read_step, without_tools

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_-", min_size=1, max_size=20)


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **parameters}}}


def schema_of(**body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "x"}]
    found: dict[str, Any] = without_tools({"messages": messages, **body})["response_format"]["json_schema"][
        "schema"
    ]
    return found


@given(NAMES, st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_a_call_comes_back_as_it_was_written(name: str, arguments: dict[str, Any]) -> None:
    """Whatever its arguments are."""
    (event,) = read_step(json.dumps({"tool": name, "arguments": arguments}), "c1")
    assert isinstance(event, ToolCall)
    assert (event.id, event.name, json.loads(event.arguments)) == ("c1", name, arguments)


@given(NAMES, st.dictionaries(st.text(max_size=8), JSON, max_size=4), st.data())
def test_a_call_that_was_cut_off_has_arguments_that_are_no_json(
    name: str, arguments: dict[str, Any], data: st.DataObject
) -> None:
    """So nobody can run it, wherever it was cut."""
    whole = json.dumps({"tool": name, "arguments": arguments})
    start = whole.index('"arguments": ') + len('"arguments": ')
    (event,) = read_step(whole[: data.draw(st.integers(start, len(whole) - 2))], "c1")
    assert isinstance(event, ToolCall)
    with pytest.raises(ValueError, match=r".+"):
        json.loads(event.arguments)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('{"answer": "Yes."}', "Yes."),
        ('{"answer": {"a": 1}}', '{"a": 1}'),
        ("no JSON", "no JSON"),
        ("[1]", "[1]"),
        ('{"tool": "sea', '{"tool": "sea'),
    ],
)
def test_what_is_no_call_is_text(written: str, text: str) -> None:
    """Also what was cut off before the arguments."""
    assert list(read_step(written, "c1")) == [Text(text)]


def test_the_choice_says_which_forms_there_are() -> None:
    """All tools and an answer, all tools, or one tool."""
    tools = [tool("a"), tool("b")]

    def forms(choice: Any) -> list[str]:
        found = schema_of(tools=tools, tool_choice=choice)["oneOf"]
        return [form["properties"].get("tool", {"const": "answer"})["const"] for form in found]

    assert forms("auto") == ["a", "b", "answer"]
    assert forms("required") == ["a", "b"]
    assert forms({"type": "function", "function": {"name": "b"}}) == ["b"]


def test_the_prompt_names_the_forms_that_there_are() -> None:
    """A model that must call a tool is not told that it may answer."""

    def prompt(choice: Any) -> str:
        body = {"messages": [{"role": "user", "content": "x"}], "tools": [tool("a")], "tool_choice": choice}
        return str(without_tools(body)["messages"][0]["content"])

    assert '{"answer": text}' in prompt("auto")
    for choice in ("required", {"type": "function", "function": {"name": "a"}}):
        assert '"answer"' not in prompt(choice)
        assert '{"tool": name, "arguments": {...}}' in prompt(choice)


def test_definitions_are_at_the_root_of_the_schema() -> None:
    """A `$ref` of a tool's schema starts there."""
    city = {"type": "string"}
    found = schema_of(tools=[tool("a", properties={"to": {"$ref": "#/$defs/City"}}, **{"$defs": {"City": city}})])
    assert found["$defs"] == {"City": city}
    assert "$defs" not in found["oneOf"][0]["properties"]["arguments"]


def test_an_answer_keeps_the_form_that_was_asked_for() -> None:
    """With tools and `response_format`, the answer among the forms has the schema."""
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}
    found = schema_of(tools=[tool("a")], response_format=wanted)
    assert found["oneOf"][-1]["properties"]["answer"] == {"type": "integer"}


def test_tool_turns_become_text() -> None:
    """A model without tools reads the call that it wrote, and results as what the user says."""
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "x"}'}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "find "}, {"type": "text", "text": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "two hits"},
        {"role": "user", "content": "and now?"},
    ]
    assert without_tools({"messages": turns})["messages"] == [
        {"role": "user", "content": "find x"},
        {"role": "assistant", "content": '{"tool": "search", "arguments": {"query": "x"}}'},
        {"role": "user", "content": "Result of search: two hits\n\nand now?"},
    ]


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "Be brief."}]])
def test_the_tools_are_in_the_system_message(system: list[dict[str, Any]]) -> None:
    """There is one, and what it said is kept."""
    body = {"messages": [*system, {"role": "user", "content": "x"}], "tools": [tool("search")]}
    first, second = without_tools(body)["messages"]
    assert first["role"] == "system"
    assert "- search" in first["content"]
    assert first["content"].startswith("".join(turn["content"] for turn in system))
    assert second == {"role": "user", "content": "x"}
