"""The key of the job that a file will become, or has become, by preparing it here as the pipeline does."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

from tallybatch.domain.identity import input_manifest_hash, job_key
from tallybatch.domain.input_lines import MAX_LINE_BYTES
from tallybatch.domain.lines import newline_blocks
from tallybatch.domain.preparation import Preparation, Quarantine, prepare
from tallybatch.domain.shards import ShardLimits
from tallybatch.domain.source_stream import SourceStream
from tallybatch.domain.spec import Spec
from tallybatch.steps.build_manifest import record_reader
from tallybatch.steps.even_shards import evened
from tallybatch.wiring import formats


def predicted_job_key(file: Path, spec: Spec, tenant: str, dataset_version: str) -> str:
    """ "" for a file that will be refused. Reads the file once (about 15 CPU-s per million records), or twice if bad
    lines are to be left out; another release of the pipeline may give another key."""
    with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
        prepared = prepared_file(file, spec, tenant, Path(folder))
        if prepared.bad_count:
            if spec.input.on_bad_line != "quarantine" or prepared.unusable:
                return ""
            second = Path(folder) / "good"
            second.mkdir()
            with closing(Quarantine(prepared, second)) as quarantine:
                prepared = prepared_file(file, spec, tenant, second, quarantine)
        if prepared.bad_count or not prepared.records:
            return ""
        shards = evened(prepared.shards, spec, Path(folder), formats)
        return job_key(
            tenant=tenant,
            dataset_version=dataset_version,
            input_manifest_hash=input_manifest_hash(shard.sha256 for shard in shards),
            model_resolved=spec.model_resolved,
            prompt_version=spec.prompt_version,
            generation_config_hash=spec.generation_config_hash,
        )


def prepared_file(
    file: Path,
    spec: Spec,
    tenant: str,
    folder: Path,
    quarantine: Quarantine | None = None,
    *,
    keep_bad: bool = False,
) -> Preparation:
    """A local file, prepared as the pipeline prepares what is dropped. `keep_bad` notes the bad lines for a second pass
    without them, also where the spec refuses the whole file for one."""
    with file.open("rb") as stream:
        source = SourceStream(stream, gzipped=file.name.endswith(".gz"))
        return prepare(
            newline_blocks(source.chunks(), cut_at=MAX_LINE_BYTES),
            reader=record_reader(spec, tenant, formats),
            limits=ShardLimits(spec.shards.max_records, spec.shards.max_bytes),
            folder=folder,
            quarantine=quarantine,
            keep_raw=keep_bad or spec.input.on_bad_line == "quarantine",
        )
