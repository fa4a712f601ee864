"""What happens in `Validating`: the role's access, names, JSON, and the quotas of records and sizes.

It does not look into `modelInput`: what is wrong there becomes an error of the record. Message texts are ours; the
service documents none.
"""

from __future__ import annotations

import orjson

from infra.local.simulator.bedrock.execution import InputFile
from infra.local.simulator.bedrock.model import Json
from infra.local.simulator.scenario import Limits
from infra.local.simulator.store import Store
from tallybatch.domain.errors import NotFound

MESSAGES = {
    "below_minimum": "The job contains less records (1) than the required minimum of: 100",
    "above_maximum": "The job contains more records than the maximum of: 50000",
    "access_denied": "The provided role could not access the input location: permission denied.",
    "invalid_input": "A line of the input file is not a valid JSON object.",
}
"""By the argument of `fail_validation`; any other argument is itself the message."""


class ValidationFailed(Exception):
    """The job ends as Failed with this message."""


def bucket_and_key(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def read_input(store: Store, uri: str, limits: Limits) -> list[InputFile]:
    """The files at an object's or a prefix's URI. Raises `ValidationFailed`."""
    bucket, key = bucket_and_key(uri)
    try:
        keys = [name for name in store.keys(bucket, key) if name.endswith(".jsonl")]
        bodies = [(name, store.get(bucket, name)) for name in keys]
    except NotFound:
        raise ValidationFailed(MESSAGES["access_denied"]) from None
    if not bodies:
        raise ValidationFailed(f"No .jsonl object at {uri}, or no permission to access it.")
    files = [InputFile(_below(name, key), _records(body, limits)) for name, body in bodies]
    count = sum(len(file.records) for file in files)
    if count < limits.min_records:
        raise ValidationFailed(
            f"The job contains less records ({count}) than the required minimum of: {limits.min_records}"
        )
    if count > limits.max_requests:
        raise ValidationFailed(f"The job contains more records ({count}) than the maximum of: {limits.max_requests}")
    return files


def _below(name: str, key: str) -> str:
    prefix = key if key.endswith("/") else key.rpartition("/")[0] + "/" if "/" in key else ""
    return name.removeprefix(prefix)


def _records(body: bytes, limits: Limits) -> list[Json]:
    if len(body) > limits.max_bedrock_bytes:
        raise ValidationFailed(f"The input file exceeds the maximum of {limits.max_bedrock_bytes} bytes.")
    records = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise ValidationFailed(f"Line {number} of the input file is not valid JSON.") from None
        if not isinstance(record, dict) or not isinstance(record.get("modelInput"), dict):
            raise ValidationFailed(f"Line {number} of the input file is not in the JSON format that is asked for.")
        records.append(record)
    return records
