"""Stage 3: one batch of chunks becomes vectors; its task token tells the state machine.

The queue's concurrency is the one limit on the model, however many documents are in flight.
"""

from __future__ import annotations

import functools
import json
import random
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from core import aws, clients, embedding, settings
from core.batch import BatchResponse, Record, process, receives
from core.blobs import Blobs, batch_key, work_folder
from core.embedding import Patience, Vector
from core.errors import CountMismatch, JobFailure, NotFound, RecadoError, SourceNotFound
from core.jobs import Job, JobStore
from core.log import logger
from core.vectors import ObjectVectors, Version, pack, unpack

LAST_RECEIVE = 5  # the queue's maxReceiveCount: the next receive would be the dead-letter queue's
RESERVE_SECONDS = 30.0  # for writing down what is done before the function's time is up


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    data_bucket: str
    embedding: str
    embedding_model: str
    embedding_dimensions: int
    embedding_queue_url: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    blobs: Blobs
    vectors: ObjectVectors
    embedder: embedding.Embedder
    states: Any
    sqs: Any
    queue_url: str


@functools.cache
def dependencies() -> Dependencies:
    config = settings.load(Settings)
    blobs = Blobs(clients.s3(), config.data_bucket)
    index = embedding.index_name(config.embedding_model, config.embedding_dimensions)
    return Dependencies(
        JobStore(clients.dynamodb(), config.jobs_table),
        blobs,
        ObjectVectors(blobs, index=index, dimensions=config.embedding_dimensions),
        embedding.make(
            config.embedding,
            model=config.embedding_model,
            dimensions=config.embedding_dimensions,
            client=clients.client,
        ),
        clients.client("stepfunctions"),
        clients.client("sqs"),
        config.embedding_queue_url,
    )


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    def patience() -> float:
        return float(context.get_remaining_time_in_millis()) / 1000 - RESERVE_SECONDS

    return process(event, lambda record: handle(record, patience))


def handle(record: Record, patience: Patience) -> None:
    task = json.loads(record["body"])
    job = _find(task["job_id"])
    if job is None or job.status != "running" or job.lease != task["execution"]:
        logger.info("batch dropped, its job is over", job_id=task["job_id"], batch=task["batch"])
        if job:
            _remove_if_unwanted(job, task["batch"])
        return
    try:
        embed(job, task, patience)
    except JobFailure as error:
        fail_task(task, error)
    except Exception as error:
        if receives(record) >= LAST_RECEIVE:
            logger.exception("batch given up", job_id=job.job_id, batch=task["batch"])
            fail_task(task, error)
            return
        _come_back_later(record)
        raise
    else:
        succeed_task(task)


def _find(job_id: str) -> Job | None:
    try:
        return dependencies().jobs.get(job_id)
    except NotFound:
        return None


def embed(job: Job, task: dict[str, Any], patience: Patience) -> None:
    """Write the vectors of one batch, unless they are there."""
    batch, vectors = task["batch"], dependencies().vectors
    version = _version(job)
    if not vectors.has(version, batch):
        chunks = _chunks(job, batch)
        rows = _vectors(job, batch, [chunk["text"] for chunk in chunks], patience)
        if len(rows) != len(chunks):
            raise CountMismatch(f"{len(chunks)} chunks gave {len(rows)} vectors.")
        vectors.put(version, batch, rows, chunks)
    _remove_if_unwanted(dependencies().jobs.get(job.job_id), batch)
    dependencies().jobs.mark_batch(job, batch, total=task["batches"])


def _chunks(job: Job, batch: int) -> list[dict[str, Any]]:
    lines = dependencies().blobs.get(batch_key(job.job_id, batch)).decode().splitlines()
    return [json.loads(line) for line in lines]


def _vectors(job: Job, batch: int, texts: list[str], patience: Patience) -> list[Vector]:
    """What an earlier try has paid for, and the rest from the model; kept if the model lets us down again."""
    key = _partial_key(job, batch)
    rows = _paid_for(key)
    paid = len(rows)
    try:
        for row in dependencies().embedder.embed(texts[paid:], patience=patience):
            rows.append(row)  # one by one, so that an exception leaves what was paid for
    except BaseException:
        if len(rows) > paid:
            dependencies().blobs.put(key, pack(rows))
        raise
    return rows


def _paid_for(key: str) -> list[Vector]:
    try:
        return unpack(dependencies().blobs.get(key), dependencies().vectors.dimensions)
    except SourceNotFound:
        return []


def _remove_if_unwanted(job: Job, batch: int) -> None:
    """The job may have been canceled, and cleaned up after, while the model was thinking."""
    if job.status in ("canceled", "failed"):
        dependencies().vectors.delete(_version(job))
        dependencies().blobs.delete([_partial_key(job, batch)])


def _version(job: Job) -> Version:
    return Version(job.owner, job.document_id, job.document_version)


def _partial_key(job: Job, batch: int) -> str:
    return f"{work_folder(job.job_id)}partial/{batch:04d}.f32"


def _come_back_later(record: Record) -> None:
    """Sooner than the queue's visibility timeout, later each time."""
    wait = random.uniform(1, min(300, 15 * 2 ** receives(record)))  # noqa: S311 spreads load, guards nothing
    dependencies().sqs.change_message_visibility(
        QueueUrl=dependencies().queue_url, ReceiptHandle=record["receiptHandle"], VisibilityTimeout=int(wait)
    )


def succeed_task(task: dict[str, Any]) -> None:
    _answer("send_task_success", taskToken=task["task_token"], output="{}")


def fail_task(task: dict[str, Any], error: Exception) -> None:
    """Tell the state machine in the form in which Lambda tells it: class name, and a cause in JSON."""
    message = str(error) if isinstance(error, RecadoError) else "The embedding model could not be reached."
    cause = json.dumps({"errorMessage": message, "errorType": type(error).__name__})
    _answer("send_task_failure", taskToken=task["task_token"], error=type(error).__name__, cause=cause)


def _answer(call: str, **arguments: str) -> None:
    """A token that is used up, timed out or unknown needs no answer any more."""
    try:
        getattr(dependencies().states, call)(**arguments)
    except ClientError as error:
        if aws.code(error) not in aws.TOKEN_GONE:
            raise
