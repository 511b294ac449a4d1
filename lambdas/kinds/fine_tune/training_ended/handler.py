"""Has the worker look at a training as soon as Amazon Bedrock says that it has ended."""

from __future__ import annotations

import json
from typing import Any

from core.dependencies import dependencies
from core.errors import SourceNotFound
from core.log import logger
from kinds.fine_tune.customization import job_of
from kinds.fine_tune.files import read_message


def handler(event: dict[str, Any], context: Any) -> None:
    """`event`: https://docs.aws.amazon.com/bedrock/latest/userguide/monitoring-eventbridge-how-it-works.html"""
    job_id = job_of(event["detail"]["jobName"])
    try:
        message = read_message(dependencies.blobs, job_id)
    except SourceNotFound:
        logger.info("training of no open job", job_id=job_id)
        return
    dependencies.sqs.send_message(
        QueueUrl=dependencies.settings.embedding_queue_url,
        MessageBody=json.dumps(message),
        MessageGroupId=message["owner"],
    )
