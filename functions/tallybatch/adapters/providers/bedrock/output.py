"""Where Bedrock writes: `<output>/<job id>/<input name>.out` for each input file, and `manifest.json.out`.

Get tells the prefix, not the files (BerriAI/litellm#26834): they are found by listing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from tallybatch.domain.errors import NotFound, ProviderUnavailable, ResultsGone, Retryable
from tallybatch.domain.lines import CHUNK_BYTES
from tallybatch.ports import Objects

MANIFEST = "manifest.json.out"
MANIFEST_CHANNEL = "meta-manifest"
"""A channel that is kept and holds no records."""
_SUFFIX = ".out"


def channels(objects: Objects, output_uri: str) -> dict[str, str]:
    """Channel name to S3 key: `output-0`, `output-1`, … in key order, and the manifest if it is there."""
    root = objects.uri("")
    if not output_uri.startswith(root):
        return {}
    found: dict[str, str] = {}
    number = 0
    for info in objects.list(output_uri.removeprefix(root)):
        if info.key.rpartition("/")[2] == MANIFEST:
            found[MANIFEST_CHANNEL] = info.key
        elif info.key.endswith(_SUFFIX):
            found[f"output-{number}"] = info.key
            number += 1
    return found


def stream(objects: Objects, key: str) -> Iterator[bytes]:
    """The object's bytes, complete; a read that breaks goes on where it was. Raises `ResultsGone` if it is not there,
    `ProviderUnavailable` if it cannot be read now."""
    where = objects.uri(key)
    try:
        with objects.open(key) as body:
            yield from _chunks(body)
    except NotFound:
        raise ResultsGone("Bedrock's output is no longer there", where=where, do="its records run again") from None
    except Retryable as error:
        raise ProviderUnavailable("the output could not be read", where=where, why=error.what, do="repeat it") from None


def _chunks(body: BinaryIO) -> Iterator[bytes]:
    while chunk := body.read(CHUNK_BYTES):
        yield chunk
