"""Documents in the jobs table (kinds.document.index.catalog)."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import ids
from kinds.document.index.catalog import Catalog, Document
from tests.unit.core.jobs.memory_table import ConditionalCheckFailed, MemoryTable
from tests.unit.examples import NOW, document


@pytest.fixture
def catalog(dynamodb: Any, jobs_table: str) -> Catalog:
    return Catalog(dynamodb, jobs_table)


def publish(catalog: Catalog, subject: Document, owner: str = "ana") -> bool:
    """Writes the item; whether the condition was met."""
    client = catalog._client
    try:
        client.put_item(**catalog.publish(owner, subject)["Put"])
    except client.exceptions.ConditionalCheckFailedException:
        return False
    return True


def test_round_trip(catalog: Catalog) -> None:
    """A document is read as it was published, with any characters in its name."""
    subject = document(document_id="año/2026 #1?👩‍🚀", metadata={"k": "", "ñ": "v"})
    assert publish(catalog, subject)
    assert catalog.get("ana", subject.document_id) == subject
    assert list(catalog.list("ana")) == [subject]


def test_owners(catalog: Catalog) -> None:
    """Two owners can have documents with the same name."""
    mine, other = document(chunks=1), document(chunks=2)
    publish(catalog, mine, "ana")
    publish(catalog, other, "ben")
    assert catalog.get("ana", "notes") == mine
    assert list(catalog.list("ben")) == [other]
    assert catalog.get("an", "notes") is None


def test_list(catalog: Catalog, dynamodb: Any, jobs_table: str) -> None:
    """Only documents are listed, not an owner's other items."""
    dynamodb.put_item(TableName=jobs_table, Item={"pk": "OWNER#ana", "sk": "ENDPOINT#default"})
    publish(catalog, document())
    assert [d.document_id for d in catalog.list("ana")] == ["notes"]


@pytest.mark.parametrize("order", list(itertools.permutations(["1", "2", "3"])))
def test_newest_version(catalog: Catalog, order: tuple[str, ...]) -> None:
    """The newest version stays, in whatever order versions are published."""
    highest = ""
    for version in order:
        assert publish(catalog, document(version=version)) == (version > highest)
        highest = max(highest, version)
    found = catalog.get("ana", "notes")
    assert found is not None
    assert found.version == "3"


def test_repeated_publish(catalog: Catalog) -> None:
    """The live version is not published again."""
    assert publish(catalog, document(version="1"))
    assert not publish(catalog, document(version="1"))


def test_delete(catalog: Catalog, dynamodb: Any, jobs_table: str) -> None:
    """A deleted document is not found, also after earlier jobs. A later job publishes it again."""
    early = document(version=ids.ulid_of(ids.new("job")))
    publish(catalog, document(version="0"))
    version = catalog.delete("ana", "notes", seconds=60)
    assert catalog.get("ana", "notes") is None
    assert list(catalog.list("ana")) == []
    assert not publish(catalog, early)
    late = document(version=version[:-1] + "Z" if version[-1] != "Z" else version + "Z")
    assert publish(catalog, late)
    assert catalog.get("ana", "notes") == late


def test_existed(catalog: Catalog) -> None:
    """A document existed during its life and after its deletion, for its owner."""
    assert not catalog.existed("ana", "notes")
    publish(catalog, document(version="0"))
    assert catalog.existed("ana", "notes")
    catalog.delete("ana", "notes", seconds=60)
    assert catalog.existed("ana", "notes")
    assert not catalog.existed("ben", "notes")


def test_is_outdated(catalog: Catalog) -> None:
    """A version is outdated if a newer one is live or the document was deleted after its submission."""
    assert not catalog.is_outdated("ana", "notes", "1")
    publish(catalog, document(version="2"))
    assert [catalog.is_outdated("ana", "notes", version) for version in "123"] == [True, False, False]
    catalog.delete("ana", "other", seconds=60)
    assert catalog.is_outdated("ana", "other", "0")
    assert not catalog.is_outdated("ana", "other", "Z")


def test_expiry_of_deletion(
    catalog: Catalog, dynamodb: Any, jobs_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item of a deleted document expires with earlier jobs. A live document never expires."""
    monkeypatch.setattr("time.time", lambda: NOW)
    catalog.delete("ana", "notes", seconds=60)
    publish(catalog, document(document_id="other"))
    items = {item["document_id"]: item for item in dynamodb.scan(TableName=jobs_table)["Items"]}
    assert items["notes"]["expires_at"] == NOW + 60
    assert "expires_at" not in items["other"]


def test_publish_after_deletion(catalog: Catalog, dynamodb: Any, jobs_table: str) -> None:
    """A document that is published after its deletion has no expiry."""
    catalog.delete("ana", "notes", seconds=60)
    publish(catalog, document(version="Z" * 26))
    (item,) = dynamodb.scan(TableName=jobs_table)["Items"]
    assert not {"expires_at", "deleted"} & set(item)


actions = st.lists(
    st.tuples(st.sampled_from(["publish", "retract"]), st.integers(0, 9)),
    min_size=1,
    max_size=10,
    unique_by=lambda a: a[1],
)


@given(actions, st.randoms(use_true_random=False))
def test_order_of_writes(script: list[tuple[str, int]], chance: Any) -> None:
    """Submissions and deletions are ordered by when they were made, whatever the order of their writes."""
    table = MemoryTable()
    catalog = Catalog(table, "jobs")
    arriving = list(script)
    chance.shuffle(arriving)
    for kind, moment in arriving:
        if kind == "publish":
            publish(catalog, document(version=f"{moment:026d}"))
        else:
            retract_at(catalog, f"{moment:026d}")
    last_kind, last = max(script, key=lambda action: action[1])
    found = catalog.get("ana", "notes")
    assert (found.version if found else None) == (f"{last:026d}" if last_kind == "publish" else None)


def retract_at(catalog: Catalog, version: str) -> None:
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(ConditionalCheckFailed):
        patch.setattr(ids, "ulid_of", lambda identifier: version)
        catalog.delete("ana", "notes", seconds=60)


def test_reads_are_strongly_consistent() -> None:
    """A deleted document is not found right after its deletion."""
    consistent = []

    class Client(MemoryTable):
        def get_item(self, **request: Any) -> dict[str, Any]:
            consistent.append(request["ConsistentRead"])
            return super().get_item(**request)

        def paginate(self, **request: Any) -> Any:
            consistent.append(request["ConsistentRead"])
            return super().paginate(**request)

    catalog = Catalog(Client(), "jobs")
    assert catalog.get("ana", "notes") is None
    assert list(catalog.list("ana")) == []
    assert consistent == [True, True]
