"""What a job leaves behind of its file: a step that the report names."""

from __future__ import annotations

from tallybatch.domain.manifest import Manifest


def left_out(manifest: Manifest) -> list[str]:
    """With `on_bad_line: quarantine` a job closes without its bad lines, and nothing else would tell."""
    lines = manifest.source.quarantined_lines
    if not lines:
        return []
    what = "1 bad line of the file is" if lines == 1 else f"{lines:,} bad lines of the file are"
    return [f"{what} no part of this job: mend what `bad_lines.jsonl` names and drop that as a file of its own."]
