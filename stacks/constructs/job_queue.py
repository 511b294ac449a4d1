"""A queue with its dead-letter queue, alarm and worker. Its numbers are derived from the worker's timeout."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html: six times the function's timeout
# (plus the batch window), and at least five receives, so that throttled polls do not dead-letter a message.
VISIBILITY_FACTOR = 6
MAX_RECEIVES = 5
DLQ_RETENTION = Duration.days(14)
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html
MAX_DELAY_SECONDS = 900
RUNBOOK = "docs/runbook.md"


class JobQueue(Construct):
    """A queue, its dead-letter queue with an alarm, and the mapping to its worker."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        worker: lambda_.Function,
        max_concurrency: int,
        batch_size: int = 10,
        batch_window: Duration | None = None,
        drained: bool = True,
    ) -> None:
        """`drained`: a scheduled function empties the DLQ. If not, messages stay for an operator to redrive."""
        super().__init__(scope, construct_id)
        self.worker = worker
        self._visibility = _visibility(worker, batch_window)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            enforce_ssl=True,
            retention_period=DLQ_RETENTION,
            visibility_timeout=Duration.minutes(5),
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            enforce_ssl=True,
            visibility_timeout=self._visibility,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=MAX_RECEIVES),
        )
        worker.add_event_source(
            _mapping(self.queue, batch_size=batch_size, window=batch_window, max_concurrency=max_concurrency)
        )
        self.alarm = self._alarm(drained=drained)

    def _alarm(self, *, drained: bool) -> cloudwatch.Alarm:
        """A drained DLQ is empty again within a minute, so its alarm counts the messages that were received."""
        metric = (
            self.dead_letters.metric_number_of_messages_received(period=Duration.minutes(1))
            if drained
            else self.dead_letters.metric_approximate_number_of_messages_visible(period=Duration.minutes(1))
        )
        return cloudwatch.Alarm(
            self,
            "Alarm",
            metric=metric,
            threshold=1,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=describe(
                f"Queue {self.node.id}: a message went to the dead-letter queue",
                "Find out why in the worker's log" if drained else "Find out why, and redrive it",
                f"{self.node.id}DeadLetters",
            ),
        )

    @property
    def longest_retries(self) -> Duration:
        """How old a message may get: delayed as long as SQS allows, and received as often as it may be."""
        return Duration.seconds(MAX_DELAY_SECONDS + MAX_RECEIVES * self._visibility.to_seconds())


def describe(what: str, todo: str, entry: str) -> str:
    """What an alarm says: what is wrong, what to do, and where more is written about it."""
    return f"{what}. {todo}: {RUNBOOK}#{entry.lower()}"


def _visibility(worker: lambda_.Function, window: Duration | None = None) -> Duration:
    timeout = worker.timeout.to_seconds() if worker.timeout else 3
    return Duration.seconds(VISIBILITY_FACTOR * timeout + (window.to_seconds() if window else 0))


def _mapping(
    queue: sqs.Queue, *, batch_size: int, max_concurrency: int, window: Duration | None = None
) -> sources.SqsEventSource:
    return sources.SqsEventSource(
        queue,
        batch_size=batch_size,
        max_batching_window=window if window and window.to_seconds() else None,
        max_concurrency=max_concurrency,
        report_batch_item_failures=True,
    )
