"""A file was dropped into the inbox."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import S3Event
from tallybatch.observability import Event, observed
from tallybatch.settings import BuildManifest
from tallybatch.steps import build_manifest


@observed(BuildManifest)
def handler(event: Event, settings: BuildManifest) -> Any:
    return build_manifest.run(S3Event.model_validate(event), wiring.build_manifest_ports(settings))
