"""The model customization job of Amazon Bedrock that belongs to a fine-tune.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_CreateModelCustomizationJob.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.errors import ModelRejected, Postponed
from core.jobs import Job, Services
from core.jobs.machine import PROVIDER_THROTTLED
from kinds.fine_tune.dependencies import fine_tune_dependencies
from kinds.fine_tune.files import dataset_key, output_prefix

PREFIX = "recado-"
"""Of the names of customization jobs. The rule in stacks/kinds/fine_tune.py has it, too."""
FULL_SECONDS, THROTTLED_SECONDS = 900, 60
_INTERNAL = re.compile(r"(arn:aws[\w-]*:|s3://)[^\s,;'\")]*[^\s,;'\").]")


def name_of(job_id: str) -> str:
    """Names of customization jobs have no underscore."""
    return PREFIX + job_id.removeprefix("job_")


def job_of(name: str) -> str:
    """The job's id, of the name that `name_of` gives."""
    return f"job_{name.removeprefix(PREFIX)}"


def find(job_id: str) -> Mapping[str, Any] | None:
    """The response of GetModelCustomizationJob; None if it was never started."""
    bedrock = fine_tune_dependencies.bedrock
    try:
        found: Mapping[str, Any] = bedrock.get_model_customization_job(jobIdentifier=name_of(job_id))
    except ClientError as error:
        if aws_errors.code(error) == "ResourceNotFoundException":
            return None
        raise
    return found


def create(job: Job, bucket: str) -> None:
    """Start it; calling it again starts no other one.

    Raises ModelRejected with the service's message, and Postponed where the service has no room for it now.
    """
    stored, name = job.input, name_of(job.job_id)
    model_name = f"{stored['suffix']}-{name.removeprefix(PREFIX)}" if "suffix" in stored else name
    try:
        fine_tune_dependencies.bedrock.create_model_customization_job(
            jobName=name,
            customModelName=model_name,
            roleArn=fine_tune_dependencies.settings.fine_tune_role,
            clientRequestToken=name,
            baseModelIdentifier=stored["base_model"],
            customizationType="FINE_TUNING",
            hyperParameters=dict(stored["hyperparameters"]),
            trainingDataConfig={"s3Uri": f"s3://{bucket}/{dataset_key(job.job_id)}"},
            outputDataConfig={"s3Uri": f"s3://{bucket}/{output_prefix(job.owner, job.job_id)}"},
        )
    except ClientError as error:
        code = aws_errors.code(error)
        if code == "ServiceQuotaExceededException":
            raise Postponed("provider_quota", FULL_SECONDS) from error
        if code == "ThrottlingException":
            raise Postponed(PROVIDER_THROTTLED, THROTTLED_SECONDS) from error
        if code in ("ValidationException", "ResourceNotFoundException"):
            raise ModelRejected(public(error.response["Error"]["Message"])) from error
        raise


def stop(job: Job, services: Services) -> None:
    """Stop it if the job ended before it. Called again until it does not raise."""
    found = find(job.job_id) if job.status != "completed" else None
    if found and found["status"] == "InProgress":
        fine_tune_dependencies.bedrock.stop_model_customization_job(jobIdentifier=found["jobName"])


def public(message: str) -> str:
    """A message of the service without ARNs and addresses of files, which are internal."""
    return _INTERNAL.sub("[resource]", message)
