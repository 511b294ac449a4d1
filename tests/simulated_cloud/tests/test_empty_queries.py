"""Queries of empty partitions are answered without moto, and like moto's."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError
from moto.dynamodb.models.table import Table

from tests.simulated_cloud.tests.sample import Sample, put

BY_KEY = "pk = :pk AND begins_with(sk, :sk)"


def query(sample: Sample, pk: str, condition: str = BY_KEY, **more: Any) -> list[Any]:
    """What the client of the resource finds."""
    table = sample.table("Table")
    values = {":pk": pk, ":sk": "1"}
    answer = table.meta.client.query(
        TableName=table.name, KeyConditionExpression=condition, ExpressionAttributeValues=values, **more
    )
    assert answer["Count"] == len(answer["Items"])
    return [item["pk"] for item in answer["Items"]]


def test_moto_is_asked_once(sample: Sample) -> None:
    """moto answers the first query of a form, and queries of partitions with items."""
    put(sample, "full")
    query(sample, "none")
    with mock.patch.object(Table, "query", autospec=True, side_effect=Table.query) as asked:
        assert query(sample, "none") == []
        assert not asked.called
        assert query(sample, "full") == ["full"]
        assert asked.called


def test_a_partition_is_filled_and_emptied(sample: Sample) -> None:
    """A query sees what was written before it."""
    assert query(sample, "a") == query(sample, "a") == []
    put(sample, "a")
    assert query(sample, "a") == ["a"]
    sample.table("Table").delete_item(Key={"pk": "a", "sk": "1"})
    assert query(sample, "a") == []


@pytest.mark.parametrize(
    ("condition", "more"),
    [
        ("pk = :pk AND other = :sk", {}),
        (BY_KEY, {"IndexName": "none"}),
    ],
    ids=["no key", "no index"],
)
def test_a_wrong_query_is_always_refused(sample: Sample, condition: str, more: dict[str, Any]) -> None:
    """A form that moto refuses never counts as accepted."""
    query(sample, "none")
    for _ in range(2):
        with pytest.raises(ClientError):
            query(sample, "none", condition, **more)


def test_calls_are_recorded_and_fail(sample: Sample) -> None:
    """Rules and the log apply to these calls as to all others."""
    query(sample, "none")
    failed = sample.cloud.fail("dynamodb", "Query", "ThrottlingException")
    before = len(sample.calls.log)
    with pytest.raises(ClientError, match="ThrottlingException"):
        query(sample, "none")
    assert (failed.hits, len(sample.calls.log) - before) == (1, 1)
