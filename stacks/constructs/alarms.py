"""What wakes an operator: messages that failed too often, and what stands still without any message failing.

Each tells `error-alerts`. What has no alarm here has another way to be noticed: a function that fails on a queue's
messages fills its dead-letter queue, and a failed job is an event of its own.
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
STREAM_LATE = Duration.minutes(5)
FAILED_RUNS = 3  # of the five in a period
WEBHOOKS_LATE = Duration.hours(1)  # the queue itself delays a retry by up to a quarter of that


class Alarms(Construct):
    """Each watches one metric: that is what CloudWatch charges for, and the local engine knows no metric math."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        topic: sns.ITopic,
        publisher: lambda_.Function,
        push: lambda_.Function,
        waker: lambda_.Function,
        webhooks: JobQueue,
        dead_letters: Sequence[JobQueue],
    ) -> None:
        super().__init__(scope, construct_id)
        own = (
            self._behind("EventsLate", publisher, "events of the jobs table do not get to SNS"),
            self._behind("ListenersLate", push, "WebSockets are not told what happens"),
            self._waker(waker),
            self._lateness(webhooks),
        )
        for alarm in (*own, *(queue.alarm for queue in dead_letters)):
            alarm.add_alarm_action(actions.SnsAction(topic))

    def _behind(self, construct_id: str, reader: lambda_.Function, consequence: str) -> cloudwatch.Alarm:
        """Nothing starts and nobody is told while events wait in the stream, which forgets them after 24 hours."""
        return self._alarm(
            construct_id,
            reader.metric("IteratorAge", statistic="Maximum", period=PERIOD),
            threshold=STREAM_LATE.to_milliseconds(),
            description=f"A reader of the stream is behind: {consequence}",
        )

    def _waker(self, waker: lambda_.Function) -> cloudwatch.Alarm:
        """Retries after over 15 minutes depend on it, and so does the alarm on the dead letters it receives."""
        return self._alarm(
            "WakerFails",
            waker.metric_errors(statistic="Sum", period=PERIOD),
            threshold=FAILED_RUNS,
            description="The webhook waker fails in most of its runs: webhooks are not retried",
        )

    def _lateness(self, webhooks: JobQueue) -> cloudwatch.Alarm:
        """A sender that is throttled, disabled or too slow fails no message: all that shows is its age."""
        return self._alarm(
            "WebhooksLate",
            webhooks.queue.metric_approximate_age_of_oldest_message(statistic="Maximum", period=PERIOD),
            threshold=WEBHOOKS_LATE.to_seconds(),
            description="A webhook has been waiting for the sender for an hour",
        )

    def _alarm(
        self, construct_id: str, metric: cloudwatch.IMetric, *, threshold: float, description: str
    ) -> cloudwatch.Alarm:
        """Twice in a row: a deployment or a hiccup is over by then. Where nothing happens there is no data."""
        return cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            threshold=threshold,
            evaluation_periods=2,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )
