"""SNS fan-out: a topic for all events, a topic for failures and alarms, and filtered subscriptions of queues."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from stacks.constructs.job_queue import JobQueue


class FanOut(Construct):
    """`doc-events` carries every event, `error-alerts` failed jobs and alarms, for operators."""

    def __init__(self, scope: Construct, construct_id: str, *, alert_email: str) -> None:
        super().__init__(scope, construct_id)
        self.events = sns.Topic(self, "DocEvents", display_name="doc-events", enforce_ssl=True)
        self.alerts = sns.Topic(self, "ErrorAlerts", display_name="error-alerts", enforce_ssl=True)
        self._let_alarms_publish()
        if alert_email:
            self.alerts.add_subscription(subscriptions.EmailSubscription(alert_email))

    def _let_alarms_publish(self) -> None:
        """Allow the account's alarms to publish: a topic with a policy of its own has no default policy.

        https://repost.aws/knowledge-center/cloudwatch-receive-sns-for-alarm-trigger
        """
        alarms = Stack.of(self).format_arn(
            service="cloudwatch", resource="alarm", resource_name="*", arn_format=ArnFormat.COLON_RESOURCE_NAME
        )
        self.alerts.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[self.alerts.topic_arn],
                conditions={"ArnLike": {"aws:SourceArn": alarms}},
            )
        )

    def subscribe(self, target: JobQueue, *, event_types: Sequence[str] | None = None) -> None:
        """Deliver events of these types (None: all) to the queue, raw, with its DLQ for failed deliveries."""
        if event_types is None:
            policy = None
        elif not event_types:
            return
        else:
            policy = {"event_type": sns.SubscriptionFilter.string_filter(allowlist=list(event_types))}
        self.events.add_subscription(
            subscriptions.SqsSubscription(
                target.queue,
                raw_message_delivery=True,
                filter_policy=policy,
                dead_letter_queue=target.dead_letters,
            )
        )
