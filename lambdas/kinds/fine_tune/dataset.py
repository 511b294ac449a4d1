"""Checks a dataset in JSON Lines, line by line, and writes it in the format of the base model."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from core.llm.tokens import TOKENS_PER_MESSAGE, estimate_text
from kinds.fine_tune.families import Family
from kinds.fine_tune.formats import UNKNOWN_FORMAT, Example, Format, format_of, read, write

MAX_SHOWN = 100
"""Of all errors, and of all warnings. All are counted."""
MOST_CHARACTERS_PER_TOKEN = 8
"""In texts of any language. How many tokens a text has, only the model's tokenizer knows."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`line`: from 1. `field`: empty if the whole line is meant."""

    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return (
            f"line {self.line}, {self.field} {self.message}" if self.field else f"line {self.line} {self.message}"
        )


@dataclass(slots=True)
class Problems:
    """The first MAX_SHOWN, and the count of all."""

    shown: list[Problem] = field(default_factory=list)
    count: int = 0

    def add(self, line: int, place: str, message: str) -> None:
        self.count += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append(Problem(line, place, message))

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(problem) for problem in self.shown]


@dataclass(slots=True)
class Dataset:
    """What was found. `lines`: that are not blank. `tokens`: of one epoch, at most. `format`: of the file.

    `data`: the examples in the format of the base model.
    """

    errors: Problems = field(default_factory=Problems)
    warnings: Problems = field(default_factory=Problems)
    format: Format | None = None
    lines: int = 0
    tokens: int = 0
    data: io.BytesIO = field(default_factory=io.BytesIO)


def check(data: bytes, family: Family, *, min_examples: int) -> Dataset:
    """All errors of the file. A byte order mark and CRLF are accepted. Equal examples are warnings."""
    found = Dataset()
    data = data.removeprefix(codecs.BOM_UTF8)
    if data.lstrip()[:1] == b"[":
        found.errors.add(1, "", "begins a JSON array; write one object a line, without brackets and commas")
        return found
    first_lines: dict[bytes, int] = {}
    number = 0
    for number, line in enumerate(io.BytesIO(data), 1):
        example = _example(found, family, number, line.removesuffix(b"\n").removesuffix(b"\r"))
        if example is not None:
            _note_duplicate(found, first_lines, number, example)
    _check_count(found, family, min_examples, last_line=max(1, number))
    return found


def _example(found: Dataset, family: Family, number: int, line: bytes) -> Example | None:
    """The example of a line, which is written to the dataset; None after its errors were noted."""

    def note(place: str, message: str) -> None:
        found.errors.add(number, place, message)

    try:
        value = _object(line)
    except ValueError as error:
        note("", str(error))
        found.lines += bool(line.strip())
        return None
    found.lines += 1
    form = format_of(value)
    if form is None:
        note("", UNKNOWN_FORMAT)
        return None
    found.format = found.format or form
    if form != found.format:
        note("", f"has the format {form}, and the lines before {found.format}; use one")
    example = read(value, form, note)
    if example is None:
        return None
    _write(found, family, number, example)
    return example


def _write(found: Dataset, family: Family, number: int, example: Example) -> None:
    texts = (example.system, *example.turns)
    tokens, characters = sum(estimate_text(text) + TOKENS_PER_MESSAGE for text in texts), sum(map(len, texts))
    if characters > MOST_CHARACTERS_PER_TOKEN * family.max_tokens:
        message = f"has {characters} characters, too many for {family.max_tokens} tokens; shorten or split it"
        found.errors.add(number, "", message)
    elif tokens > family.max_tokens:
        found.warnings.add(number, "", f"may have more than the {family.max_tokens} tokens that the model takes")
    try:
        line = write(example, family.format)
    except ValueError as error:
        found.errors.add(number, "messages", str(error))
        return
    found.tokens += tokens
    found.data.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def _note_duplicate(found: Dataset, first_lines: dict[bytes, int], number: int, example: Example) -> None:
    key = hashlib.sha256(json.dumps([example.system, *example.turns]).encode()).digest()
    first = first_lines.setdefault(key, number)
    if first != number:
        found.warnings.add(number, "", f"is equal to line {first}")


def _check_count(found: Dataset, family: Family, least: int, *, last_line: int) -> None:
    if found.lines < least:
        found.errors.add(
            last_line, "", f"is the last; there are {found.lines} examples, at least {least} are needed"
        )
    if found.lines > family.max_examples:
        message = f"is the last; there are {found.lines} examples, and the model takes {family.max_examples}"
        found.errors.add(last_line, "", message)


def _object(line: bytes) -> Mapping[str, Any]:
    """Raises ValueError, with what is wrong with the line."""
    if not line.strip():
        raise ValueError("is blank; delete it")
    try:
        value = json.loads(line.decode(), parse_constant=_refuse, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON at character {error.pos + 1}: {error.msg}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"is not JSON: it has {name}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("has a field twice")
    return found


def described(problems: Problems, shown: int) -> Iterator[str]:
    """The first problems as sentences."""
    return (f"L{str(problem)[1:]}." for problem in problems.shown[:shown])
