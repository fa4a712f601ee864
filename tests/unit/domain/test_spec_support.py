"""Keys of a later release: refused by name, never ignored."""

import pytest

from tests.support.spec_texts import BASE, problems_of, spec_of, the_problem

UNSUPPORTED_CASES = [
    ("input: {redact: [email]}", "input.redact"),
    ("generation: {tools: [{type: web_search}]}", "generation.tools"),
]


@pytest.mark.parametrize(("text", "key"), UNSUPPORTED_CASES, ids=[case[0] for case in UNSUPPORTED_CASES])
def test_given_a_key_of_a_later_release_when_read_then_it_is_refused_by_name(text: str, key: str) -> None:
    problem = the_problem(BASE + text)

    assert (problem.line, problem.key, problem.code) == (5, key, "not_supported")
    assert "not supported yet" in problem.reason


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("input: {redact: [e-mail]}", "input.redact[0]", "did you mean 'email'?"),
        ("canary: {}", "canary.records", "is required"),
        ("limits: {max_cost_usd: -1}", "limits.max_cost_usd", "must be between 0 and 1000000"),
        ("limits: {max_cost_usd: forty}", "limits.max_cost_usd", "is not an amount in US dollars"),
        ("limits: {priority: hi}", "limits.priority", "did you mean 'high'?"),
        ("retry: {small_set: on-demand}", "retry.small_set", "did you mean 'on_demand'?"),
    ],
)
def test_given_a_key_of_a_later_release_with_a_wrong_value_when_read_then_the_value_is_told_too(
    text: str, key: str, reason: str
) -> None:
    assert reason in next(p.reason for p in problems_of(BASE + text) if p.key == key and p.code != "not_supported")


@pytest.mark.parametrize("text", ["canary: null", "retry: {small_set: wait}", "limits: {priority: normal}"])
def test_given_a_key_of_a_later_release_at_its_default_when_read_then_it_is_accepted(text: str) -> None:
    assert spec_of(BASE + text) == spec_of(BASE)


def test_given_no_list_of_fields_when_strata_are_named_then_they_may_be_those_of_the_template() -> None:
    assert spec_of(BASE + "canary: {records: 50, strata: [title]}").canary is not None

    problem = the_problem(BASE + "canary: {records: 50, strata: [titel]}")
    assert (problem.key, problem.code) == ("canary.strata[0]", "unknown_field")
    assert "did you mean 'title'?" in problem.reason
