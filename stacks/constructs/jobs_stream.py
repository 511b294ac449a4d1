"""The jobs table's stream as an event source. A stream has room for two readers: publisher and push."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jsii
from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources

from stacks.storage import DISCARDED, StorageStack


def jobs_stream(
    storage: StorageStack,
    *,
    filters: Sequence[Mapping[str, object]],
    retry_attempts: int,
    max_record_age: Duration,
) -> sources.DynamoEventSource:
    """Records that match one of `filters`, at most 100 at a time, from the oldest on."""
    return sources.DynamoEventSource(
        storage.jobs,
        starting_position=lambda_.StartingPosition.TRIM_HORIZON,
        batch_size=100,
        report_batch_item_failures=True,
        bisect_batch_on_error=True,
        retry_attempts=retry_attempts,
        max_record_age=max_record_age,
        on_failure=DiscardedRecords(storage),
        filters=[lambda_.FilterCriteria.filter(dict(one)) for one in filters],
    )


@jsii.implements(lambda_.IEventSourceDlq)
class DiscardedRecords:
    """The data bucket as on-failure destination. CDK's own S3 class grants read and delete on the whole bucket."""

    def __init__(self, storage: StorageStack) -> None:
        self._storage = storage

    def bind(
        self, _target: lambda_.IEventSourceMapping, target_handler: lambda_.IFunction
    ) -> lambda_.DlqDestinationConfig:
        self._storage.grant_objects(target_handler, write=(DISCARDED,))
        return lambda_.DlqDestinationConfig(destination=self._storage.data.bucket_arn)
