"""Geometry of the page's pictures: stacked bars and the timeline, in percent of the width, so that text keeps its size
on any screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.report import words

_THINNEST = 0.35
"""Percent of the width that the smallest part still gets: one record in 10,000 stays visible."""
LANES = 12
"""Up to so many submissions have a bar each; more are drawn as the number in flight, attempt by attempt."""
BINS = 120
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST_TICKS = 5
_ORDER = {outcome.value: place for place, outcome in enumerate(OutcomeClass)}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar; `x` and `width` in percent."""

    css: str
    name: str
    count: str
    share: str
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class Tick:
    x: str
    label: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Span:
    """A bar of the timeline, or one of its bins: `height` in percent of the lane."""

    x: str
    width: str
    height: str = "100"


@dataclass(frozen=True, slots=True)
class Lane:
    label: str
    note: str
    css: str
    spans: tuple[Span, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Timeline:
    began: str
    ended: str
    ticks: tuple[Tick, ...]
    lanes: tuple[Lane, ...]
    binned: bool
    """Whether lanes are attempts with their submissions in flight, not single submissions."""


def outcome_css(name: str) -> str:
    """The class of an outcome's colour; a name we do not know gets the neutral one."""
    return f"o-{name}" if name in _ORDER else "o-other"


def ordered(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Outcomes that occur, accepted ones first, always in the same order."""
    present = [(name, count) for name, count in counts.items() if count > 0]
    return sorted(present, key=lambda pair: (_ORDER.get(pair[0], len(_ORDER)), pair[0]))


def stacked(counts: Mapping[str, int]) -> tuple[Part, ...]:
    """A bar of the whole width; what small parts get beyond their share, the widest gives."""
    parts = ordered(counts)
    total = sum(count for _, count in parts)
    if not total:
        return ()
    widths = [max(_THINNEST, count * 100 / total) for _, count in parts]
    widths[widths.index(max(widths))] -= sum(widths) - 100
    x, bar = 0.0, []
    for (name, count), width in zip(parts, widths, strict=True):
        shown = words.number(count), words.share(count, total)
        bar.append(Part(outcome_css(name), words.text(name), *shown, _percent(x), _percent(width)))
        x += width
    return tuple(bar)


def timeline(submissions: Sequence[Mapping[str, Any]], at: float) -> Timeline | None:
    """When submissions were at their provider. One that has not ended reaches to `at`; None if there was none."""
    sent = [_Sent(entry, at) for entry in submissions if entry.get("submitted_at", 0) > 0]
    if not sent:
        return None
    began = min(one.began for one in sent)
    ended = max(one.ended for one in sent)
    axis = _Axis(began, max(ended - began, 1.0))
    binned = len(sent) > LANES
    lanes = _attempt_lanes(sent, axis) if binned else [_lane(one, axis) for one in sorted(sent, key=_Sent.place)]
    return Timeline(words.moment(began), words.moment(ended), axis.ticks(), tuple(lanes), binned)


class _Sent:
    """A submission that reached its provider."""

    def __init__(self, entry: Mapping[str, Any], at: float) -> None:
        self.attempt: int = entry["attempt"]
        self.shard_id: str = entry["shard_id"]
        self.records: int = entry.get("records", 0)
        self.began = float(entry["submitted_at"])
        self.over = entry.get("terminal_at", 0) > 0
        self.ended = max(self.began, float(entry["terminal_at"] if self.over else at))

    def place(self) -> tuple[int, float, str]:
        return self.attempt, self.began, self.shard_id


class _Axis:
    def __init__(self, began: float, span: float) -> None:
        self.began, self.span = began, span

    def at(self, moment: float) -> float:
        return (moment - self.began) * 100 / self.span

    def ticks(self) -> tuple[Tick, ...]:
        """At round times of the UTC day, never so many that they touch on a phone."""
        step = next((one for one in _STEPS_S if self.span / one <= _MOST_TICKS), 0)
        if not step:
            step = 86400 * max(1, -(-int(self.span) // (86400 * _MOST_TICKS)))
        first = -(-int(self.began) // step) * step
        marks = range(first, int(self.began + self.span) + 1, step)
        return tuple(Tick(_percent(self.at(mark)), _clock(mark, step), self._anchor(mark)) for mark in marks)

    def _anchor(self, mark: float) -> str:
        place = self.at(mark)
        return "start" if place < 8 else "end" if place > 92 else "middle"


def _clock(mark: float, step: int) -> str:
    iso = words.moment(mark)
    if step >= 86400:
        return iso[5:10]
    return iso[11:16] if step >= 60 else iso[11:19]


def _lane(one: _Sent, axis: _Axis) -> Lane:
    width = max(axis.at(one.ended) - axis.at(one.began), 0.4)
    span = Span(_percent(min(axis.at(one.began), 99.6)), _percent(width))
    took = words.duration(one.ended - one.began) + ("" if one.over else " so far")
    label = f"Attempt {one.attempt} · {words.text(one.shard_id)}"
    note = f"{words.number(one.records)} {'record' if one.records == 1 else 'records'} · {took}"
    title = f"{label}: {words.moment(one.began)}, {note}"
    return Lane(label, note, _lane_css(one.attempt) if one.over else "t-open", (span,), title)


def _attempt_lanes(sent: Sequence[_Sent], axis: _Axis) -> list[Lane]:
    """Submissions in flight over time, one lane an attempt, all on the scale of the highest."""
    by_attempt: dict[int, list[_Sent]] = {}
    for one in sent:
        by_attempt.setdefault(one.attempt, []).append(one)
    bins = {attempt: _in_flight(ones, axis) for attempt, ones in by_attempt.items()}
    highest = max(max(counts) for counts in bins.values())
    lanes = []
    for attempt, ones in sorted(by_attempt.items()):
        counts = bins[attempt]
        width = 100 / BINS
        spans = tuple(
            Span(_percent(number * width), _percent(width), _percent(count * 100 / highest))
            for number, count in enumerate(counts)
            if count
        )
        took = words.duration(max(one.ended for one in ones) - min(one.began for one in ones))
        many = f"{words.number(len(ones))} {'submission' if len(ones) == 1 else 'submissions'}"
        note = f"{many}, at most {words.number(max(counts))} at once · {took}"
        lanes.append(Lane(f"Attempt {attempt}", note, _lane_css(attempt), spans, f"Attempt {attempt}: {note}"))
    return lanes


def _in_flight(ones: Sequence[_Sent], axis: _Axis) -> list[int]:
    """How many submissions touch each bin of the axis."""
    changes = [0] * (BINS + 1)
    for one in ones:
        first = min(BINS - 1, int(axis.at(one.began) * BINS / 100))
        last = min(BINS - 1, int(axis.at(one.ended) * BINS / 100))
        changes[first] += 1
        changes[last + 1] -= 1
    counts, now = [], 0
    for change in changes[:-1]:
        now += change
        counts.append(now)
    return counts


def _lane_css(attempt: int) -> str:
    return "t-first" if attempt == 1 else "t-again"


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if value else "0"
