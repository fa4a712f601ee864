"""Errors tell what, where, why and what to do; the workflow tells them apart by class name."""

from __future__ import annotations

import pytest

from tallybatch.domain import errors
from tallybatch.domain.errors import BadInput, Permanent, Problem, QuotaRefused, Retryable, TallybatchError


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"what": "it broke"}, "it broke"),
        ({"what": "it broke", "where": "job k"}, "job k: it broke"),
        ({"what": "it broke.", "why": "no such key.", "do": "add it."}, "it broke. no such key. add it"),
        ({"what": "it broke", "do": "add it"}, "it broke. add it"),
        ({"what": "a", "where": "b", "why": "c", "do": "d"}, "b: a. c. d"),
    ],
)
def test_given_parts_when_raised_then_the_message_has_them_in_order(parts: dict[str, str], text: str) -> None:
    error = TallybatchError(**parts)
    assert str(error) == text
    assert (error.what, error.where, error.why, error.do) == (
        parts["what"], parts.get("where", ""), parts.get("why", ""), parts.get("do", ""),
    )  # fmt: skip


ACTS = {
    "Retryable": Retryable, "ProviderUnavailable": Retryable, "CreateUnknown": Retryable, "QuotaRefused": Retryable,
    "LedgerBusy": Retryable, "Permanent": Permanent, "ProviderRefused": Permanent, "ResultsGone": Permanent,
    "NotClosed": Permanent, "NotFound": Permanent, "ObjectDamaged": Permanent, "Conflict": None, "BadInput": None,
    "RolloutStopped": Permanent, "ApprovalRejected": Permanent, "ApprovalExpired": Permanent,
    "TallybatchError": None,
    "AnswerUnknown": Retryable,
}  # fmt: skip


def test_given_the_errors_when_sorted_by_who_must_act_then_each_is_where_the_workflow_expects_it() -> None:
    classes = {
        name: found
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, TallybatchError)
    }
    assert set(classes) == set(ACTS)
    for name, found in classes.items():
        assert issubclass(found, Retryable) == (ACTS[name] is Retryable), name
        assert issubclass(found, Permanent) == (ACTS[name] is Permanent), name


def test_given_a_quota_refusal_when_raised_then_it_says_that_the_shard_waits() -> None:
    error = QuotaRefused("too many tokens", retry_after_s=30, where="openai", why="429")
    assert str(error) == "openai: too many tokens. 429. the shard waits and tries again; no attempt is used up"
    assert error.retry_after_s == 30
    assert QuotaRefused("x").retry_after_s is None


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("is blank"), "is blank"),
        (Problem("is blank", line=7), "line 7: is blank"),
        (Problem("is unknown", key="prompt.usr"), "prompt.usr: is unknown"),
        (Problem("is unknown", line=3, key="prompt.usr"), "line 3: prompt.usr: is unknown"),
    ],
)
def test_given_a_problem_when_shown_then_line_and_key_come_first(problem: Problem, text: str) -> None:
    assert str(problem) == text


@pytest.mark.parametrize(
    ("count", "tail"), [(1, "line 1: bad"), (3, "line 3: bad"), (4, "and 1 more"), (250, "and 247 more")]
)
def test_given_problems_when_raised_then_three_are_shown_and_the_rest_counted(count: int, tail: str) -> None:
    error = BadInput("refused", [Problem("bad", line=number) for number in range(1, count + 1)], where="a.jsonl")
    assert len(error.problems) == count
    assert str(error).startswith("a.jsonl: refused. line 1: bad")
    assert str(error).endswith(tail)
    assert str(error).count("line ") == min(count, 3)


def test_given_no_problems_when_raised_then_the_message_has_no_empty_part() -> None:
    assert str(BadInput("refused", do="mend it")) == "refused. mend it"


def test_given_an_error_when_its_args_are_printed_then_they_are_the_whole_message() -> None:
    assert BadInput("refused", [Problem("bad", line=1)], where="a").args == ("a: refused. line 1: bad",)
