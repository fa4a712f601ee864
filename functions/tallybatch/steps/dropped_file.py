"""Discover: a file in the inbox as it is now, and the spec that its key names."""

from __future__ import annotations

from dataclasses import dataclass

from tallybatch.contracts import ObjectCreated
from tallybatch.domain import identity
from tallybatch.domain.errors import BadInput, NotFound, Problem
from tallybatch.domain.layout import InboxKey, spec_key
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec
from tallybatch.ports import ObjectInfo, Objects

DRY_RUN = "dry-run"
"""Value of the metadata key `tallybatch` on a dropped object: prepare and validate only."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A dropped object that exists now, with the spec it is meant for."""

    place: InboxKey
    info: ObjectInfo
    spec: Spec
    spec_bytes: bytes

    @property
    def version(self) -> str:
        return drop_version(self.info)

    @property
    def is_dry(self) -> bool:
        return self.info.intent == DRY_RUN

    @property
    def spec_digest(self) -> str:
        return identity.sha256_hex(self.spec_bytes)


def drop_version(info: ObjectInfo) -> str:
    """The same for each event of one drop, another for the next drop of the same bytes."""
    return info.version_id or f"{info.etag} {info.last_modified}"


def is_stale(dropped: ObjectCreated.Object, info: ObjectInfo) -> bool:
    return bool(dropped.etag) and dropped.etag.strip('"') != info.etag.strip('"')


def read_spec(objects: Objects, place: InboxKey) -> bytes:
    key = spec_key(place.tenant, place.spec)
    try:
        return objects.get(key)
    except NotFound:
        problem = Problem(f"there is no spec at {key}", code="missing_spec", key="spec")
        raise BadInput(
            "no spec for this file", [problem], where=place.key, do=f"put the spec at {key}, then drop the file again"
        ) from None


def parse_spec_of(data: bytes, place: InboxKey) -> Spec:
    file = spec_key(place.tenant, place.spec)
    spec = parse_spec(data, file=file)
    if spec.name != place.spec:
        problem = Problem(f"the spec calls itself {spec.name!r}, its file {place.spec!r}", key="name", code="spec_name")
        raise BadInput("the spec is under another name", [problem], where=file, do="make the two names equal")
    return spec
