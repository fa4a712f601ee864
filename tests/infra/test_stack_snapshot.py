"""The whole template, so that no change of the infrastructure goes unseen: `pytest --snapshot-update` accepts one."""

from __future__ import annotations

import json
import re
from typing import Any

from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension


def test_the_template_is_the_one_reviewed(template: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    masked = re.sub(r"\b[0-9a-f]{64}\b", "<asset>", json.dumps(template))
    assert json.loads(masked) == snapshot.use_extension(JSONSnapshotExtension)
