"""Rules in CEL, and quotes: a verdict for whatever a model says, and never an exception."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.quality import AnswerCheck, Verdict
from tallybatch.domain.quality_quotes import Quotes
from tallybatch.domain.quality_rules import LONGEST_SHOWN, Rules, fault
from tallybatch.domain.spec_file import parse_spec

GIVEN = {"title": "The Land  Girls", "year": 1998, "tags": ["war", "farm"]}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


@pytest.mark.parametrize(
    "rule",
    [
        "output.confidence >= 0.2",
        "output.genre in ['Drama', 'Comedy']",
        "input.tags.exists(tag, tag == output.tag)",
        "input.tags.all(x, size(x) < 10) && input.tags.filter(y, y != '').size() == 2",
        "has(output.quote) ? input.title.contains(output.quote) : true",
        "output.genre.matches('^[A-Z]') && output.genre.startsWith('D')",
        "type(output.confidence) == double",
        "timestamp(output.at).getFullYear() == input.year",
        "output.text != \"foo.map(bar, bar)\" && output.text != 'nosuch(1)'",
        "input.tags.map(t, t + '!').exists_one(t, t == output.tag)",
    ],
)
def test_given_a_sound_rule_when_checked_then_it_has_no_fault(rule: str) -> None:
    assert fault(rule) is None


@pytest.mark.parametrize(
    ("rule", "line", "told"),
    [
        ("output.x >", 1, "not CEL, at column 11"),
        ("output.x > 1 &&\n  (output.y", 2, "not CEL, at column 12"),
        ("", 1, "not CEL"),
        ("foo.bar == 1", 1, "uses 'foo'; there are only input and output"),
        ("output.a == 1 &&\nouput.b == 2", 2, "uses 'ouput'"),
        ("input.tags.exists(x, x == y)", 1, "uses 'y'"),
        ("output.a.lowerAscii() == 'x'", 1, "calls 'lowerAscii', which there is not"),
        ("frob(output)", 1, "calls 'frob', which there is not"),
        ("1 == 1", 1, "looks at neither input nor output"),
    ],
)
def test_given_a_rule_that_cannot_hold_when_checked_then_its_fault_and_line_are_told(
    rule: str, line: int, told: str
) -> None:
    found = fault(rule)
    assert found is not None
    assert found.line == line
    assert told in found.reason


@pytest.mark.parametrize(
    ("rule", "output", "reason"),
    [
        ("output.a == 1", {"a": 1}, ""),
        ("output.a >= 0.2", {"a": 1}, ""),
        ("output.a == 1", {"a": 2}, "rule 1 `output.a == 1` is false"),
        ("output.a", {"a": 1}, "rule 1 `output.a` is neither true nor false"),
        ("output.b == 1", {"a": 2}, "cannot be evaluated: a field is missing"),
        ("output.a + 1 == 2", {"a": "SECRET"}, "cannot be evaluated: the types do not go together"),
        ("output.a / 0 == 1", {"a": 2}, "cannot be evaluated: division by zero"),
        ("output.a + 9223372036854775807 > 0", {"a": 2}, "cannot be evaluated: a number is out of range"),
        ("output.l[5] == 1", {"l": [1]}, "cannot be evaluated: an index is out of bounds"),
        ("'x'.matches(output.a)", {"a": "SECRET("}, "cannot be evaluated: not applicable"),
        ("size(output.a) > 1", {"a": 2}, "cannot be evaluated: not applicable"),
        ("output.a == input.year", {"a": 1998}, ""),
        ("output == 'text'", "text", ""),
        ("size(output) == 2", [[0.5, 1.0], [1, 2]], ""),
    ],
)
def test_given_an_answer_when_judged_by_a_rule_then_only_true_passes_and_the_answer_is_not_told(
    rule: str, output: Any, reason: str
) -> None:
    broken = Rules([rule]).broken(GIVEN, output)
    assert len(broken) == bool(reason)
    assert reason in "".join(broken)
    assert "SECRET" not in "".join(broken)


def test_given_several_rules_when_broken_then_each_is_told_with_its_number_and_text() -> None:
    long = "output.a != '" + "x" * 400 + "' && false"
    broken = Rules(["output.a == 'b'", "output.a == 'a'", long, "output.a ==\n  'c'"]).broken({}, {"a": "a"})
    assert broken[0] == "rule 1 `output.a == 'b'` is false"
    assert broken[1].startswith("rule 3 `output.a != 'xxx")
    assert len(broken[1]) < LONGEST_SHOWN + 30
    assert broken[2] == "rule 4 `output.a == 'c'` is false"


@settings(max_examples=80, deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
))  # fmt: skip
def test_given_any_answer_when_judged_then_there_is_a_verdict(value: Any) -> None:
    rules = Rules(["output.a.b > 1 || output.size() > 0", "output == output"])
    assert all(reason.startswith("rule ") for reason in rules.broken({"a": 1}, value))


def test_given_rules_when_the_evaluator_is_loaded_then_its_command_line_is_not() -> None:
    """A cold start would take 0.7 s longer."""
    code = (
        "import sys; from tallybatch.domain.quality_rules import Rules; Rules(['output == 1']);"
        "assert 'cel.cel' in sys.modules; print({'typer', 'prompt_toolkit', 'cel.cli'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


def test_given_no_rules_when_a_spec_is_read_then_the_evaluator_is_not_loaded() -> None:
    code = (
        "import sys; from tallybatch.domain.spec_file import parse_spec;"
        "from tallybatch.domain.quality import AnswerCheck;"
        "AnswerCheck.of(parse_spec(b\"name: a\\nprovider: openai\\nmodel: m-1\\nprompt: {user: '{{ t }}'}\\n\"));"
        "assert 'cel.cel' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("fields", "output", "reasons"),
    [
        (["/quote"], {"quote": "The Land Girls"}, []),
        (["quote"], {"quote": " Land\n\tGirls "}, []),
        (["quote"], {"quote": "land girls"}, ["quote quote does not occur in the input"]),
        (["quote"], {"quote": "The Land Girls war"}, ["quote quote does not occur in the input"]),
        (["quote"], {}, []),
        (["quote"], {"quote": None}, []),
        (["quote"], {"quote": "  "}, ["quote quote is empty"]),
        (["quote"], {"quote": 1998}, ["quote quote is not text"]),
        (["quote"], {"quote": {"a": "war"}}, ["quote quote is not text"]),
        (["quotes"], {"quotes": ["war", "far"]}, []),
        (["quotes"], {"quotes": ["war", "SECRET", "SECRET"]}, ["quote quotes does not occur in the input"]),
        (["/facts/*/quote"], {"facts": [{"quote": "war"}, {"x": 1}, {"quote": "farm"}]}, []),
        (["/facts/*/quote"], {"facts": [{"quote": "war"}, {"quote": "SECRET"}]}, ["quote /facts/*/quote does not"]),
        (["/facts/1/quote"], {"facts": [{"quote": "SECRET"}, {"quote": "farm"}]}, []),
        (["/a~1b"], {"a/b": "war"}, []),
        (["a", "b"], {"a": "SECRET", "b": "SECRET"}, ["quote a does not", "quote b does not"]),
    ],
)
def test_given_quotes_when_checked_then_each_must_occur_word_for_word(
    fields: list[str], output: Any, reasons: list[str]
) -> None:
    found = Quotes(fields).missing(GIVEN, output)
    assert len(found) == len(reasons)
    assert all(told.startswith(reason) for told, reason in zip(found, reasons, strict=True))
    assert "SECRET" not in "".join(found)


@pytest.mark.parametrize(("source", "quote"), [("un caf\u00e9", "cafe\u0301"), ("un cafe\u0301", "caf\u00e9")])
def test_given_a_quote_in_the_other_unicode_spelling_when_checked_then_it_is_the_same_word(
    source: str, quote: str
) -> None:
    assert Quotes(["q"]).missing({"t": source}, {"q": quote}) == []


def test_given_rules_and_quotes_when_an_answer_is_checked_then_both_are_told_in_order() -> None:
    check = AnswerCheck({"type": "object"}, rules=Rules(["output.n == 1"]), quotes=Quotes(["q"]))
    assert check.check('{"n":1,"q":"war"}', raw(GIVEN)) == Verdict(b'{"n":1,"q":"war"}')
    assert check.check('{"n":2,"q":"sea"}', raw(GIVEN)) == Verdict(
        b"", "rule 1 `output.n == 1` is false; quote q does not occur in the input"
    )
    assert check.recheck(raw({"n": 1, "q": "farm"}), raw(GIVEN)) == ""
    assert check.recheck(raw({"n": 2, "q": "farm"}), raw(GIVEN)) == "rule 1 `output.n == 1` is false"
    assert AnswerCheck({}).recheck(raw("anything"), raw(GIVEN)) == ""


def test_given_text_without_a_schema_when_judged_by_a_rule_then_the_output_is_the_text() -> None:
    check = AnswerCheck(None, rules=Rules(["output.size() < 6"]))
    assert check.check("short", raw({})) == Verdict(b'"short"')
    assert check.check("too long", raw({})).reason == "rule 1 `output.size() < 6` is false"


@pytest.mark.parametrize("depth", [200, 900, 1000, 5000])
def test_given_an_answer_nested_at_any_depth_when_judged_by_a_rule_then_there_is_a_verdict(depth: int) -> None:
    check = AnswerCheck(None, embeddings=True, rules=Rules(["output == output"]))
    verdict = check.check("[" * depth + "]" * depth, raw({}))
    assert bool(verdict.output) != bool(verdict.reason)


def test_given_a_spec_when_its_check_is_made_then_its_rules_and_quotes_are_in_it() -> None:
    text = b"""name: a
provider: openai
model: m-1
prompt: {user: '{{ t }}'}
output: {schema: {type: object, properties: {q: {type: string}, n: {type: integer}}}}
quality: {rules: ['output.n > 1'], quotes: [q]}
"""
    reason = AnswerCheck.of(parse_spec(text)).check('{"q": "sea", "n": 1}', raw({"t": "war"})).reason
    assert reason == "rule 1 `output.n > 1` is false; quote q does not occur in the input"
