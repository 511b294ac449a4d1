"""Requests to the tables of unit tests are checked as DynamoDB checks them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated_cloud.dynamodb_validation import InvalidRequest


def test_every_request_is_checked(dynamodb: Any, jobs_table: str) -> None:
    """A request that DynamoDB would reject fails the test."""
    key = {"pk": "A", "sk": "B"}
    with pytest.raises(InvalidRequest, match="reserved"):
        dynamodb.update_item(TableName=jobs_table, Key=key, UpdateExpression="REMOVE owner")
