"""The walk through a provider's job list for one marker: the lists have no filter and no order parameter.

Newest first is only what was observed, so the walk ends on a page on which every job is too old, not at the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tallybatch.ports import ProviderJob, Search

CLOCK_MARGIN_S = 900
"""How far the provider's clock may be behind ours without hiding a job."""
MAX_PAGES = 300
MAX_WALK_S = 120
EMPTY_PAGE_LOOKS = 3
_MARKER = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a job list. `following` is the cursor of the next one, "" if the page names none although there is
    `more`; `readable` is False if an item could not be read."""

    jobs: tuple[ProviderJob, ...]
    following: str
    more: bool
    readable: bool = True


def read_items(items: Iterable[bytes], read_job: Callable[[bytes], ProviderJob]) -> tuple[list[ProviderJob], bool]:
    """The jobs that can be read, and whether all could."""
    jobs: list[ProviderJob] = []
    readable = True
    for raw in items:
        try:
            jobs.append(read_job(raw))
        except (ValueError, RecursionError):
            readable = False
    return jobs, readable


def carries(found: str, marker: str) -> bool:
    """Whether a job's marker is the one looked for; "" looks for any."""
    return found == marker if marker else bool(found)


def is_marker(name: str) -> bool:
    """Whether a name of general use can be a marker of ours: 64 hex digits."""
    return bool(_MARKER.fullmatch(name))


def search(
    page_after: Callable[[str], ListPage],
    marker: str,
    *,
    since: float,
    sleep: Callable[[float], None],
    monotonic: Callable[[], float],
) -> Search:
    """All jobs that carry `marker` ("": any marker of ours), created after `since` (Unix seconds) less a margin.

    `complete` is False when the walk was cut short: by its bound of pages or time, by a page that promised more and
    gave no way on, or by an item that could not be read. Then an empty result proves nothing. Pages that shift while
    new jobs arrive only show a job twice, which counts once.
    """
    oldest = since - CLOCK_MARGIN_S
    end = monotonic() + MAX_WALK_S
    found: dict[str, ProviderJob] = {}
    seen: set[str] = set()
    cursors = {""}
    cursor = ""
    readable = True
    pages = empty = 0
    while pages < MAX_PAGES and monotonic() < end:
        page = page_after(cursor)
        pages += 1
        readable = readable and page.readable
        seen.update(job.id for job in page.jobs)
        found.update((job.id, job) for job in page.jobs if carries(job.marker, marker))
        too_old = bool(page.jobs) and all(0 < job.created_at < oldest for job in page.jobs)
        if too_old or not page.more:
            return Search(tuple(found.values()), len(seen), pages, readable)
        if page.following not in cursors:
            cursors.add(page.following)
            cursor = page.following
            continue
        empty += 1
        if empty == EMPTY_PAGE_LOOKS:
            break
        sleep(empty)
    return Search(tuple(found.values()), len(seen), pages, False)
