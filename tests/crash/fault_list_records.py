"""The faults of single records, and of the lines that carry them."""

from __future__ import annotations

from typing import Any

from tests.support.bedrock import CLAUDE
from tests.support.fault_run import Ending, Fault

HIT = "Film-007."

NOBODY = {"sections": "review: {classes: []}"}
_AGAIN = Ending(told={"retryable > succeeded": 1}, attempts=2, jobs=2)
_MISSING = Ending(told={"missing > succeeded": 1}, attempts=2, jobs=2)
_UNTOUCHED = Ending()


def _record(
    fault: str, wrong: str, ending: Ending = _UNTOUCHED, *, name: str = "", times: Any = 1, **more: Any
) -> Fault:
    rule = {"fault": fault, "contains": HIT, "times": times}
    name = name or fault.replace("_", "-")
    return Fault(name=f"record-{name}", wrong=wrong, scenario={"records": [rule]}, ending=ending, **more)


def _always(outcome: str, *, attempts: int = 1, **more: Any) -> Ending:
    return Ending(told={" > ".join([outcome] * attempts): 1}, attempts=attempts, jobs=attempts, **more)


RECORD = (
    _record(
        "error_400",
        "a row's request is refused",
        _always("permanent", code="context_length_exceeded"),
        times="always",
        on={"bedrock": _always("permanent", code="400"), "gemini": _always("permanent", code="INVALID_ARGUMENT")},
    ),
    _record("error_429", "a row meets a rate limit, once", _AGAIN),
    _record("error_500", "a row meets HTTP 500, once", _AGAIN),
    _record(
        "error_500",
        "a row meets HTTP 500 in every attempt",
        _always("retryable", attempts=3),
        name="error-500-always",
        times="always",
    ),
    _record("error_503", "a row meets HTTP 503, once", _AGAIN),
    _record("error_in_body", "HTTP 200, and the body is an error", _AGAIN),
    _record("status_zero", "a row has status_code 0", _AGAIN),
    _record("null_response", "a row has no response and no error", _AGAIN),
    _record("missing", "a row is in no file, once", _MISSING),
    _record(
        "missing",
        "a row is in no file in any attempt",
        _always("missing", attempts=3),
        name="missing-always",
        times="always",
    ),
    _record("refusal", "the model refuses", _always("refused"), times="always"),
    _record("content_filter", "a filter blocks the answer", _always("refused"), times="always"),
    _record("length", "the answer stops at its length", _always("truncated")),
    _record("bad_json", "the answer is no JSON, once", Ending(told={"unqualified > succeeded": 1}, attempts=2, jobs=2)),
    _record("fenced_json", "the answer is JSON in a code block", Ending(notes=("fenced_json",))),
    _record(
        "bad_schema",
        "the answer breaks the schema, once",
        Ending(told={"unqualified > succeeded": 1}, attempts=2, jobs=2),
    ),
    _record(
        "bad_schema",
        "the answer breaks the schema in every attempt",
        _always("unqualified", attempts=3),
        name="bad-schema-always",
        times="always",
    ),
    *(
        _record(
            "wrong_model",
            "another version of the model answers",
            Ending(anomalies={"model_drift": 1}, notes=("model_drift",)),
            name=name,
            providers=(provider,),
            spec=changed,
        )
        for name, provider, changed in (
            ("wrong-model", "openai", {}),
            ("wrong-model-gemini", "gemini", {}),
            (
                "wrong-model-claude",
                "bedrock",
                {"model": CLAUDE, "endpoint": "InvokeModel"},
            ),
        )
    ),
    _record("body_as_string", "the body is JSON inside a string"),
    _record("no_error_key", "the line has no `error` key", providers=("openai",)),
    _record("u2028", "U+2028 and U+0085 inside a string", Ending(other_answers=1)),
)

LINES = (
    Fault(name="shuffled", wrong="the lines come in another order", scenario={}),
    _record("duplicate_same", "a line comes twice", Ending(anomalies={"duplicate_same": 1}, notes=("duplicate_same",))),
    _record(
        "duplicate_different",
        "two different answers for one id: people decide",
        Ending(state="PARTIAL", told={"conflict": 1}, reason="1", anomalies={"conflict": 1}, notes=("conflict",)),
    ),
    _record(
        "duplicate_different",
        "two different answers for one id, once, and the spec has nobody to ask",
        Ending(told={"conflict > succeeded": 1}, attempts=2, jobs=2, anomalies={"conflict": 1}, notes=("conflict",)),
        name="duplicate-different-again",
        spec=NOBODY,
    ),
    _record(
        "duplicate_different",
        "two different answers for one id in every attempt, and the spec has nobody to ask",
        _always("conflict", attempts=3, anomalies={"conflict": 3}, notes=("conflict",)),
        name="duplicate-different-always",
        times="always",
        spec=NOBODY,
    ),
    _record(
        "success_and_error",
        "an answer and an error for one id",
        Ending(anomalies={"success_and_error": 1}, notes=("success_and_error",)),
    ),
    _record(
        "unknown_id",
        "a line for an id that nobody asked for",
        Ending(state="PARTIAL", reason="1", anomalies={"unknown": 1}),
        on={"bedrock": Ending(state="PARTIAL", reason="1", anomalies={"unknown": 1})},
    ),
    _record("swapped_id", "two lines have each other's id: nothing shows it", Ending(other_answers=2)),
    _record(
        "truncated_last_line",
        "the last line is cut",
        Ending(
            told={"missing > succeeded": 1},
            attempts=2,
            jobs=2,
            anomalies={"unparsable": 1, "counts_disagree": 1},
            unread_lines=1,
        ),
    ),
    _record("garbage_line", "a gateway's HTML between the lines", Ending(anomalies={"unparsable": 1})),
    _record("bom", "the file begins with a BOM"),
    _record("crlf", "a line ends with CRLF"),
    _record("blank_lines", "blank lines between the lines"),
)
