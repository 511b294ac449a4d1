"""What `make chat` does before the conversation."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from local import chat
from recado.errors import RecadoError

NAMES = list(chat.documents())


class Client:
    """Indexes what is submitted, except `failing`."""

    def __init__(self, indexed: Sequence[str] = (), failing: str = "") -> None:
        self.found = dict.fromkeys(indexed, chat.SOURCE)
        self.submitted: list[str] = []
        self._failing = failing

    def documents(self) -> list[Any]:
        return [SimpleNamespace(document_id=name, metadata=data) for name, data in self.found.items()]

    def submit(self, *, text: str, document_id: str, metadata: dict[str, str]) -> Any:
        assert text
        self.submitted.append(document_id)
        if document_id != self._failing:
            self.found[document_id] = metadata
        return SimpleNamespace(job_id=document_id)

    def jobs(self, *, status: str, **_: Any) -> list[Any]:
        assert status == "failed"
        return [SimpleNamespace(job_id=name) for name in (self._failing, "another")]

    def wait(self, job_id: str) -> None:
        raise RecadoError(f"{job_id} failed")


def index(client: Client) -> str:
    """What is printed."""
    console = Console(file=io.StringIO(), force_terminal=False, width=100)
    chat._index(client, console)  # type: ignore[arg-type]
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_what_is_missing_is_indexed_once() -> None:
    """A document is submitted if it is not indexed. The second time nothing is, and nothing is printed."""
    client = Client(indexed=NAMES[:70])
    client.found[NAMES[70]] = {"source": "elsewhere"}
    assert f"{len(NAMES) - 70}/{len(NAMES) - 70}" in index(client)
    assert sorted(client.submitted) == NAMES[70:]
    client.submitted.clear()
    assert index(client) == ""
    assert client.submitted == []


def test_a_document_that_is_not_indexed_is_an_error() -> None:
    """It is not waited for without an end."""
    with pytest.raises(RecadoError, match=f"{NAMES[3]} failed"):
        index(Client(failing=NAMES[3]))
