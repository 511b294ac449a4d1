"""The functions that jobs of every kind share, with the queues that they read."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import Config
from stacks.constructs.fan_out import FanOut
from stacks.constructs.functions import Functions
from stacks.constructs.job_queue import JobQueue
from stacks.constructs.jobs_stream import jobs_stream
from stacks.constructs.language_models import allow_calls
from stacks.constructs.live_api import LiveApi
from stacks.storage import RESULTS, StorageStack

CHANGE_JOBS = ("GetItem", "PutItem", "UpdateItem", "DeleteItem")
"""To change and end jobs: the end of a job deletes the item of its place among the open ones."""
PUBLISH_WITHIN = Duration.hours(12)  # the stream itself keeps a record for 24 hours
NEW_EVENTS = {
    "eventName": lambda_.FilterRule.is_equal("INSERT"),
    "dynamodb": {"NewImage": {"entity": {"S": lambda_.FilterRule.is_equal("event")}}},
}


class Publisher(Construct):
    """The outbox's reader: it sends each new event of the jobs table to SNS, in order within a job."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        functions: Functions,
        storage: StorageStack,
        fan_out: FanOut,
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = functions.create(
            "Publisher",
            "jobs/publisher",
            timeout=Duration.minutes(1),
            environment={
                "EVENTS_TOPIC": fan_out.events.topic_arn,
                "ALERTS_TOPIC": fan_out.alerts.topic_arn,
                "JOBS_TABLE": storage.jobs.table_name,
                "DATA_BUCKET": storage.data.bucket_name,
            },
        )
        storage.grant_jobs(self.function, "BatchGetItem")  # drops events of deleted jobs
        fan_out.events.grant_publish(self.function)
        fan_out.alerts.grant_publish(self.function)
        storage.grant_objects(self.function, write=("parked/",))
        self.function.add_event_source(
            jobs_stream(
                storage,
                filters=[NEW_EVENTS],
                retry_attempts=1000,  # more than are made before a record is too old
                max_record_age=PUBLISH_WITHIN,
            )
        )


class Indexing(JobQueue):
    """Its worker, `start_job`, starts executions, cleans up after jobs of every kind, and deletes jobs."""

    def __init__(
        self, scope: Construct, construct_id: str, *, config: Config, functions: Functions, storage: StorageStack
    ) -> None:
        start_job = functions.create(
            "StartJob",
            "jobs/start_job",
            timeout=Duration.minutes(1),
            environment=_job_environment(storage)
            | {
                "DELIVERIES_TABLE": storage.deliveries.table_name,
                "MAX_RUNNING_JOBS": str(config.per_owner(config.max_running_jobs)),
            },
            # A job that must wait is sent to the queue again. The job's deadline limits how often.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )
        storage.grant_jobs(start_job, *CHANGE_JOBS, "Query", "ConditionCheckItem", "BatchWriteItem")
        storage.grant_deliveries(start_job, "BatchGetItem", "UpdateItem")  # of deleted jobs
        storage.grant_objects(start_job, delete=("inputs/", "work/", RESULTS, "parked/"))
        super().__init__(scope, construct_id, worker=start_job, max_concurrency=config.indexing_concurrency)
        start_job.add_environment("INDEXING_QUEUE_URL", self.queue.queue_url)
        self.queue.grant_send_messages(start_job)


class Embedding(JobQueue):
    """Its worker makes every call of a model, for all kinds: the queue's concurrency limits all such calls.

    It sends the text of answers to WebSockets as it is made.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        functions: Functions,
        storage: StorageStack,
        live: LiveApi,
    ) -> None:
        worker = functions.create(
            "Worker",
            "jobs/worker",
            timeout=Duration.minutes(5),
            memory_mb=1024,
            layers=("openai",) if config.calls_openai else (),
            environment=_job_environment(storage) | {"LIVE_URL": live.url},
            # It waits by sending a message to its own queue. A count in the message limits how often.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )
        storage.grant_jobs(worker, *CHANGE_JOBS, "Query", "BatchGetItem")
        storage.grant_objects(worker, read=("inputs/", "work/"), write=("work/", RESULTS), delete=("work/",))
        live.websocket_api.grant_manage_connections(worker)
        allow_calls(worker, config)
        super().__init__(
            scope, construct_id, worker=worker, batch_size=1, max_concurrency=config.embedding_concurrency
        )
        worker.add_environment("EMBEDDING_QUEUE_URL", self.queue.queue_url)
        self.queue.grant_send_messages(worker)


class JobFinisher(Construct):
    """`finish_job` completes and fails the jobs that state machines run."""

    def __init__(
        self, scope: Construct, construct_id: str, *, functions: Functions, storage: StorageStack
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = functions.create(
            "FinishJob", "jobs/finish_job", timeout=Duration.seconds(30), environment=_job_environment(storage)
        )
        storage.grant_jobs(self.function, *CHANGE_JOBS)
        storage.grant_objects(self.function, read=(RESULTS,), write=(RESULTS,))


class Reaper(Construct):
    """Ends jobs whose deadline has passed, and jobs whose message is in a dead-letter queue; continues deletions.

    No Catch of a state machine sees either. It is to be called once a minute.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        functions: Functions,
        storage: StorageStack,
        indexing: JobQueue,
        embedding: JobQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = functions.create(
            "Reaper",
            "jobs/reaper",
            timeout=Duration.seconds(50),
            retries=0,
            environment={
                **_job_environment(storage),
                "INDEXING_QUEUE_URL": indexing.queue.queue_url,
                "INDEXING_DLQ_URL": indexing.dead_letters.queue_url,
                "EMBEDDING_DLQ_URL": embedding.dead_letters.queue_url,
            },
        )
        indexing.queue.grant_send_messages(self.function)
        indexing.dead_letters.grant_consume_messages(self.function)
        embedding.dead_letters.grant_consume_messages(self.function)
        storage.grant_objects(self.function)  # counts parked events
        storage.grant_jobs(self.function, *CHANGE_JOBS, index=True)


def _job_environment(storage: StorageStack) -> dict[str, str]:
    return {"JOBS_TABLE": storage.jobs.table_name, "DATA_BUCKET": storage.data.bucket_name}
