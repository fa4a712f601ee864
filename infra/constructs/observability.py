"""Alarms on what must never go unseen: undelivered events, and executions that did not end well."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

PERIOD = Duration.minutes(5)


class Observability(Construct):
    """Single alarms only, each true after one period of five minutes."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        queues: Mapping[str, sqs.IQueue],
        state_machine: sfn.IStateMachine,
    ) -> None:
        """`queues`: dead-letter queues by what they belong to."""
        super().__init__(scope, construct_id)
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

    def _alarm(self, construct_id: str, metric: cloudwatch.IMetric, description: str) -> None:
        cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            alarm_description=f"Tallybatch: {description}",
            threshold=0,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
