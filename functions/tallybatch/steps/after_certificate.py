"""What a job may leave under its prefix after its certificate was made: more attempts, and what they run by."""

from __future__ import annotations

import re
from collections.abc import Collection

from tallybatch.domain.certificate import Certificate
from tallybatch.domain.layout import JobKeys

_OF_AN_ATTEMPT = re.compile(
    r"(?P<attempt>[1-9][0-9]*)/("
    r"shards(-[0-9]+-[0-9]+)?\.json|no-shards\.json|sample\.json|canary\.json|approval\.json|acknowledged\.json"
    r"|(open|review)-[0-9a-f]{16}\.jsonl\.zst|publish-[0-9a-f]{16}\.json|closure\.json|judgement\.json"
    r"|review/(decisions\.jsonl|audit\.json)|published/[^/]+\.json"
    r"|[0-9a-f]{64}/(claims\.jsonl\.zst|request\.jsonl|outcomes\.jsonl\.zst|raw/.+))"
)
"""Below `JobKeys.attempts`."""
_OF_A_RUN = re.compile(r"shards/[0-9a-f]{64}\.jsonl\.zst|specs/[0-9a-f]{64}\.yaml|golden/[0-9a-f]{64}\.jsonl")


def unexplained(extra: Collection[str], certificate: Certificate, keys: JobKeys) -> list[str]:
    """Of the objects that are not certified, those that no later attempt of the job can have left. Attempts have no
    gaps, so that one that does not follow on the last has not happened."""
    attempts = {key: int(found["attempt"]) for key in extra if (found := _attempt_of(key, keys)) is not None}
    last = certificate.attempts
    while last + 1 in attempts.values():
        last += 1
    later = {key for key, attempt in attempts.items() if certificate.attempts < attempt <= last}
    if keys.acknowledgement(certificate.attempts) in extra:
        later.add(keys.acknowledgement(certificate.attempts))
    if later:
        later |= {key for key in extra if _OF_A_RUN.fullmatch(key.removeprefix(keys.prefix))}
    return sorted(set(extra) - later)


def _attempt_of(key: str, keys: JobKeys) -> re.Match[str] | None:
    return _OF_AN_ATTEMPT.fullmatch(key.removeprefix(keys.attempts)) if key.startswith(keys.attempts) else None
