"""Alarms on what must never go unseen (undelivered events, executions that did not end well), and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from tallybatch.observability import JOB_AGE, NAMESPACE, RECORD_METRICS, RECORDS_OPEN
from tallybatch.settings import FailJob, ReconcileShard, SealJob, Settings

PERIOD = Duration.minutes(5)


def _metric(function: type[Settings], name: str, statistic: str = "Sum") -> cloudwatch.IMetric:
    """A metric that `tallybatch.observability.emit` writes."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map={"function": function.function, "service": "tallybatch"},
        statistic=statistic,
        period=PERIOD,
        label=f"{name} {statistic}" if name == JOB_AGE else name,
    )


class Observability(Construct):
    """Single alarms only, each true after one period of five minutes. Each tells `topic` when it goes off and when it
    ends: whoever wants to know subscribes there."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey,
        queues: Mapping[str, sqs.IQueue],
        state_machine: sfn.IStateMachine,
        alarm_email: str,
    ) -> None:
        """`queues`: dead-letter queues by what they belong to. `alarm_email` "" subscribes nobody."""
        super().__init__(scope, construct_id)
        self.topic = self._topic(key)
        if alarm_email:
            self.topic.add_subscription(subscriptions.EmailSubscription(alarm_email))
        for name, queue in queues.items():
            self._alarm(
                f"{name}DeadLetters",
                queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum"),
                f"{name}: an event was not handled. Read it in its dead-letter queue, mend the cause, send it again.",
            )
        failures = {
            "Failed": state_machine.metric_failed(period=PERIOD),
            "TimedOut": state_machine.metric_timed_out(period=PERIOD),
            "Aborted": state_machine.metric_aborted(period=PERIOD),
        }
        for name, metric in failures.items():
            self._alarm(
                f"Jobs{name}", metric, f"Executions {name}: `tallybatch jobs` lists them, their reports say why."
            )

        self._dashboard(queues, state_machine)

    def _topic(self, key: kms.IKey) -> sns.Topic:
        """A topic with a policy of its own has not SNS's default one, so CloudWatch must be let in by name (CloudWatch
        User Guide, "Notifying users on alarm changes"). The key's policy lets it encrypt."""
        stack = Stack.of(self)
        topic = sns.Topic(
            self, "Alarms", display_name=f"Tallybatch {stack.stack_name}", master_key=key, enforce_ssl=True
        )
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
            )
        )
        return topic

    def _dashboard(self, queues: Mapping[str, sqs.IQueue], state_machine: sfn.IStateMachine) -> None:
        """Jobs by how they ended and how long they took, records by what became of them, executions, dead letters."""
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.days(7))
        ends = [
            _metric(SealJob, "JobsCompleted"),
            _metric(SealJob, "JobsPartial"),
            _metric(SealJob, "JobsCancelled"),
            _metric(FailJob, "JobsFailed"),
        ]
        ages = [_metric(SealJob, JOB_AGE, statistic) for statistic in ("p50", "p95", "Maximum")]
        records = [_metric(ReconcileShard, name) for name in (*RECORD_METRICS.values(), RECORDS_OPEN)]
        executions = [
            state_machine.metric_started(),
            state_machine.metric_succeeded(),
            state_machine.metric_failed(),
            state_machine.metric_throttled(),
        ]
        letters = [queue.metric_approximate_number_of_messages_visible() for queue in queues.values()]
        for row in (
            (("Jobs by their end", ends), ("Seconds from manifest to end", ages)),
            (("Records by outcome, per attempt", records), ("Executions", executions)),
            (("Dead letters", letters),),
        ):
            dashboard.add_widgets(
                *(cloudwatch.GraphWidget(title=title, left=list(metrics), width=12) for title, metrics in row)
            )

    def _alarm(self, construct_id: str, metric: cloudwatch.IMetric, description: str) -> None:
        alarm = cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            alarm_description=f"Tallybatch: {description}",
            threshold=0,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        tell = actions.SnsAction(self.topic)
        alarm.add_alarm_action(tell)
        alarm.add_ok_action(tell)
