"""Where Lambda puts stream records that it gives up on."""

from __future__ import annotations

import jsii
from aws_cdk import aws_lambda as lambda_

from stacks.storage import DISCARDED, StorageStack


@jsii.implements(lambda_.IEventSourceDlq)
class DiscardedRecords:
    """The data bucket as on-failure destination. CDK's own would let the function read and delete all of it."""

    def __init__(self, storage: StorageStack) -> None:
        self._storage = storage

    def bind(
        self, _target: lambda_.IEventSourceMapping, target_handler: lambda_.IFunction
    ) -> lambda_.DlqDestinationConfig:
        self._storage.grant_objects(target_handler, write=(DISCARDED,))
        return lambda_.DlqDestinationConfig(destination=self._storage.data.bucket_arn)
