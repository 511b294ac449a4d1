"""Tools as one schema, and the JSON of an answer as a call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import MalformedAnswer
from core.llm import tool_schema
from core.llm.provider import Message, Tool, ToolCall
from tests.unit.core.llm.samples import ASKED, CALL, CALLED, READ, RESULT, SEARCH, request

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([SEARCH, READ]), st.dictionaries(st.text(), JSON_VALUES, max_size=4), st.booleans())
def test_calls_survive_the_way_there_and_back(tool: Tool, arguments: dict[str, Any], required: bool) -> None:
    """The JSON of an earlier call, as the model sees it, is read as the same call."""
    asked = request(tools=[SEARCH, READ], require_tool=required)
    call = ToolCall(id="call_1", name=tool.name, arguments=json.dumps(arguments))
    earlier = Message(role="assistant", content="", tool_calls=(call,))
    shown = tool_schema.translate(request(messages=[ASKED, earlier], tools=asked.tools)).messages[-1].content
    read = tool_schema.read(shown, asked)
    assert isinstance(read, ToolCall)
    assert (read.name, json.loads(read.arguments)) == (tool.name, arguments)
    assert read.id.startswith("call_")


@given(st.text())
def test_answers_survive(answer: str) -> None:
    """An answer in the form of the schema is that text."""
    assert tool_schema.read(json.dumps({"answer": answer}), request(tools=[SEARCH])) == answer


def test_calls_have_different_ids() -> None:
    """A conversation may have the same call twice."""
    asked = request(tools=[SEARCH])
    ids = {tool_schema.read('{"tool": "search", "arguments": {}}', asked).id for _ in range(3)}  # type: ignore[union-attr]
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("On Tuesdays.", False),
        ('{"tool": "search", "arguments": {"que', False),
        ('{"tool": "delete", "arguments": {}}', False),
        ('{"tool": "search", "arguments": "tram"}', False),
        ('{"tool": "search"}', False),
        ("[]", False),
        ("", False),
        ('{"answer": "On Tuesdays."}', True),
    ],
)
def test_everything_else_is_malformed(text: str, required: bool) -> None:
    """No tool is called that does not exist, or with arguments that are no object."""
    with pytest.raises(MalformedAnswer):
        tool_schema.read(text, request(tools=[SEARCH], require_tool=required))


def test_the_schema_allows_each_tool_and_an_answer() -> None:
    """With `require_tool` there is no answer. Stop sequences, which could cut the JSON, are gone."""
    asked = request(tools=[SEARCH, READ], stop=["\n"])
    translated = tool_schema.translate(asked)
    assert (translated.tools, translated.stop, translated.require_tool) == ((), (), False)
    search, read, answer = translated.schema["oneOf"]  # type: ignore[index]
    assert search == {
        "type": "object",
        "properties": {"tool": {"const": "search"}, "arguments": SEARCH.parameters},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
    assert read["properties"]["tool"] == {"const": "read"}
    assert answer["properties"] == {"answer": {"type": "string"}}
    required = tool_schema.translate(request(tools=[SEARCH, READ], require_tool=True))
    assert required.schema == {"oneOf": [search, read]}


def test_the_schema_of_the_answer_stays() -> None:
    """An answer with a schema of its own is JSON inside of the JSON, and is returned as JSON text."""
    schema = {"type": "object", "properties": {"day": {"type": "string"}}}
    asked = request(tools=[SEARCH], schema=schema)
    assert tool_schema.translate(asked).schema["oneOf"][-1]["properties"] == {"answer": schema}  # type: ignore[index]
    assert tool_schema.read('{"answer": {"day": "Tuesday"}}', asked) == '{"day": "Tuesday"}'


def test_definitions_of_parameters_move_to_the_root() -> None:
    """References point at the root of a schema, so the definitions of each tool get its name there."""
    item = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Item"}}}
    parameters = {
        "type": "object",
        "properties": {"items": {"items": [{"$ref": "#/$defs/Item"}]}},
        "$defs": {"Item": item},
    }
    schema = tool_schema.translate(request(tools=[Tool(name="add", description="", parameters=parameters)])).schema
    assert schema is not None
    arguments = schema["oneOf"][0]["properties"]["arguments"]
    assert arguments == {"type": "object", "properties": {"items": {"items": [{"$ref": "#/$defs/add.Item"}]}}}
    assert schema["$defs"] == {
        "add.Item": {"type": "object", "properties": {"next": {"$ref": "#/$defs/add.Item"}}}
    }


def test_the_model_is_told_of_the_tools() -> None:
    """One system message has the tools and the request's own instructions: some templates allow only one."""
    system = Message(role="system", content="Be brief.")
    first, second = tool_schema.translate(request(messages=[system, ASKED], tools=[SEARCH])).messages
    assert first.role == "system"
    assert all(
        text in first.content for text in ('"search"', SEARCH.description, '"query"', "answer", "Be brief.")
    )
    assert second == ASKED


def test_earlier_turns_are_plain_messages() -> None:
    """Servers without tools have no roles for them: a call is the assistant's JSON, a result the user's text."""
    stray = Message(role="tool", content="?", tool_call_id="call_9")
    messages = tool_schema.translate(request(messages=[ASKED, CALLED, RESULT, stray])).messages
    assert [(message.role, message.content) for message in messages[1:]] == [
        ("assistant", f'{{"tool": "search", "arguments": {CALL.arguments}}}'),
        ("user", "Result of search:\nOn Tuesdays."),
        ("user", "Result of the tool:\n?"),
    ]
