"""The message of a fine-tune: it starts the training, and comes again until the training has ended.

An event of the service brings it at the end (`training_ended`). In case that event is lost, the message comes by
itself as well, after waits in the queue that cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from core.dependencies import dependencies
from core.errors import Postponed
from core.jobs import Job
from kinds.fine_tune import customization, files
from kinds.fine_tune.models import TrainingFailed, TrainingStopped

TRAINING = "training"
"""What the job waits for."""
FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS = 60, 900
NEXT_STEP = (
    "The model does not answer yet. Create a deployment of it (CreateCustomModelDeployment in Amazon Bedrock) "
    "and add the ARN of the deployment to `models` of this service."
)


def on_batch(job: Job, message: Mapping[str, Any], seconds_left: Callable[[], float]) -> None:
    """Write the result if the training is completed. Raises Postponed while it is not, and JobFailure."""
    found = customization.find(job.job_id)
    if found is None:
        files.write_message(dependencies.blobs, job.job_id, message)  # before the first event can come
        customization.create(job, dependencies.settings.data_bucket)
        dependencies.jobs.require_open(job.job_id)  # if it was canceled meanwhile, the worker cleans up
        raise Postponed(TRAINING, FIRST_WAIT_SECONDS)
    status = found["status"]
    if status == "Completed":
        files.write_result(dependencies.blobs, job.job_id, _result(job, found))
    elif status == "Failed":
        raise TrainingFailed(customization.public(found.get("failureMessage") or "The service gave no reason."))
    elif status == "Stopped":
        raise TrainingStopped("The training was stopped in Amazon Bedrock. Retry the job.")
    else:  # InProgress, Stopping
        raise Postponed(TRAINING, _wait(found))


def _wait(found: Mapping[str, Any]) -> float:
    """As long as the training has taken until now, so that waits double: 1, 2, 4, 8, and then 15 minutes."""
    age: float = time.time() - found["creationTime"].timestamp()
    return max(FIRST_WAIT_SECONDS, min(LAST_WAIT_SECONDS, age))


def _result(job: Job, found: Mapping[str, Any]) -> dict[str, Any]:
    validation = found.get("validationMetrics") or [{}]
    return {
        "model_id": found["outputModelArn"],
        "base_model": job.input["base_model"],
        "metrics": {
            "training_loss": found.get("trainingMetrics", {}).get("trainingLoss"),
            "validation_loss": validation[0].get("validationLoss"),
        },
        "deployed": False,
        "next_step": NEXT_STEP,
    }
