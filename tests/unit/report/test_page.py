"""The page: what it says, that it stands alone, and that nothing in a report can break out of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from tallybatch.domain.billing import LINES
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.report import words
from tallybatch.report.build import Report, job_report
from tallybatch.report.page import MOST_ATTEMPTS, MOST_ROWS, render
from tests.support import reports

ALL_KINDS = [reports.completed, reports.partial, reports.failed, reports.refused]
VOID = {"meta", "link", "br", "rect", "path", "circle"}
REFERENCES = {"href", "src", "srcset", "xlink:href", "action", "data", "poster", "formaction", "background"}


class Page(HTMLParser):
    """Reads a page strictly: every element that is opened is closed in its turn."""

    def __init__(self, body: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.feed(body.decode("utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in <{tag}>"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID, f"<{tag}/> closes itself"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.pieces))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(params=ALL_KINDS, ids=lambda make: make.__name__)
def report(request: pytest.FixtureRequest) -> Report:
    made: Report = request.param()
    return made


def test_given_any_report_when_rendered_then_the_page_is_well_formed_and_has_title_and_one_main_heading(
    report: Report,
) -> None:
    page = Page(render(report))
    assert len(page.all("title")) == len(page.all("h1")) == len(page.all("main")) == 1
    assert page.all("html") == [{"lang": "en"}]
    assert report["verdict"] in page.text
    assert f"{report['state']} · film-genre · 2026-03-04" in page.text


def test_given_any_report_when_rendered_then_it_refers_to_nothing_outside_and_runs_no_script(report: Report) -> None:
    body = render(report)
    page = Page(body)
    references = {value for _, attrs in page.tags for name, value in attrs.items() if name in REFERENCES}
    assert references == {"data:,"}
    assert not {tag for tag, _ in page.tags} & {"script", "iframe", "object", "embed", "img", "form", "base", "use"}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert not re.search(rb"https?:|//[a-z]|@import|url\(", body.replace(b"s3:&#x2f;&#x2f;", b""))
    assert b"default-src 'none'" in body


def test_given_any_report_when_rendered_twice_then_the_bytes_are_the_same(report: Report) -> None:
    assert render(report) == render(report)


def test_given_a_report_read_back_from_json_when_rendered_then_the_page_is_the_same(report: Report) -> None:
    assert render(msgspec.json.decode(msgspec.json.encode(report))) == render(report)


def test_given_any_report_when_rendered_then_each_header_cell_has_a_scope_and_each_picture_a_name(
    report: Report,
) -> None:
    page = Page(render(report))
    assert all(header.get("scope") in ("col", "row") for header in page.all("th"))
    assert all(svg.get("aria-label") for svg in page.all("svg") if svg.get("role") == "img")


def test_given_text_that_is_markup_anywhere_when_rendered_then_it_stays_text(report: Report) -> None:
    hostile = "</style><script>alert('x')</script><img src=x onerror=\"alert(1)\">"
    poisoned = _with_every_text(report, hostile)
    body = render(poisoned)
    assert hostile in Page(body).text
    assert b"<script" not in body and b"<img" not in body
    assert {tag for tag, _ in Page(body).tags} <= {tag for tag, _ in Page(render(report)).tags} | {"small", "span", "p"}


def test_given_names_that_are_markup_when_rendered_then_outcomes_and_anomalies_stay_text() -> None:
    name = "<b onclick=x>'\"&"
    sets = reports.closure(
        [reports.entry(1, 0, {name: 3, "succeeded": 1}, anomalies={name: 2}, tokens={name: 5})],
        expected=4,
        succeeded=1,
        failed={name: 3},
    )
    made = job_report(reports.job(), reports.manifest(), sets, state="COMPLETED", results_uri=reports.RESULTS, parts=1)
    body = render(made)
    assert name in Page(body).text
    assert b"<b onclick" not in body
    assert b'class="o-other"' in body


def test_given_control_characters_and_lone_surrogates_when_rendered_then_they_are_shown_by_their_codes() -> None:
    page = Page(render({**reports.completed(), "verdict": "a\x00b\ud800c\u202ed"}))
    assert "a\\u0000b\\ud800c\\u202ed" in page.text


def test_given_a_closed_job_when_rendered_then_its_numbers_are_in_the_page() -> None:
    text = Page(render(reports.completed())).text
    assert "The sets close" in text
    for shown in ("3,201 expected", "3,192 accepted", "120 of them reused", "9 failed", "0 missing", "0 unknown"):
        assert shown in text
    assert "3,145 3,081 in the first attempt, 64 later" in text
    assert "3 retryable, 2 permanent, 2 refused, 2 truncated" in text
    assert "314,500" in text and "2026-03-04T10:35:00Z" in text
    for job_id in ("batch_ghost", "batch_bound"):
        assert job_id in text
    assert "Anomalies: 1 duplicate_same, 1 model_drift" in text
    assert reports.RESULTS in text and f"{reports.JOB_KEY}/certificate.json" in text
    assert "5 submissions" in text and "6 provider jobs" in text


def test_given_a_bill_when_rendered_then_cost_waste_and_what_each_was_for_are_told() -> None:
    lines = [
        {"line": "first_success", "cost_usd": "0.9"},
        {"line": "quality_failure", "cost_usd": "0.3"},
    ]
    bill = {"cost_usd": "1.2", "waste_usd": "0.3", "cost_per_accepted_usd": "0.012", "unpriced": 0, "lines": lines}

    page = Page(render({**reports.completed(), "money": bill}))

    assert "Cost $1.2 of it for no accepted answer $0.3 Per accepted record $0.012" in page.text
    assert "Accepted at the first attempt $0.9" in page.text
    assert "Answered, but failed its checks $0.3" in page.text


def test_given_executions_without_a_price_when_rendered_then_no_sum_is_made_up() -> None:
    bill: dict[str, Any] = {
        "cost_usd": None,
        "waste_usd": None,
        "cost_per_accepted_usd": None,
        "unpriced": 7,
        "lines": [],
    }

    page = Page(render({**reports.completed(), "money": bill}))

    assert "Cost unknown" in page.text and "7 executions that were paid for have no price" in page.text


def test_given_every_line_of_the_bill_when_rendered_then_it_has_words_of_its_own() -> None:
    bill = {"cost_usd": "9", "lines": [{"line": line, "cost_usd": "1"} for line in LINES]}

    text = Page(render({**reports.completed(), "money": bill})).text

    assert not [line for line in LINES if line in text]


def test_given_an_open_job_when_rendered_then_the_gaps_stand_out() -> None:
    body = render(reports.partial())
    text = Page(body).text
    assert b'class="banner warn"' in body and "Partial: not closed PARTIAL" in text
    assert "The sets do not close" in text and "≠" in text
    assert "✗ 3 unknown" in text and "✗ 1,601 open" in text and "✓ 0 missing" in text
    assert "1,601 records · 2 h 29 min so far" in text
    assert "RUNNING" in text and "quarantine/" in text


def test_given_a_failed_job_when_rendered_then_reason_and_refusals_are_there_and_nothing_says_closed() -> None:
    body = render(reports.failed())
    text = Page(body).text
    assert b'class="banner bad"' in body
    assert "the provider refused every shard" in text and "Refused: no key" in text
    assert "The sets close" not in text
    assert "Timeline" not in text


def test_given_refused_input_when_rendered_then_codes_lines_and_the_full_list_are_there() -> None:
    text = Page(render(reports.refused())).text
    assert "Refused FAILED" in text and "Nothing was spent" in text
    assert "1,284 problems in" in text and "bad_json 1,000" in text and "missing_field 284" in text
    assert "The first 3 of 1,284" in text
    assert "film-2 not JSON <b>2</b>" in text
    assert f"{reports.JOB_KEY}/bad_lines.jsonl" in text
    assert "From expected to published" not in text and "The sets" not in text


@pytest.mark.parametrize(("problems", "folded"), [(20, 0), (21, 1)])
def test_given_many_bad_lines_when_rendered_then_they_are_folded(problems: int, folded: int) -> None:
    assert len(Page(render(reports.refused(problems=problems))).all("details")) == folded


def test_given_only_the_head_of_a_report_when_rendered_then_there_is_a_page() -> None:
    page = Page(render({"job_key": "k", "state": "EXPIRED", "verdict": "The deadline passed."}))
    assert "Expired" in page.text and "The deadline passed." in page.text


def test_given_5000_submissions_when_rendered_then_the_page_stays_small_and_says_what_it_leaves_out() -> None:
    ordinary = [reports.entry(1, number, {"succeeded": 9990, "retryable": 10}) for number in range(4999)]
    odd = reports.entry(1, 4999, {"permanent": 9000}, refusal="the odd one", provider_jobs=(), submitted_at=0)
    sets = reports.closure([*ordinary, odd], expected=50_000_000, succeeded=49_941_010, failed={"permanent": 58_990})
    made = job_report(reports.job(), reports.manifest(), sets, state="COMPLETED", results_uri=reports.RESULTS, parts=9)
    body = render(made)
    page = Page(body)
    assert len(body) < 3_000_000
    assert f"{MOST_ROWS} are shown" in page.text and "4,500 more are in report.json" in page.text
    assert body.count(b'data-label="Provider jobs"') == MOST_ROWS
    assert "the odd one" in page.text
    assert "4,999 submissions, at most" in page.text and "1 never reached the provider" in page.text


def test_given_hundreds_of_attempts_when_rendered_then_the_first_and_the_last_are_shown() -> None:
    submissions = [reports.entry(number, 0, {"waiting": 5}) for number in range(1, 301)]
    sets = reports.closure(submissions, expected=5, open=5, waiting=5, overdue=True)
    made = job_report(reports.job(), reports.manifest(), sets, state="PARTIAL", results_uri="", parts=0)
    text = Page(render(made)).text
    assert f"{300 - MOST_ATTEMPTS} attempts in between are in report.json" in text
    assert "Attempt 1 5 records" in text and "Attempt 300 5 records" in text and "Attempt 150 5 records" not in text


def test_given_any_outcomes_when_drawn_then_the_parts_fill_the_bar_in_order() -> None:
    counts = {outcome.value: 1 for outcome in OutcomeClass} | {"succeeded": 1_000_000}
    sets = reports.closure([reports.entry(1, 0, counts)], expected=1, succeeded=1)
    made = job_report(reports.job(), reports.manifest(), sets, state="COMPLETED", results_uri=reports.RESULTS, parts=1)
    body = render(made).decode()
    bar = re.search(r'aria-label="Outcomes of attempt 1".*?</svg>', body, re.DOTALL)
    assert bar is not None
    spans = [(float(x), float(width)) for x, width in re.findall(r'x="([\d.]+)%" width="([\d.]+)%"', bar[0])]
    assert len(spans) == len(OutcomeClass)
    edge = 0.0
    for x, width in spans:
        assert abs(x - edge) < 0.01 and width >= 0.3
        edge = x + width
    assert abs(edge - 100) < 0.01


def test_given_every_outcome_class_when_styled_then_it_has_a_colour_of_its_own() -> None:
    style = (files("tallybatch.report") / "page.css").read_text(encoding="utf-8")
    for outcome in OutcomeClass:
        assert f".o-{outcome.value} {{ fill: var(--{outcome.value}); }}" in style


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        *((ink, paper) for ink in ("ink", "soft", "accent", "good", "bad", "warn") for paper in ("card", "bg")),
        *((ink, f"{tone}-bg") for tone in ("good", "warn", "bad") for ink in ("ink", tone)),
    ],
)
def test_given_either_theme_when_read_then_text_has_the_contrast_of_wcag_aa(theme: int, ink: str, paper: str) -> None:
    style = (files("tallybatch.report") / "page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[: theme + 1]
    colours = {name: value for block in blocks for name, value in re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)}
    light, dark = sorted((_luminance(colours[ink]), _luminance(colours[paper])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, ""), (1772620500.9, "2026-03-04T10:35:00Z"), (1e30, ""), ("x", ""), (None, "")],
)
def test_given_unix_seconds_when_written_then_they_are_utc_iso(value: Any, shown: str) -> None:
    assert words.moment(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7260, "2 h 01 min"),
        (180000, "2 d 2 h"),
    ],
)
def test_given_seconds_when_written_then_the_two_largest_units_are_named(seconds: float, shown: str) -> None:
    assert words.duration(seconds) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 100_000, "< 0.1 %"),
        (99_999, 100_000, "> 99.9 %"),
        (1, 3, "33.3 %"),
        (1, 0, ""),
    ],
)
def test_given_a_share_when_written_then_it_never_rounds_to_all_or_nothing(part: int, whole: int, shown: str) -> None:
    assert words.share(part, whole) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (999, "999 B"), (1483920, "1.5 MB"), (5 * 10**15, "5,000.0 TB")]
)
def test_given_bytes_when_written_then_they_are_in_decimal_units(count: int, shown: str) -> None:
    assert words.size(count) == shown


def _with_every_text(value: Any, text: str, key: str = "") -> Any:
    """The report with `text` for every string but the state, which selects the colour."""
    if isinstance(value, dict):
        return {name: _with_every_text(one, text, name) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_every_text(one, text) for one in value]
    return text if isinstance(value, str) and key != "state" else value


def _luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
