"""The check of datasets (kinds.fine_tune.dataset, kinds.fine_tune.formats)."""

from __future__ import annotations

import codecs
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinds.fine_tune.dataset import MAX_SHOWN, Dataset, check
from kinds.fine_tune.families import family_of
from kinds.fine_tune.formats import CONVERSATION, MESSAGES, PROMPT, Example, Format, format_of, read, write

NOVA, TITAN, HAIKU = (
    family_of(model)
    for model in ("amazon.nova-lite-v1:0:300k", "amazon.titan-text-lite-v1:0:4k", "anthropic.claude-3-haiku-1")
)
GOOD = b'{"prompt": "Why?", "completion": "So."}'
TURN = {"role": "user", "content": "Why?"}
ANSWER = {"role": "assistant", "content": "So."}


def checked(*lines: bytes | dict[str, Any], family: Any = NOVA, least: int = 0) -> Dataset:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return check(b"\n".join(raw), family, min_examples=least)


def errors(*lines: bytes | dict[str, Any], **options: Any) -> list[tuple[int, str, str]]:
    return [(error.line, error.field, error.message) for error in checked(*lines, **options).errors.shown]


def fields(*lines: bytes | dict[str, Any], **options: Any) -> list[tuple[int, str]]:
    return [(line, field) for line, field, _ in errors(*lines, **options)]


def conversation(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"schemaVersion": CONVERSATION, "messages": list(messages), **more}


def block(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"text": text} for text in texts]}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "is blank"),
        (b" \t", "is blank"),
        (b'{"prompt": "\xff"}', "is not UTF-8 at byte 13"),
        (b'{"prompt": ', "is not JSON at character 12"),
        (b'{"prompt": NaN}', "is not JSON: it has NaN"),
        (b'{"prompt": "a", "prompt": "b"}', "has a field twice"),
        (b'"text"', "must be a JSON object"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"text": "a"}', "has neither prompt and completion nor messages"),
        (
            b'{"messages": [], "schemaVersion": "x"}',
            "has the format bedrock-conversation-2024, and the lines before",
        ),
    ],
)
def test_lines_that_are_no_examples(line: bytes, words: str) -> None:
    """The error has the number of the line and says what is wrong with the whole line."""
    number, field, message = errors(GOOD, line, GOOD)[0]
    assert (number, field) == (2, "")
    assert message.startswith(words)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ({"prompt": "a"}, ["completion"]),
        ({"prompt": " ", "completion": 1}, ["prompt", "completion"]),
        ({"prompt": "a", "completion": "\ud800"}, ["completion"]),
        ({"prompt": "a", "completion": "b", "system": "c"}, ["system"]),
        ({"messages": []}, ["messages"]),
        ({"messages": "a"}, ["messages"]),
        ({"messages": [TURN]}, ["messages[0]"]),
        ({"messages": [ANSWER, TURN]}, ["messages[0].role", "messages[1].role"]),
        ({"messages": [TURN, TURN]}, ["messages[1].role"]),
        ({"messages": [TURN, {"content": "b"}]}, ["messages[1].role"]),
        ({"messages": [TURN, {"role": "assistant"}]}, ["messages[1].content"]),
        ({"messages": [TURN, {**ANSWER, "name": "x"}]}, ["messages[1].name"]),
        ({"messages": [TURN, "So."]}, ["messages[1]"]),
        ({"messages": [TURN, ANSWER, {"role": "system", "content": "x"}]}, ["messages[2].role", "messages[2]"]),
        ({"system": "a", "messages": [{"role": "system", "content": "b"}, TURN, ANSWER]}, ["messages[0].role"]),
        ({"system": "", "messages": [TURN, ANSWER]}, ["system"]),
        (conversation(block("user", "a"), ANSWER), ["messages[1].content"]),
        (conversation(block("user", "a"), block("assistant")), ["messages[1].content"]),
        (conversation(block("user", "a"), block("assistant", " ")), ["messages[1].content[0].text"]),
        (
            conversation({"role": "user", "content": [{"image": {}}]}, block("assistant", "b")),
            ["messages[0].content[0]"],
        ),
        (conversation(block("user", "a"), block("assistant", "b")) | {"schemaVersion": "x"}, ["schemaVersion"]),
    ],
)
def test_fields_of_examples(line: dict[str, Any], found: list[str]) -> None:
    """Each error names its field: roles, order, empty turns, missing and unknown fields."""
    assert fields(line) == [(1, field) for field in found]


