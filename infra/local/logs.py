"""What the local stack wrote: its processes' log files and the functions' log groups, as lines of one stream."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from infra.local.loopback import Aws
from infra.local.stack import STATE_DIR, status
from infra.local.state import StateDir
from tallybatch.domain.errors import NotFound

GROUP_PREFIX = "/aws/lambda/"


@dataclass(frozen=True, slots=True)
class Line:
    """`source` is emulator, simulator, synth, or a function's name."""

    source: str
    text: str


@dataclass(slots=True)
class _Reader:
    """Remembers how far each source was read; a second call of `new` gives only what was added."""

    directory: Path
    offsets: dict[Path, int] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def new(self, endpoint_url: str | None) -> Iterator[Line]:
        for path in sorted(self.directory.glob("*.log")):
            yield from self._file(path)
        if endpoint_url:
            yield from self._functions(Aws(endpoint_url))

    def _file(self, path: Path) -> Iterator[Line]:
        with path.open("rb") as handle:
            start = self.offsets.get(path, 0)
            handle.seek(start if start <= path.stat().st_size else 0)
            whole, newline, _ = handle.read().rpartition(b"\n")
            self.offsets[path] = start + len(whole) + len(newline)
        for line in whole.decode(errors="replace").split("\n") if newline else []:
            yield Line(path.stem, line)

    def _functions(self, aws: Aws) -> Iterator[Line]:
        """The emulator's events have no id: a stream is only appended to, so what counts is how many were seen."""
        new: list[tuple[int, str, str]] = []
        try:
            for page in aws.logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=GROUP_PREFIX):
                for group in (each["logGroupName"] for each in page["logGroups"]):
                    new += self._group(aws, group)
        except (ClientError, BotoCoreError):
            return
        for _, group, message in sorted(new, key=lambda event: event[0]):
            for text in message.rstrip("\n").split("\n"):
                yield Line(group.removeprefix(GROUP_PREFIX), text)

    def _group(self, aws: Aws, group: str) -> Iterator[tuple[int, str, str]]:
        passed: Counter[str] = Counter()
        for page in aws.logs.get_paginator("filter_log_events").paginate(logGroupName=group):
            for event in page["events"]:
                stream = f"{group} {event['logStreamName']}"
                passed[stream] += 1
                if passed[stream] > self.seen[stream]:
                    yield event["timestamp"], group, event["message"]
        self.seen |= passed


def logs(state_dir: Path = STATE_DIR, *, follow: bool = False, pause_s: float = 1) -> Iterator[Line]:
    """All lines so far; with `follow`, new ones until the caller stops. Raises `NotFound` if nothing ever ran."""
    where = StateDir(Path(state_dir).resolve())
    if not where.logs.is_dir():
        raise NotFound("the local stack has no logs", where=str(where.root), do="start it with `tallybatch local up`")
    reader = _Reader(where.logs)
    while True:
        yield from reader.new(status(state_dir).endpoint_url)
        if not follow:
            return
        time.sleep(pause_s)
