"""Stores a report: report.json for programs and report.html for people."""

from __future__ import annotations

import msgspec

from tallybatch.domain.layout import JobKeys
from tallybatch.ports import Objects
from tallybatch.report.build import Report
from tallybatch.report.page import render


def write_report(objects: Objects, keys: JobKeys, report: Report, *, retention: str = "results") -> None:
    """Replaces the report of an earlier ending; not to be called once a certificate holds the report's hash."""
    body = msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"
    objects.put(keys.report_json, body, content_type="application/json", retention=retention)
    objects.put(keys.report_html, render(report), content_type="text/html; charset=utf-8", retention=retention)
