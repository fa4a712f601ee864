"""The operator's command on a stack in memory: what it uploads is prepared and run by the real steps while it waits."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tallybatch.cli.main import app
from tallybatch.cli.stack import Connection, Place, Target
from tallybatch.contracts import BackfillRequest, ReviewRequest
from tallybatch.domain.rows import Job
from tallybatch.ports import Ledger
from tallybatch.steps import discover_backfill
from tests.support.pipeline import Pipeline, s3_event

SPEC = """\
name: genre
provider: openai
model: gpt-5-mini-2025-08-07
input: {key: id, fields: [title]}
prompt: {version: v1, user: "Title: {{ title }}"}
output:
  schema:
    type: object
    additionalProperties: false
    required: [genre]
    properties: {genre: {type: string}}
retry: {backoff: 1m}
"""


def films(count: int, start: int = 1) -> bytes:
    return b"".join(
        json.dumps({"id": f"film-{n}", "title": f"Film {n}"}).encode() + b"\n" for n in range(start, start + count)
    )


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which must be exactly one JSON document."""
        return json.loads(self.out)


@dataclass
class Operator:
    """`world` is what happens elsewhere, one thing for each time the command sleeps."""

    pipeline: Pipeline
    world: deque[Callable[[], object]] = field(default_factory=deque)
    targets: list[Target] = field(default_factory=list)
    ledger: Ledger | None = None
    """Instead of the pipeline's own."""

    def run(self, *args: str | Path, env: Mapping[str, str] | None = None) -> Said:
        done = CliRunner().invoke(app, [str(arg) for arg in args], obj=self._connect, env=env, prog_name="tallybatch")
        return Said(done.exit_code, done.stdout, done.stderr)

    def completed(self, count: int = 5, *, spec: str = SPEC, **where: str) -> Job:
        self.pipeline.push_spec(spec)
        return self.pipeline.run(films(count), **where)

    def _connect(self, target: Target) -> Connection:
        self.targets.append(target)
        return Connection(
            place=Place(target.stack or "Memory", "http://127.0.0.1:1"),
            objects=self.pipeline.objects,
            ledger=self.ledger or self.pipeline.ledger,
            upload=self._upload,
            invoke=self._invoke,
            clock=self.pipeline.clock,
            sleep=self._sleep,
            tokens=self.pipeline.tokens,
            who=lambda: "ada",
        )

    def _upload(self, path: Path, key: str, moved: Callable[[int], object], intent: str) -> None:
        body = path.read_bytes()
        self.pipeline.objects.write_as_user(key, body, intent=intent)
        moved(len(body))
        self.world.append(lambda: self._arrive(key))

    def _arrive(self, key: str) -> None:
        reply = self.pipeline.build(s3_event(key))
        if reply["state"] in ("CREATED", "VALIDATED") and not reply.get("dry_run"):
            tenant = key.split("/")[1]
            self.world.append(lambda: self.pipeline.execute(reply["job_key"], tenant=tenant))

    def _invoke(self, output: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        if output == "SweepFunction":
            return self.pipeline.sweep(**payload).model_dump()
        if output == "ResumeJobFunction":
            return self._then_run(self.pipeline.resume(**payload).model_dump())
        if output == "ResolveReviewFunction":
            return self._then_run(self.pipeline.resolve(ReviewRequest.model_validate(payload)).model_dump())
        assert output == "DiscoverBackfillFunction"
        objects, clock = self.pipeline.objects, self.pipeline.clock
        ports = discover_backfill.Ports(objects, lambda _: objects, self.pipeline.ledger, clock)
        return discover_backfill.run(BackfillRequest.model_validate(payload), ports).model_dump()

    def _then_run(self, reply: dict[str, Any]) -> dict[str, Any]:
        if reply["state"] == "VALIDATED":
            self.world.append(lambda: self.pipeline.run_again(reply["job_key"]))
        return reply

    def _sleep(self, seconds: float) -> None:
        self.pipeline.clock.advance(seconds)
        if self.world:
            self.world.popleft()()
