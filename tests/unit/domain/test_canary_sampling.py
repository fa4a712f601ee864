"""Unit: the canary's sample, its judgement, its forecast, and the waves after it."""

from __future__ import annotations

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.domain.canary import (
    GROWTH,
    MOST_STRATA,
    CanaryCounts,
    Judgement,
    Sampler,
    allocate,
    canary_size,
    forecast,
    is_broken,
    judge,
    script_of,
    stratum_of,
    waves,
    why,
)

Counts = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 500), min_size=1, max_size=30)


def ids(count: int) -> list[str]:
    return [hashlib.sha256(str(n).encode()).hexdigest()[:32] for n in range(count)]


@given(Counts, st.integers(1, 200))
def test_given_any_strata_when_allocated_then_the_sample_has_its_size_and_no_stratum_gives_more_than_it_has(
    counts: dict[str, int], size: int
) -> None:
    taken = allocate(counts, size)

    assert sum(taken.values()) == min(size, sum(counts.values()))
    assert all(0 < count <= counts[name] for name, count in taken.items())
    if size >= len(counts):
        assert set(taken) == set(counts), "what is rare is seen"


def test_given_more_strata_than_places_when_allocated_then_the_largest_and_the_rarest_take_turns() -> None:
    counts = {name: size for size, name in enumerate("abcdefgh", 1)}

    assert allocate(counts, 4) == {"h": 1, "a": 1, "g": 1, "b": 1}


def test_given_strata_of_unlike_size_when_allocated_then_they_are_represented_in_proportion() -> None:
    assert allocate({"big": 900, "small": 99, "rare": 1}, 100) == {"big": 88, "small": 11, "rare": 1}


def test_given_the_same_records_in_another_order_when_sampled_then_the_sample_is_the_same() -> None:
    records = [(f"s{n % 7}", record_id) for n, record_id in enumerate(ids(500))]
    samples = []
    for seed in range(3):
        sampler = Sampler(20)
        for stratum, record_id in random.Random(seed).sample(records, len(records)):
            sampler.add(stratum, record_id)
        samples.append(sampler.chosen())

    assert samples[0] == samples[1] == samples[2]
    chosen, table = samples[0]
    assert len(chosen) == 20
    assert [row.taken for row in table] == [3, 3, 3, 3, 3, 3, 2]
    by_stratum = {stratum: sorted(r for s, r in records if s == stratum) for stratum in {s for s, _ in records}}
    assert all(set(by_stratum[row.stratum][: row.taken]) <= chosen for row in table)


def test_given_a_field_with_a_value_for_each_record_when_sampled_then_the_strata_stay_bounded() -> None:
    sampler = Sampler(5)
    for n, record_id in enumerate(ids(MOST_STRATA + 50)):
        sampler.add(str(n), record_id)

    chosen, table = sampler.chosen()
    assert (len(chosen), len(table)) == (5, MOST_STRATA + 1)
    assert (table[0].stratum, table[0].records) == ("other", 50)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        (b'{"a":"plain"}', "ascii"),
        ('{"a":"caf\u00e9"}'.encode(), "latin"),
        ('{"a":"\u041f\u0440\u0438\u0432\u0435\u0442 caf\u00e9"}'.encode(), "cyrillic"),
        ('{"a":"\u6771\u4eac"}'.encode(), "han"),
        ('{"a":"\u6771\u4eac\u3078\u884c\u304f"}'.encode(), "kana"),
        ('{"a":"\U0001f600"}'.encode(), "other"),
    ],
)
def test_given_a_text_when_its_script_is_guessed_then_it_is_that_of_its_letters(line: bytes, script: str) -> None:
    assert script_of(line) == script


def test_given_declared_fields_when_a_stratum_is_named_then_it_has_their_values_size_and_script() -> None:
    line = b'{"kind":"rare","title":"x","score":3}'

    assert stratum_of(line, ["kind", "score", "gone"]) == 'kind="rare", score=3, gone=, <64 bytes, ascii'
    assert len(stratum_of(b'{"kind":"' + b"v" * 900 + b'"}', ["kind"])) < 80


