"""The walk through the provider's job list for one marker: the list has no filter and no order parameter.

Newest first is only what was observed, so the walk ends on a page on which every job is too old, not at the first.
"""

from __future__ import annotations

from collections.abc import Callable

from tallybatch.adapters.providers.openai.jobs import Page, read_job
from tallybatch.ports import ProviderJob, Search

PAGE_SIZE = 100
"""The most a page holds (SDK, batch_list_params.py)."""
CLOCK_MARGIN_S = 900
"""How far the provider's clock may be behind ours without hiding a job."""
MAX_PAGES = 300
"""30,000 jobs: 15 hours at the creation limit of 2,000 an hour."""
MAX_WALK_S = 120
EMPTY_PAGE_LOOKS = 3


def search(
    page_after: Callable[[str], Page],
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
        jobs: list[ProviderJob] = []
        for raw in page.data:
            try:
                jobs.append(read_job(bytes(raw)))
            except (ValueError, RecursionError):
                readable = False
        seen.update(job.id for job in jobs)
        found.update((job.id, job) for job in jobs if job.marker and marker in ("", job.marker))
        too_old = bool(jobs) and all(0 < job.created_at < oldest for job in jobs)
        if too_old or not page.has_more:
            return Search(tuple(found.values()), len(seen), pages, readable)
        following = (jobs[-1].id if jobs else "") or page.last_id or ""
        if following not in cursors:
            cursors.add(following)
            cursor = following
            continue
        empty += 1
        if empty == EMPTY_PAGE_LOOKS:
            break
        sleep(empty)
    return Search(tuple(found.values()), len(seen), pages, False)
