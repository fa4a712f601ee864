"""What a spec may say about retries and review, and what is refused with advice."""

from __future__ import annotations

import pytest

from tests.support.spec_texts import BASE, spec_of, the_problem

NATIVE = "name: n\nprovider: openai\nmodel: m-1\ninput: {format: openai}\n"
CAPPED = BASE + "generation: {max_output_tokens: 400}\n"


def test_given_all_retry_keys_when_read_then_they_are_kept() -> None:
    spec = spec_of(
        CAPPED + "retry:\n  window: 22:00-06:30\n  feedback: true\n  raise_output_cap: {max: 4096}\n"
        "  codes: {server_error: permanent, '529': retryable}\n"
        "limits: {max_tokens_per_record: 9000}\nreview: {classes: [refused, exhausted]}\n"
    )

    assert spec.retry.window_s == (22 * 3600, 6 * 3600 + 1800)
    assert spec.retry.raise_output_cap is not None
    assert (spec.retry.raise_output_cap.factor, spec.retry.raise_output_cap.max) == (2, 4096)
    assert spec.retry.codes == {"server_error": "permanent", "529": "retryable"}
    assert (spec.limits.max_tokens_per_record, spec.review.classes) == (9000, ("refused", "exhausted"))


def test_given_retry_keys_when_identities_are_made_then_they_are_not_part_of_them() -> None:
    """A raised cap answers the same question: what is accepted is reused, whatever the spec says of retries."""
    plain = spec_of(CAPPED)
    other = spec_of(CAPPED + "retry: {raise_output_cap: {max: 4096}, feedback: true}\n")

    assert plain.identity("acme") == other.identity("acme")


@pytest.mark.parametrize(
    ("text", "key", "part"),
    [
        (BASE + "retry: {window: night}", "retry.window", "22:00-06:00"),
        (BASE + "retry: {window: 24:00-06:00}", "retry.window", "22:00-06:00"),
        (BASE + "retry: {window: 06:00-06:00}", "retry.window", "different times"),
        (BASE + "retry: {codes: {server_error: again}}", "retry.codes.server_error", "is none of retryable, expired"),
        (BASE + "retry: {codes: {server_error: succeeded}}", "retry.codes.server_error", "is none of"),
        (BASE + "retry: {codes: {'a b': retryable}}", "retry.codes.a b", "use letters"),
        (
            BASE + "retry: {raise_output_cap: {max: 800}}",
            "retry.raise_output_cap",
            "needs generation.max_output_tokens",
        ),
        (CAPPED + "retry: {raise_output_cap: {max: 400}}", "retry.raise_output_cap.max", "more than"),
        (CAPPED + "retry: {raise_output_cap: {factor: 1, max: 800}}", "retry.raise_output_cap.factor", "at least 1.1"),
        (CAPPED + "retry: {raise_output_cap: {factor: 2}}", "retry.raise_output_cap.max", "is required"),
        (NATIVE + "retry: {raise_output_cap: {max: 800}}", "retry.raise_output_cap", "to raise; remove it"),
        (NATIVE + "retry: {feedback: true}", "retry.feedback", "no prompt of ours"),
        (BASE + "retry: {feedback: true, retry_unqualified: false}", "retry.feedback", "retry_unqualified is false"),
        (BASE + "review: {classes: [waiting]}", "review.classes[0]", "is none of"),
        (BASE + "limits: {max_tokens_per_record: 0}", "limits.max_tokens_per_record", "at least 1"),
    ],
)
def test_given_a_wrong_retry_key_when_read_then_it_is_named_with_advice(text: str, key: str, part: str) -> None:
    problem = the_problem(text)

    assert problem.key == key
    assert part in problem.reason
