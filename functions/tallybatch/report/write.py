"""Stores a report: report.json for programs and report.html for people, once."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from tallybatch.domain.errors import Conflict
from tallybatch.domain.layout import JobKeys
from tallybatch.ports import Objects
from tallybatch.report.build import Report
from tallybatch.report.page import render


def write_report(objects: Objects, keys: JobKeys, report: Report) -> None:
    """The first report of a final state stays."""
    body = msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"
    with suppress(Conflict):
        objects.put_once(keys.report_json, body, content_type="application/json", retention="results")
    with suppress(Conflict):
        objects.put_once(keys.report_html, render(report), content_type="text/html", retention="results")
