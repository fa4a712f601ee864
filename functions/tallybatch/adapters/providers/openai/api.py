"""Calls to the OpenAI Batch API through the official SDK, which is imported on first use.

Only `create` may not be repeated: the SDK's own retry of a lost reply would make a second paid job (measured with its
default of two retries against a server that creates and then answers 500: three jobs). It has no idempotency key; the
marker in `metadata` and a walk through the job list replace one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from tallybatch.adapters.providers.common import download, walk
from tallybatch.adapters.providers.common.failures import create_unknown, is_api_answer
from tallybatch.adapters.providers.common.replies import NoSuchJob, created_job, not_its_own, present_or_gone, read
from tallybatch.adapters.providers.openai import jobs
from tallybatch.adapters.providers.openai.download import OpenAIFile
from tallybatch.adapters.providers.openai.failures import call_failure, create_failure
from tallybatch.adapters.providers.openai.jobs import MARKER
from tallybatch.domain.errors import Permanent, ProviderUnavailable, TallybatchError
from tallybatch.ports import ProviderJob, Search

if TYPE_CHECKING:
    import openai

PAGE_SIZE = 100
"""The most a page of the job list holds (SDK, batch_list_params.py)."""

_NAME = "OpenAI"
_read = partial(read, _NAME)


class _Uploaded(msgspec.Struct):
    id: str
    status: str | None = None


class _Deleted(msgspec.Struct):
    deleted: bool = False


_uploaded = msgspec.json.Decoder(_Uploaded).decode
_deleted = msgspec.json.Decoder(_Deleted).decode


class OpenAIApi:
    """`ports.ProviderApi`. `api_key` is called before each request and may read a secret.

    Without `base_url` the SDK's own variable OPENAI_BASE_URL is honoured. Every call but `create` is repeated twice by
    the SDK on timeouts, 408, 409, 429 and 5xx. Timeouts are seconds, for each of connect, read and write.
    """

    name = "openai"
    create_is_idempotent = False
    """No idempotency header is documented, and the SDK sends none (_base_client.py)."""
    keeps_files = True

    def __init__(
        self,
        api_key: Callable[[], str],
        *,
        base_url: str | None = None,
        timeout_s: float = 60,
        create_timeout_s: float = 60,
        upload_timeout_s: float = 300,
        max_retries: int = 2,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._create_timeout_s = create_timeout_s
        self._upload_timeout_s = upload_timeout_s
        self._max_retries = max_retries
        self._sleep = sleep
        self._monotonic = monotonic

    def upload(self, filename: str, body: BinaryIO, *, uri: str = "") -> str:
        """Send an input file; returns its id. A repeated upload leaves an unused file, nothing worse.

        `filename` should carry the submission_key. `body` is streamed; the SDK's retries need it to be seekable.
        Raises `ProviderUnavailable`, `ProviderRefused`.
        """
        del uri
        where = "OpenAI upload"
        with _repeatable(where):
            client = self._client.with_options(timeout=self._upload_timeout_s)
            reply = client.files.with_raw_response.create(file=(filename, body), purpose="batch")
            uploaded = _read(reply.content, _uploaded, where)
        if not uploaded.id or uploaded.status == "error":
            raise ProviderUnavailable("OpenAI did not take the file", where=where, do="repeat the call later")
        return uploaded.id

    def create(
        self,
        *,
        submission_key: str,
        file_id: str,
        endpoint: str,
        model: str = "",
        output_uri: str = "",
        deadline_s: float = 0,
    ) -> ProviderJob:
        """Send create exactly once. See `failures.create_failure` for what is raised when.

        The completion window is 24 hours, the only one there is. OpenAI reads the model from the lines and keeps its
        output itself, so the other arguments say nothing here.
        """
        del model, output_uri, deadline_s
        import openai

        where = f"OpenAI create for {submission_key}"
        self._key()
        try:
            reply = self._client.with_options(
                max_retries=0, timeout=self._create_timeout_s
            ).batches.with_raw_response.create(
                completion_window="24h",
                endpoint=cast("Any", endpoint),
                input_file_id=file_id,
                metadata={MARKER: submission_key},
            )
            raw = reply.content
        except openai.APIError as error:
            raise create_failure(error, where) from None
        except TallybatchError:
            raise
        except Exception as error:
            raise create_unknown(where, type(error).__name__) from None
        return created_job(raw, jobs.read_job, submission_key=submission_key, where=where)

    def find(self, submission_key: str, *, since: float) -> Search:
        """Walk the job list for the marker; see `walk.search`. Raises `ProviderUnavailable`, `ProviderRefused`."""
        return walk.search(self._page, submission_key, since=since, sleep=self._sleep, monotonic=self._monotonic)

    def get(self, provider_job_id: str) -> ProviderJob:
        """The job's present state. GONE after the API itself has answered 404 three times, seconds apart; a 404 from
        anything else (a gateway) is `ProviderUnavailable`."""
        return present_or_gone(
            provider_job_id, lambda: self._read_job(provider_job_id), raw_state="not_found", sleep=self._sleep
        )

    def cancel(self, provider_job_id: str) -> ProviderJob:
        """Ask for cancellation; returns the state afterwards (`cancelling` for up to ten minutes). A job that has
        ended already, or is unknown, is read instead."""
        import openai

        where = f"OpenAI cancel of {provider_job_id}"
        ended = (openai.BadRequestError, openai.ConflictError, openai.NotFoundError)
        try:
            with _repeatable(where, but=ended):
                reply = self._client.batches.with_raw_response.cancel(provider_job_id)
                return _read(reply.content, jobs.read_job, where)
        except ended:
            return self.get(provider_job_id)

    def download(self, channel: str) -> Iterator[bytes]:
        """A file's exact bytes, complete, in chunks of up to 1 MiB; see `download.stream` and `OpenAIFile`."""
        return download.stream(OpenAIFile(self._client, channel), sleep=self._sleep)

    def result_files(self, job: ProviderJob) -> Mapping[str, str]:
        return job.channels

    def delete_file(self, file_id: str) -> bool:
        """Delete a file at the provider. False if it was not there. Raises `ProviderUnavailable`, `ProviderRefused`."""
        import openai

        where = f"OpenAI deletion of {file_id}"
        try:
            with _repeatable(where, but=openai.NotFoundError):
                reply = self._client.files.with_raw_response.delete(file_id)
                deleted = _read(reply.content, _deleted, where).deleted
        except openai.NotFoundError as error:
            if not is_api_answer(error.response):
                raise not_its_own(_NAME, where) from None
            return False
        if not deleted:
            raise ProviderUnavailable("OpenAI did not confirm the deletion", where=where, do="repeat the call later")
        return True

    def close(self) -> None:
        """Close the connections, if any were made."""
        if "_client" in self.__dict__:
            self._client.close()
            del self._client

    @cached_property
    def _client(self) -> openai.OpenAI:
        import openai

        return openai.OpenAI(
            api_key=self._key, base_url=self._base_url, timeout=self._timeout_s, max_retries=self._max_retries
        )

    def _key(self) -> str:
        key = self._api_key().strip()
        if not key:
            raise Permanent("the OpenAI API key is empty", where="the secret", do="store a key in it")
        return key

    def _read_job(self, provider_job_id: str) -> ProviderJob:
        import openai

        where = f"OpenAI job {provider_job_id}"
        try:
            with _repeatable(where, but=openai.NotFoundError):
                reply = self._client.batches.with_raw_response.retrieve(provider_job_id)
                return _read(reply.content, jobs.read_job, where)
        except openai.NotFoundError as error:
            if not is_api_answer(error.response):
                raise not_its_own(_NAME, where) from None
            raise NoSuchJob(error.response.content) from None

    def _page(self, after: str) -> walk.ListPage:
        import openai

        where = "OpenAI job list"
        with _repeatable(where):
            reply = self._client.batches.with_raw_response.list(limit=PAGE_SIZE, after=after or openai.omit)
            return _read(reply.content, jobs.read_page, where)


@contextmanager
def _repeatable(where: str, *, but: type[openai.APIError] | tuple[type[openai.APIError], ...] = ()) -> Iterator[None]:
    import openai

    try:
        yield
    except but:
        raise
    except openai.APIError as error:
        raise call_failure(error, where) from None
