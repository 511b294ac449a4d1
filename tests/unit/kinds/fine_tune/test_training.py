"""The training of a fine-tune (kinds.fine_tune.training, kinds.fine_tune.customization)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import JobClosed, ModelRejected, Postponed
from core.jobs import Job, JobStore, cancel
from kinds.fine_tune.customization import job_of, name_of, public, stop
from kinds.fine_tune.files import read_message
from kinds.fine_tune.kind import FINE_TUNE
from kinds.fine_tune.models import FineTune, TrainingFailed, TrainingStopped
from kinds.fine_tune.training import on_batch
from tests.unit.kinds.fine_tune.conftest import MODEL, Bedrock, submitted

MESSAGE = {"task_token": "t", "owner": "ana", "batch": 0}


@pytest.fixture
def job(store: JobStore, blobs: Blobs) -> Job:
    return submitted(store, blobs, suffix="support")


def look(job: Job) -> float | None:
    """Until the next look; None if the training is completed."""
    try:
        on_batch(job, MESSAGE, lambda: 60.0)
    except Postponed as waiting:
        return waiting.seconds
    return None


def test_start(job: Job, bedrock: Bedrock, blobs: Blobs) -> None:
    """The training has the names of the job, the role, and the places of its files. The message is kept."""
    assert look(job) == 60
    ulid = job.job_id.removeprefix("job_")
    (created,) = bedrock.created
    assert created == {
        "jobName": f"recado-{ulid}",
        "customModelName": f"support-{ulid}",
        "roleArn": "arn:aws:iam::123456789012:role/bedrock",
        "clientRequestToken": f"recado-{ulid}",
        "baseModelIdentifier": MODEL,
        "customizationType": "FINE_TUNING",
        "hyperParameters": {"epochCount": "2"},
        "trainingDataConfig": {"s3Uri": f"s3://data/work/{job.job_id}/fine_tune/dataset.jsonl"},
        "outputDataConfig": {"s3Uri": f"s3://data/results/ana/{job.job_id}/fine_tune/"},
    }
    assert read_message(blobs, job.job_id) == MESSAGE


def test_waits_double(job: Job, bedrock: Bedrock) -> None:
    """Looks are 1, 2, 4 and 8 minutes apart, and then 15."""
    bedrock.jobs.set({"seconds": 7200})
    waits = []
    while (wait := look(job)) is not None:
        waits.append(round(wait / 60))
        bedrock.now += wait
    assert waits[:7] == [1, 1, 2, 4, 8, 15, 15]
    assert len(waits) == 12
    assert len(bedrock.created) == 1


def test_completed(job: Job, bedrock: Bedrock, blobs: Blobs) -> None:
    """The result has the model, its final loss, and what makes it answer."""
    look(job)
    bedrock.now += 60
    assert look(job) is None
    result = FineTune.model_validate_json(blobs.get(f"work/{job.job_id}/fine_tune/result.json"))
    assert result.model_id.startswith(f"arn:aws:bedrock:eu-west-1:123456789012:custom-model/{MODEL}/")
    assert (result.metrics.training_loss, result.metrics.validation_loss, result.deployed) == (0.5, None, False)
    assert "CreateCustomModelDeployment" in result.next_step


def test_failed(job: Job, bedrock: Bedrock) -> None:
    """A failed training fails the job with the service's reason."""
    bedrock.jobs.set({"failure": "No access to arn:aws:s3:::data/work/x.", "seconds": 1})
    look(job)
    bedrock.now += 2
    with pytest.raises(TrainingFailed, match=r"^No access to \[resource\]\.$"):
        look(job)


def test_stopped_by_somebody(job: Job, bedrock: Bedrock) -> None:
    """A training that is being stopped is waited for; one that was stopped fails the job."""
    look(job)
    bedrock.stop_model_customization_job(jobIdentifier=name_of(job.job_id))
    assert look(job) == 60
    bedrock.now += 60
    with pytest.raises(TrainingStopped):
        look(job)


@pytest.mark.parametrize(
    ("code", "reason", "seconds"),
    [("ServiceQuotaExceededException", "provider_quota", 900), ("ThrottlingException", "provider_throttled", 60)],
)
def test_no_room(job: Job, bedrock: Bedrock, code: str, reason: str, seconds: int) -> None:
    """Where the service has no room, the job waits, and is started later."""
    bedrock.errors = [code]
    with pytest.raises(Postponed) as caught:
        on_batch(job, MESSAGE, lambda: 60.0)
    assert (caught.value.reason, caught.value.seconds) == (reason, seconds)
    assert look(job) == 60


@pytest.mark.parametrize("code", ["ValidationException", "ResourceNotFoundException"])
def test_refused(job: Job, bedrock: Bedrock, code: str) -> None:
    """What the service refuses fails the job with its message, without ARNs and addresses of files."""
    bedrock.errors = [code]
    with pytest.raises(ModelRejected, match=r"^The role \[resource\] cannot read \[resource\]\.$"):
        look(job)


def test_other_errors(job: Job, bedrock: Bedrock) -> None:
    """Other errors are left to the worker, which tries again."""
    bedrock.errors = ["AccessDeniedException"]
    with pytest.raises(ClientError):
        look(job)


def test_canceled_while_it_was_started(job: Job, bedrock: Bedrock, store: JobStore) -> None:
    """The worker learns of the cancellation at once, and its clean-up stops the training."""
    store.apply(job.job_id, cancel)
    with pytest.raises(JobClosed):
        look(job)
    FINE_TUNE.on_ended(store.get(job.job_id), dependencies.services)
    assert bedrock.jobs.get({"jobIdentifier": name_of(job.job_id)})["status"] == "Stopping"


def test_clean_up(job: Job, bedrock: Bedrock) -> None:
    """Clean-up stops only what runs: not where nothing was started, and nothing twice."""
    canceled = replace(job, status="canceled")
    stop(canceled, dependencies.services)
    look(job)
    stop(replace(job, status="completed"), dependencies.services)
    assert bedrock.jobs.get({"jobIdentifier": name_of(job.job_id)})["status"] == "InProgress"
    for _ in range(2):
        stop(canceled, dependencies.services)
    bedrock.now += 60
    stop(canceled, dependencies.services)
    assert bedrock.jobs.get({"jobIdentifier": name_of(job.job_id)})["status"] == "Stopped"


def test_clean_up_is_repeated(job: Job, bedrock: Bedrock) -> None:
    """An error of the service is raised, so that the clean-up is tried again."""
    look(job)
    bedrock.errors = ["ThrottlingException"]
    with pytest.raises(ClientError):
        stop(replace(job, status="failed"), dependencies.services)


def test_names(job: Job) -> None:
    """The name of a training gives the job's id, and has no underscore."""
    assert job_of(name_of(job.job_id)) == job.job_id
    assert "_" not in name_of(job.job_id)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Line 3 is too long.", "Line 3 is too long."),
        ("arn:aws-us-gov:iam::1:role/x, (s3://a/b).", "[resource], ([resource])."),
        (json.dumps({"uri": "s3://a/b.jsonl"}), '{"uri": "[resource]"}'),
    ],
)
def test_public_messages(message: str, shown: str) -> None:
    """ARNs and addresses of files are taken out of messages, and nothing else."""
    assert public(message) == shown
