"""Alarms: messages in dead-letter queues, and work that stops without any message failing.

All of them notify `error-alerts`. Other failures need no alarm: a function that fails on a queue's messages fills
its dead-letter queue, and a failed job is an event.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.constructs.job_queue import JobQueue

PERIOD = Duration.minutes(5)
MAX_STREAM_AGE = Duration.minutes(5)
FAILED_RUNS = 3  # of the five in a period
MAX_WEBHOOK_AGE = Duration.hours(1)  # the queue itself delays a retry by up to a quarter of that


class Alarms(Construct):
    """Each watches one metric: CloudWatch charges by metric, and the local engine has no metric math."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        topic: sns.ITopic,
        publisher: lambda_.Function,
        push: lambda_.Function,
        retry_scheduler: lambda_.Function,
        webhooks: JobQueue,
        dead_letters: Sequence[JobQueue],
    ) -> None:
        super().__init__(scope, construct_id)
        own = (
            self._stream_age("EventsLate", publisher, "Events are published to SNS more than 5 minutes late"),
            self._stream_age("ListenersLate", push, "Events are pushed to WebSockets more than 5 minutes late"),
            self._failed_runs(retry_scheduler),
            self._webhook_age(webhooks),
        )
        for alarm in (*own, *(queue.alarm for queue in dead_letters)):
            alarm.add_alarm_action(actions.SnsAction(topic))

    def _stream_age(self, construct_id: str, reader: lambda_.Function, description: str) -> cloudwatch.Alarm:
        """No job starts and no caller is told while events wait in the stream, which keeps them for 24 hours."""
        return self._alarm(
            construct_id,
            reader.metric("IteratorAge", statistic="Maximum", period=PERIOD),
            threshold=MAX_STREAM_AGE.to_milliseconds(),
            description=description,
        )

    def _failed_runs(self, retry_scheduler: lambda_.Function) -> cloudwatch.Alarm:
        """Retries after more than 15 minutes depend on it, and so does the alarm on the DLQ that it drains."""
        return self._alarm(
            "RetrySchedulerFails",
            retry_scheduler.metric_errors(statistic="Sum", period=PERIOD),
            threshold=FAILED_RUNS,
            description="The retry scheduler fails in most of its runs, so webhooks are not retried",
        )

    def _webhook_age(self, webhooks: JobQueue) -> cloudwatch.Alarm:
        """A sender that is throttled, disabled or too slow fails no message. Only the message's age shows it."""
        return self._alarm(
            "WebhooksLate",
            webhooks.queue.metric_approximate_age_of_oldest_message(statistic="Maximum", period=PERIOD),
            threshold=MAX_WEBHOOK_AGE.to_seconds(),
            description="A webhook has waited for the sender for more than an hour",
        )

    def _alarm(
        self, construct_id: str, metric: cloudwatch.IMetric, *, threshold: float, description: str
    ) -> cloudwatch.Alarm:
        """An alarm after two periods in a row, so that a deployment raises none. No data means no traffic."""
        return cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            threshold=threshold,
            evaluation_periods=2,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )
