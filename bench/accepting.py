"""How long the API takes to accept a job: the function itself, and the AWS calls it makes, apart.

    .venv/bin/python bench/accepting.py [--quick]

In process, so there is no network and no gateway in it. The calls go to moto, whose share says nothing about AWS
and is shown only to be taken off.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lambdas")]
os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "eu-west-1"}

import boto3  # noqa: E402
from botocore.client import BaseClient  # noqa: E402
from moto import mock_aws  # noqa: E402

from tests.unit.conftest import ENVIRONMENT, create_table  # noqa: E402

RUNS, WARM_UP = (3, 1) if "--quick" in sys.argv else (200, 20)
calls: list[tuple[str, float]] = []


def time_calls() -> None:
    """Put a stop watch around every AWS call."""
    make = BaseClient._make_api_call

    def timed(self: BaseClient, operation: str, parameters: Any) -> Any:
        begin = time.process_time()
        try:
            return make(self, operation, parameters)
        finally:
            calls.append((operation, time.process_time() - begin))

    BaseClient._make_api_call = timed


def prepare() -> None:
    dynamodb = boto3.resource("dynamodb").meta.client
    create_table(dynamodb, "jobs", indexes=("gsi1", "gsi2"))
    create_table(dynamodb, "keys", sort_key=False)
    boto3.client("s3").create_bucket(Bucket="data", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    os.environ |= ENVIRONMENT | {
        "SECRETS_KEY": boto3.client("kms").create_key()["KeyMetadata"]["Arn"],
        "MAX_INLINE_BYTES": "262144",
    }


def request(number: int) -> dict[str, Any]:
    body = {"kind": "document", "input": {"text": "Words. " * 500}, "webhook_url": "https://example.com/hooks"}
    return {
        "path": "/jobs",
        "httpMethod": "POST",
        "headers": {"host": "example.com", "idempotency-key": f"bench-{number}"},
        "multiValueHeaders": {},
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": {"proxy": "jobs"},
        "requestContext": {
            "path": "/v1/jobs",
            "stage": "v1",
            "authorizer": {"owner": "bench", "scopes": "jobs:write"},
        },
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }


def main() -> None:
    with mock_aws():
        time_calls()
        prepare()
        from rest.api.handler import handler

        own, all_of_it = [], []
        for number in range(RUNS + WARM_UP):
            calls.clear()
            begin = time.process_time()
            answer = handler(request(number), None)
            total = time.process_time() - begin
            assert answer["statusCode"] == 202, answer
            all_of_it.append(1000 * total)
            own.append(1000 * (total - sum(seconds for _, seconds in calls)))
        made = ", ".join(operation for operation, _ in calls)
    own, all_of_it = own[WARM_UP:], all_of_it[WARM_UP:]
    print(f"POST /jobs, {RUNS} times; AWS calls of each: {made}\n")
    print("CPU ms            median     p95")
    for name, values in (("function itself", own), ("with moto", all_of_it)):
        print(f"{name:<16} {statistics.median(values):7.2f} {statistics.quantiles(values, n=20)[-1]:7.2f}")
    print(f"\nthe function's share: {statistics.median(own) / statistics.median(all_of_it):.0%}")


if __name__ == "__main__":
    main()
