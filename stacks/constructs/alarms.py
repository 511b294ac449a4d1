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

from stacks.constructs.job_queue import JobQueue, describe

PERIOD = Duration.minutes(5)
MAX_STREAM_AGE = Duration.minutes(5)
FAILED_RUNS = 3  # of the five in a period
MAX_WEBHOOK_AGE = Duration.hours(1)  # the queue itself delays a retry by up to a quarter of that
# as lambdas/core/jobs/parked.py logs it
PARKED_NAMESPACE, PARKED_METRIC, PARKED_DIMENSION = "Recado", "ParkedEvents", "FunctionName"
PARKED_PERIOD = Duration.hours(1)  # the reaper counts once an hour


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
        reaper: lambda_.Function,
        retry_scheduler: lambda_.Function,
        webhooks: JobQueue,
        queues: Sequence[JobQueue],
    ) -> None:
        """`queues`: all but `webhooks`."""
        super().__init__(scope, construct_id)
        own = (
            self._stream_age("EventsLate", publisher, "Events are published to SNS more than 5 minutes late"),
            self._stream_age("ListenersLate", push, "Events are pushed to WebSockets more than 5 minutes late"),
            self._failed_runs("RetrySchedulerFails", retry_scheduler, "so webhooks are not retried"),
            self._failed_runs("ReaperFails", reaper, "so lost jobs do not end"),
            self._message_age("WebhooksLate", webhooks, MAX_WEBHOOK_AGE),
            *(self._message_age(f"{queue.node.id}Late", queue, queue.longest_retries) for queue in queues),
            self._parked(reaper),
        )
        for alarm in (*own, webhooks.alarm, *(queue.alarm for queue in queues)):
            alarm.add_alarm_action(actions.SnsAction(topic))

    def _stream_age(self, construct_id: str, reader: lambda_.Function, what: str) -> cloudwatch.Alarm:
        """No job starts and no caller is told while events wait in the stream, which keeps them for 24 hours."""
        return self._alarm(
            construct_id,
            reader.metric("IteratorAge", statistic="Maximum", period=PERIOD),
            threshold=MAX_STREAM_AGE.to_milliseconds(),
            what=what,
            todo="Look into the function's log",
        )

    def _failed_runs(self, construct_id: str, function: lambda_.Function, so: str) -> cloudwatch.Alarm:
        """What runs on a schedule and drains dead-letter queues: the alarms on these depend on it, too."""
        return self._alarm(
            construct_id,
            function.metric_errors(statistic="Sum", period=PERIOD),
            threshold=FAILED_RUNS,
            what=f"The function fails in most of its runs, {so}",
            todo="Look into its log",
        )

    def _message_age(self, construct_id: str, queue: JobQueue, longest: Duration) -> cloudwatch.Alarm:
        """A worker that is throttled, disabled or too slow fails no message. Only the message's age shows it."""
        return self._alarm(
            construct_id,
            queue.queue.metric_approximate_age_of_oldest_message(statistic="Maximum", period=PERIOD),
            threshold=longest.to_seconds(),
            what=f"Queue {queue.node.id}: a message is older than {longest.to_minutes()} minutes",
            todo="Look whether the worker is throttled; raise the queue's concurrency",
        )

    def _parked(self, reaper: lambda_.Function) -> cloudwatch.Alarm:
        """The metric exists in hours in which events are parked."""
        metric = cloudwatch.Metric(
            namespace=PARKED_NAMESPACE,
            metric_name=PARKED_METRIC,
            dimensions_map={PARKED_DIMENSION: reaper.function_name},
            statistic="Maximum",
            period=PARKED_PERIOD,
        )
        return self._alarm(
            "EventsParked",
            metric,
            threshold=1,
            periods=1,
            what="Events could not be published, so nobody was told",
            todo="Run `python -m ops republish --parked`",
        )

    def _alarm(
        self,
        construct_id: str,
        metric: cloudwatch.IMetric,
        *,
        threshold: float,
        what: str,
        todo: str,
        periods: int = 2,
    ) -> cloudwatch.Alarm:
        """An alarm after two periods in a row, so that a deployment raises none. No data means no traffic."""
        return cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=describe(what, todo, construct_id),
        )
