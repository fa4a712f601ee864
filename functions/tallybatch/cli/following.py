"""Watches a job in the ledger until it ends, and shows how it gets on: live on a terminal, else a line per change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from tallybatch.cli.output import note, state_text, stderr, table
from tallybatch.cli.queueing import turns
from tallybatch.cli.stack import Connection
from tallybatch.cli.view import Snapshot, accepted_so_far
from tallybatch.domain.errors import NotFound, Retryable
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Submission
from tallybatch.ports import Clock

_FIRST_POLL_S = 0.5
_LOCAL_POLL_S = 1.0
_AWS_POLL_S = 10.0
_MAX_FAILURES = 20
"""Looks in a row that may fail before the command gives up."""


def follow(connection: Connection, job_key: str) -> Snapshot:
    """Returns the job as it ended. Ctrl-C ends the watching only; the job goes on."""
    terminal = stderr().is_terminal
    with (_LiveView if terminal else _LogView)(connection.clock) as view:
        last = None
        for last in snapshots(connection, job_key):
            view.show(last)
    assert last is not None  # noqa: S101 - snapshots yields one at least
    return last


def look(connection: Connection, job_key: str) -> Snapshot:
    job = connection.ledger.job(job_key)
    if job is None:
        raise NotFound("the job is no longer in the ledger", where=f"job {job_key}")
    turn = turns([job], connection.ledger).get(job_key)
    return Snapshot(job, connection.ledger.submissions(job_key), *(turn or ()))


def snapshots(connection: Connection, job_key: str) -> Iterator[Snapshot]:
    """One look at the ledger after another, the last one at the ended job. The pause grows while nothing changes."""
    longest = _LOCAL_POLL_S if connection.place.local else _AWS_POLL_S
    pause, failures = _FIRST_POLL_S, 0
    before: Snapshot | None = None
    while True:
        try:
            now = look(connection, job_key)
        except Retryable as error:
            failures += 1
            if failures > _MAX_FAILURES:
                raise
            note(f"{error}; looking again")
            connection.sleep(longest)
            continue
        failures = 0
        yield now
        if now.ended:
            return
        pause = _FIRST_POLL_S if now != before else min(pause * 1.5, longest)
        before = now
        connection.sleep(pause)


class View(Protocol):
    def __init__(self, clock: Clock) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...


class _LogView:
    """A line on stderr for every change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, snapshot: Snapshot) -> None:
        line = progress_line(snapshot)
        if line != self._said:
            self._said = line
            note(f"{elapsed(snapshot, self._clock)} {line}")


class _LiveView:
    """Bars for shards and records, and a row per attempt; drawn again several times a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._snapshot: Snapshot | None = None
        columns = (
            TextColumn("{task.description:8}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bars = Progress(*columns)
        self._shards = self._bars.add_task("shards", total=None, note="")
        self._records = self._bars.add_task("records", total=None, note="")
        self._live = Live(console=stderr(), get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        states = shard_states(snapshot)
        self._bars.update(
            self._shards,
            total=max(shards_of_attempt(snapshot), 1),
            completed=states[SubmissionState.RECONCILED],
            note=_words(states),
        )
        self._bars.update(
            self._records,
            total=max(snapshot.job.expected, 1),
            completed=accepted_so_far(snapshot.submissions),
            note="accepted",
        )
        self._snapshot = snapshot

    def _render(self) -> RenderableType:
        if self._snapshot is None:
            return Text("")
        job = self._snapshot.job
        head = Text.assemble(
            (job.job_key[:12], "bold"),
            "  ",
            state_text(job.state.value),
            f"  attempt {job.attempt}  {elapsed(self._snapshot, self._clock)}",
        )
        rows = attempt_rows(self._snapshot.submissions)
        return Group(head, self._bars, *([table(("attempt", "records", "outcomes"), rows)] if rows else []))


def progress_line(snapshot: Snapshot) -> str:
    """`1a2b… RUNNING attempt 1: shards 1/2 (1 RECONCILED, 1 RUNNING); records 250/500 accepted (250 succeeded)`."""
    job, states = snapshot.job, shard_states(snapshot)
    shards = f"shards {states[SubmissionState.RECONCILED]}/{shards_of_attempt(snapshot)}"
    rows = attempt_rows(snapshot.submissions)
    return (
        f"{job.job_key[:12]} {job.state.value} attempt {job.attempt}: {shards}{_bracketed(_words(states))}; "
        f"records {accepted_so_far(snapshot.submissions)}/{job.expected} accepted"
        + _bracketed("; ".join(f"attempt {number}: {words}" for number, _, words in rows if words))
    )


def shard_states(snapshot: Snapshot) -> Counter[SubmissionState]:
    """Submissions of the current attempt by state."""
    return Counter(row.state for row in snapshot.submissions if row.attempt == snapshot.job.attempt)


def shards_of_attempt(snapshot: Snapshot) -> int:
    """The manifest's shards in attempt 1; a retry has as many as have been begun."""
    begun = sum(shard_states(snapshot).values())
    return max(snapshot.job.shard_count, begun) if snapshot.job.attempt == 1 else begun


def attempt_rows(submissions: Sequence[Submission]) -> list[tuple[int, int, str]]:
    """(attempt, records in it, their outcomes in words), for each attempt that has begun."""
    rows = []
    for number in sorted({row.attempt for row in submissions}):
        ours = [row for row in submissions if row.attempt == number]
        counts: Counter[str] = Counter()
        for row in ours:
            counts.update(row.counts)
        records = sum(row.input_records + row.reused_records + row.waiting_records for row in ours)
        rows.append((number, records, _words(counts)))
    return rows


def elapsed(snapshot: Snapshot, clock: Clock) -> str:
    """Since the job began, until now or its end: `[1:02:03]`."""
    until = snapshot.job.updated_at if snapshot.ended else clock.now()
    seconds = max(0, round(until - snapshot.job.created_at))
    hours, rest = divmod(seconds, 3600)
    return f"[{hours}:{rest // 60:02}:{rest % 60:02}]"


def _words(counts: Counter[SubmissionState] | Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda pair: -pair[1]))


def _bracketed(text: str) -> str:
    return f" ({text})" if text else ""