def test_accepted_files() -> None:
    """A byte order mark, CRLF and a line break at the end are no errors."""
    data = codecs.BOM_UTF8 + GOOD + b"\r\n" + b'{"prompt": "\xc3\xb1", "completion": "b"}\r\n'
    found = check(data, NOVA, min_examples=2)
    assert (found.errors.count, found.lines, found.format) == (0, 2, PROMPT)
    assert b'{"text": "\xc3\xb1"}' in found.data.getvalue()


def test_array() -> None:
    """A JSON array instead of lines is one error."""
    assert [(line, field) for line, field, _ in errors(b" [" + GOOD + b",", GOOD + b"]", least=32)] == [(1, "")]


def test_number_of_examples() -> None:
    """Too few and too many examples are errors of the last line."""
    assert errors(GOOD, GOOD, least=3) == [(2, "", "is the last; there are 2 examples, at least 3 are needed")]
    assert errors(least=1)[0][0] == 1
    (error,) = errors(*[GOOD] * 20_001)
    assert error == (20_001, "", "is the last; there are 20001 examples, and the model takes 20000")


def test_duplicates_are_warnings() -> None:
    """An equal example is a warning with the line of the first, however it is written."""
    found = checked(GOOD, b'{"completion":"So.","prompt":"Why?"}', b'{"prompt": "x", "completion": "y"}', GOOD)
    assert [(one.line, one.message) for one in found.warnings.shown] == [
        (2, "is equal to line 1"),
        (4, "is equal to line 1"),
    ]
    assert found.errors.count == 0


def test_long_examples() -> None:
    """What cannot fit is an error; what may not fit is a warning, because only the model counts tokens."""
    long, perhaps = ({"prompt": "word " * n, "completion": "b"} for n in (7000, 3000))
    found = checked(long, perhaps, GOOD, family=TITAN)
    assert [(error.line, error.message) for error in found.errors.shown] == [
        (1, "has 35001 characters, too many for 4096 tokens; shorten or split it")
    ]
    assert [warning.line for warning in found.warnings.shown] == [2]


def test_all_errors_are_counted() -> None:
    """The first 100 errors are listed, and all are counted."""
    found = checked(*[b"{}"] * 250)
    assert (len(found.errors.shown), found.errors.count) == (MAX_SHOWN, 250)
    assert found.errors.shown[-1].line == MAX_SHOWN


def test_no_place_for_several_questions() -> None:
    """A model of prompts and completions takes one question a line."""
    assert fields({"messages": [TURN, ANSWER, TURN, ANSWER]}, family=TITAN) == [(1, "messages")]


def test_system_of_a_prompt() -> None:
    """A model of prompts and completions has the system's text at the beginning of the prompt."""
    found = checked({"system": "Be brief.", "messages": [TURN, ANSWER]}, family=TITAN)
    assert json.loads(found.data.getvalue()) == {"prompt": "Be brief.\n\nWhy?", "completion": "So."}


def test_system_as_first_message() -> None:
    """A first message of the system, as OpenAI has it, is the system's text."""
    found = checked({"messages": [{"role": "system", "content": "Be brief."}, TURN, ANSWER]}, family=HAIKU)
    assert json.loads(found.data.getvalue()) == {"system": "Be brief.", "messages": [TURN, ANSWER]}


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)
EXAMPLES = st.builds(
    lambda system, pairs: Example(system, tuple(text for pair in pairs for text in pair)),
    st.just("") | TEXTS,
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
)


@given(example=EXAMPLES, form=st.sampled_from([MESSAGES, CONVERSATION]))
def test_formats_hold_every_conversation(example: Example, form: Format) -> None:
    """What is written in a format of conversations is read again without an error."""
    line, noted = json.loads(json.dumps(write(example, form))), list[str]()
    assert format_of(line) == form
    assert read(line, form, lambda field, message: noted.append(f"{field} {message}")) == example, noted


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["messages", "role", "content", "text", "schemaVersion", "system", "prompt", "completion"]
                ),
                inner,
            )
        ),
    )
)
def test_no_value_is_too_strange(value: Any) -> None:
    """Any JSON is an example or has errors; nothing else happens."""
    found = checked(json.dumps(value).encode())
    assert bool(found.data.getvalue()) != bool(found.errors.count)
