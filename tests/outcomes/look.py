"""What a case has reached: as certificate, report, `show`, `explain` and results say it, and as it was billed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tallybatch.domain.certificate import Certificate, from_bytes
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.review import PEOPLE
from tallybatch.domain.rows import Job, Submission
from tallybatch.steps import explain_record
from tests.outcomes.cases import (
    AT,
    BY_PEOPLE,
    NEVER,
    Case,
    Ending,
    Group,
    counted,
    failed_by_class,
    paid_answers,
    standing,
)
from tests.outcomes.stage import Stage
from tests.support.films import report, results

_STANDS = {"accepted": "accepted", "failed": "failed", "review": "in review"}
"""Words of `explain`; with any other the record is open."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    outcome: str
    provider: str
    expected: str
    reached: str
    wrong: tuple[str, ...] = ()
    """Every way in which this is not what was expected."""


class Look:
    """At one job of a case, after a run. What is not as expected is in the cells."""

    def __init__(self, stage: Stage, case: Case, job: Job, provider: str, groups: tuple[Group, ...]) -> None:
        self.stage, self.case, self.job, self.provider, self.groups = stage, case, job, provider, groups
        line = stage.line
        self.rows: list[Submission] = list(line.ledger.submissions(job.job_key))
        self.journal = line.simulator.journal()
        self.report = report(line.objects, job)
        self.shown = stage.command("show", job.job_key)
        self.expected: Counter[str] = sum((group.expected(provider) for group in groups), Counter())

    def cells(self, ending: Ending, named: Mapping[str, str] | None = None) -> Iterator[Cell]:
        """Of the groups (`named`: only these, under other names) and of the job as a whole."""
        reached: Counter[str] = Counter()
        for group in self.groups:
            told = Counter(self._record(key) for key in group.names())
            reached.update(told)
            expected = group.expected(self.provider)
            name = group.cell if named is None else named.get(group.tag, "")
            wrong: tuple[str, ...] = () if told == expected else (f"the records of {group.tag}: {counted(told)}",)
            if name or wrong:
                yield Cell(
                    outcome=name or f"{self.case.name}: {group.tag}",
                    provider=self.provider,
                    expected=counted(expected),
                    reached=counted(told),
                    wrong=wrong,
                )
        expected_text = self._text(ending, self.expected, ending.jobs, paid_answers(self.expected))
        made = [entry for entry in self.journal["creates"] if entry["marker"] in self._markers()]
        text = self._text(ending, reached, len(made), self._paid(made))
        wrong = tuple(self._books(ending, reached))
        if text != expected_text:
            wrong = (f"the job ended {text}", *wrong)
        if ending.cell or wrong:
            name = ending.cell or f"job: {self.case.name}"
            yield Cell(outcome=name, provider=self.provider, expected=expected_text, reached=text, wrong=wrong)

    def _record(self, key: str) -> str:
        """Its outcomes attempt by attempt, and where it stands."""
        story = explain_record.run(self.job, key, explain_record.Ports(self.stage.line.objects, self.stage.line.ledger))
        words = _words(story["attempts"], self.provider)
        if story["published"] and story["stands"] != "accepted":
            return f"{' > '.join(words)}: published, and {story['stands']}"
        return f"{' > '.join(words) or NEVER}: {_STANDS.get(story['stands'], 'open')}"

    def _text(self, ending: Ending, records: Mapping[str, int], jobs: int, paid: int) -> str:
        """The same words for what is expected and for what was reached."""
        state = ending.state if records is self.expected else self.job.state.value
        counts = standing(records)
        told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        return f"{state}, {told}; {jobs} jobs, {paid} answers paid"

    # The provider's bill

    def _markers(self) -> set[str]:
        return {row.submission_key for row in self.rows}

    def _paid(self, made: list[dict[str, Any]]) -> int:
        """Answers that were billed: none of a job whose bill is nothing."""
        batches = [self.journal["batches"][entry["job_id"]] for entry in made]
        return self._calls() + sum(int(one["counts"]["completed"]) for one in batches if one["billed_nano_usd"])

    def _calls(self) -> int:
        """Records that were asked one by one."""
        return sum(row.input_records for row in self.rows if row.lane == "on_demand")

    def _billed(self) -> int:
        """Nano-dollars."""
        per_marker: dict[str, int] = self.journal["billed_nano_usd_per_marker"]
        calls = (bill for bill in self.journal["bills"] if bill["lane"] == "on_demand" and self._calls())
        jobs = sum(per_marker.get(marker, 0) for marker in self._markers())
        return jobs + sum(int(bill["nano_usd"]) for bill in calls)

    # What must hold, and what each account says of it

    def _books(self, ending: Ending, reached: Mapping[str, int]) -> Iterator[str]:
        job, counts = self.job, standing(self.expected)
        if ending.reason not in job.reason or (job.reason and not ending.reason):
            yield f"the reason is {job.reason!r}, expected {ending.reason!r} in it"
        failed, in_review = dict(failed_by_class(self.expected)), dict(ending.in_review)
        told = {
            "succeeded": counts["accepted"],
            "failed": counts["failed"],
            "in_review": counts["in review"],
            "unknown": ending.unknown,
        }
        if ending.reconciled:
            yield from _differ("counts of `show`", told, {name: self.shown[name] for name in told})
            yield from _differ("counts of the report", told, {name: self.report["counts"].get(name) for name in told})
            yield from _differ("failed in the report", failed, _by_class(self.report["failed_by_class"]))
            yield from _differ("in review in the report", in_review, _by_class(self.report["in_review_by_class"]))
        yield from _differ("state in the report", ending.state, self.report["state"])
        anomalies: Counter[str] = Counter()
        for row in self.rows:
            anomalies.update(row.anomalies)
        yield from _differ("anomalies", dict(ending.anomalies), dict(anomalies))
        yield from _differ("calls", ending.calls, self._calls())
        for marker in self._markers():
            if self.journal["jobs_per_marker"].get(marker, 0) > 1:
                yield f"two provider jobs carry the marker {marker}"
        yield from self._money()
        yield from self._published(ending, reached, failed)

    def _money(self) -> Iterator[str]:
        booked = sum(row.cost_nano_usd + row.duplicate_cost_nano_usd for row in self.rows)
        yield from _differ("nano-dollars in the ledger", self._billed(), booked)
        shown = self.shown["cost_usd"]
        nano = None if shown is None else round(float(shown) * 1e9)
        yield from _differ("nano-dollars of `show`", booked, nano)

    def _published(self, ending: Ending, reached: Mapping[str, int], failed: Mapping[str, int]) -> Iterator[str]:
        line, job = self.stage.line, self.job
        closed = ending.state == "COMPLETED"
        places = list(line.objects.list(f"results/{job.tenant}/{job.spec}/{job.dataset_version}/"))
        if not (closed or ending.part):
            if places or job.certificate:
                yield f"the job is {job.state.value}, and {len(places)} objects were published"
            return
        published = {row["business_key"] for row in results(line.objects, job)}
        yield from _differ("published records", standing(reached)["accepted"], len(published))
        if not job.certificate:
            yield "there is no certificate"
            return
        certificate = self._certificate()
        told = {
            "expected": sum(self.expected.values()),
            "succeeded": standing(self.expected)["accepted"],
            "failed": dict(failed),
            "in_review": dict(ending.in_review),
            "unknown": ending.unknown,
            "acknowledged": ending.acknowledged,
            "partial": ending.part,
            "closed": closed,
        }
        yield from _differ("the certificate", told, {name: getattr(certificate, name) for name in told})
        yield from _differ("dollars of the certificate", self.shown["cost_usd"], certificate.cost_usd)
        if closed and not (verified := line.verify(job)).ok:
            yield f"verify: {verified.difference}"

    def _certificate(self) -> Certificate:
        key = self.job.certificate.removeprefix(self.stage.line.objects.uri(""))
        return from_bytes(self.stage.line.objects.get(key), where=key)


def _words(attempts: Iterable[Mapping[str, Any]], provider: str) -> list[str]:
    """A record that waits does so in as many attempts as it takes: that is told once."""
    words: list[str] = []
    for told in attempts:
        word = _word(told, provider)
        if word != OutcomeClass.WAITING or words[-1:] != [word]:
            words.append(word)
    return words


def _word(told: Mapping[str, Any], provider: str) -> str:
    outcome = str(told["outcome"] or "not reconciled")
    at = told.get("provider")
    if at == PEOPLE:
        return BY_PEOPLE if outcome == OutcomeClass.SUCCEEDED else outcome
    return f"{outcome}{AT}{at}" if at and at != provider else outcome


def _by_class(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["class"]: row["records"] for row in rows}


def _differ(what: str, expected: Any, reached: Any) -> Iterator[str]:
    if expected != reached:
        yield f"{what}: expected {expected}, reached {reached}"