@pytest.mark.parametrize(
    ("asked", "expected", "least", "size"),
    [(50, 1000, 1, 50), (50, 1000, 100, 100), (50, 51, 1, 50), (50, 50, 1, 0), (50, 20, 1, 0), (50, 150, 100, 0),
     (50, 200, 100, 100)],
)  # fmt: skip
def test_given_a_size_when_it_meets_the_providers_minimum_then_both_parts_of_the_job_have_it(
    asked: int, expected: int, least: int, size: int
) -> None:
    assert canary_size(asked, expected, least) == size


def counts(accepted: int, *, failed: int = 0, unqualified: int = 0, unanswered: int = 0) -> CanaryCounts:
    return CanaryCounts(
        accepted=accepted,
        failed={"permanent": failed} if failed else {},
        unqualified=unqualified,
        unanswered=unanswered,
    )


@pytest.mark.parametrize(
    ("told", "overdue", "judgement"),
    [
        (counts(9, failed=1), False, Judgement.PASSED),
        (counts(9, unanswered=1), False, Judgement.PASSED),
        (counts(8, failed=2), False, Judgement.FAILED),
        (counts(8, unqualified=2), False, Judgement.FAILED),
        (counts(8, unqualified=1, unanswered=1), False, Judgement.UNDECIDED),
        (counts(0, unanswered=10), False, Judgement.UNDECIDED),
        (counts(0, unanswered=10), True, Judgement.FAILED),
    ],
)
def test_given_a_canarys_counts_when_judged_then_only_what_cannot_change_any_more_is_concluded(
    told: CanaryCounts, overdue: bool, judgement: Judgement
) -> None:
    assert judge(told, 0.9, overdue=overdue) is judgement


def test_given_a_share_that_no_float_holds_when_judged_then_the_border_is_exact() -> None:
    assert judge(counts(7, failed=3), 0.7) is Judgement.PASSED
    assert judge(counts(29, failed=71), 0.29) is Judgement.PASSED


def test_given_counts_when_told_why_then_the_figures_are_named() -> None:
    told = why(counts(41, failed=3, unqualified=5, unanswered=1), 0.9)
    assert told == "41 of 50 records accepted (82.0%), 90.0% needed; 5 unqualified, 3 permanent, 1 unanswered"


@given(st.integers(1, 5000), st.integers(1, 1000))
def test_given_any_job_when_its_waves_are_cut_then_they_hold_each_shard_once_and_grow_up_to_the_limit(
    shards: int, max_parallel: int
) -> None:
    sizes = waves(shards, max_parallel)

    assert sum(sizes) == shards
    assert sizes[0] == (shards if max_parallel == 1 else 1)
    assert all(size == GROWTH**number < max_parallel for number, size in enumerate(sizes[:-1]))
    assert len(sizes) <= 6


def test_given_a_canarys_bill_when_the_whole_is_forecast_then_it_is_in_proportion() -> None:
    told = forecast({"input": 100, "output": 33}, 10, expected=1000, shards=9, max_parallel=4, seconds=600)

    assert told.tokens == {"input": 10_000, "output": 3_300}
    assert (told.waves, told.seconds, told.cost_usd) == (2, 600 * 3, None)
    assert forecast({}, 0, expected=5, shards=1, max_parallel=1, seconds=0).tokens == {}


@pytest.mark.parametrize(
    ("told", "broken"),
    [({"succeeded": 5, "bad": 5}, False), ({"succeeded": 4, "bad": 5}, True), ({"missing": 10}, False), ({}, False),
     ({"bad": 1}, True), ({"reused": 1, "bad": 1}, False)],
)  # fmt: skip
def test_given_a_waves_counts_when_looked_at_then_it_is_broken_below_half_of_its_answers(
    told: dict[str, int], broken: bool
) -> None:
    assert is_broken(told, ["bad"], ["succeeded", "reused"]) is broken
