"""Calls to the Gemini Developer API's batch mode: the official SDK for files, plain HTTP for jobs.

The SDK drops `batchStats` and an operation's `error` (see `jobs`), so jobs are read from the raw reply. Only `create`
may not be repeated: the vendor says that the same request twice makes two jobs. There is no token; the marker in
`displayName` and a walk through the job list replace one.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import quote

from tallybatch.adapters.providers.common import download, walk
from tallybatch.adapters.providers.common.failures import create_unknown
from tallybatch.adapters.providers.common.replies import NoSuchJob, created_job, not_its_own, present_or_gone, read
from tallybatch.adapters.providers.gemini import jobs
from tallybatch.adapters.providers.gemini.download import GeminiFile
from tallybatch.adapters.providers.gemini.failures import call_failure, create_failure, told_by
from tallybatch.adapters.providers.gemini.requests import EMBED
from tallybatch.adapters.providers.gemini.transport import Transport
from tallybatch.domain.errors import ProviderUnavailable, TallybatchError
from tallybatch.ports import ProviderJob, ProviderState, Search

if TYPE_CHECKING:
    from google.genai import Client

MIME_TYPES = ("jsonl", "application/jsonl", "application/json", "text/plain")
"""What a JSONL file may be called, in the order of trying: the documented name is refused at times
(googleapis/python-genai#1547)."""
PAGE_SIZE = 100
"""Always sent: a list without it was seen to come back empty (googleapis/python-genai#1250)."""
MAX_DISPLAY_NAME_CHARS = 512
_VERSION = "v1beta"
_NAME = "Gemini"
_read = partial(read, _NAME)


class GeminiApi:
    """`ports.ProviderApi`. `api_key` is called before each request and may read a secret.

    `base_url` "" is Google's own. Every call but `create` is repeated `max_retries` times on timeouts, 408, 429 and
    5xx. Timeouts are seconds, for each of connect, read and write.
    """

    name = "gemini"
    create_is_idempotent = False
    keeps_files = True

    def __init__(
        self,
        api_key: Callable[[], str],
        *,
        base_url: str = "",
        timeout_s: float = 60,
        create_timeout_s: float = 60,
        upload_timeout_s: float = 300,
        max_retries: int = 2,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = Transport(
            api_key, base_url=base_url, timeout_s=timeout_s, max_retries=max_retries, sleep=sleep
        )
        self._create_timeout_s = create_timeout_s
        self._upload_timeout_s = upload_timeout_s
        self._sleep = sleep
        self._monotonic = monotonic
        self._mime_type = ""
        self._sdk_of_key: tuple[str, Client] | None = None

    def upload(self, filename: str, body: BinaryIO, *, uri: str = "") -> str:
        """Send an input file; returns its name (`files/…`). A repeated upload leaves an unused file, which Gemini
        deletes after 48 hours.

        `filename` should carry the submission_key. Raises `ProviderUnavailable`, `ProviderRefused`.
        """
        del uri
        where = "Gemini upload"
        with _seekable(body) as file, self._repeatable(where):
            for mime_type in (self._mime_type,) if self._mime_type else MIME_TYPES:
                name = self._upload_as(mime_type, filename, file)
                if name:
                    self._mime_type = mime_type
                    return name
        raise ProviderUnavailable(
            "Gemini did not take the file",
            where=where,
            why="it answered without a file, or knows none of the MIME types",
            do="repeat the call later",
        )

    def _upload_as(self, mime_type: str, filename: str, file: BinaryIO) -> str:
        """The file's name; "" if this MIME type is refused, or the answer to the upload is HTTP 200 without a file: an
        error inside makes the SDK raise `KeyError` (googleapis/python-genai#1248)."""
        from google.genai import errors, types

        options = types.HttpOptions(timeout=round(self._upload_timeout_s * 1000), api_version=_VERSION)
        config = types.UploadFileConfig(
            mime_type=mime_type, display_name=filename[:MAX_DISPLAY_NAME_CHARS], http_options=options
        )

        def send() -> types.File:
            file.seek(0)
            return self._sdk().files.upload(file=cast("io.IOBase", file), config=config)

        try:
            uploaded = self._transport.repeat(send)
        except errors.ClientError as error:
            told = told_by(error)
            if told.status == 400 and "mime" in told.message.lower():
                return ""
            raise
        except (KeyError, ValueError, AttributeError):
            return ""
        failed = uploaded.state is not None and uploaded.state.name == "FAILED"
        return "" if failed else uploaded.name or ""

    def create(
        self,
        *,
        submission_key: str,
        file_id: str,
        endpoint: str,
        model: str,
        output_uri: str = "",
        deadline_s: float = 0,
    ) -> ProviderJob:
        """Send create exactly once. See `failures.create_failure` for what is raised when.

        Gemini keeps its output itself, so `output_uri` says nothing here, nor does `deadline_s`: the window is not ours
        to choose, and a job that is not done after 48 hours expires.
        """
        del output_uri, deadline_s
        import httpx2

        where = f"Gemini create for {submission_key}"
        method = "asyncBatchEmbedContent" if endpoint == EMBED else "batchGenerateContent"
        body = {"batch": {"displayName": submission_key, "inputConfig": {"fileName": file_id}}}
        resource = model if "/" in model else f"models/{model}"
        try:
            reply = self._transport.send(
                "POST", f"/{_VERSION}/{quote(resource)}:{method}", body=body, timeout_s=self._create_timeout_s
            )
        except httpx2.HTTPError as error:
            raise create_failure(error, where) from None
        except TallybatchError:
            raise
        except Exception as error:
            raise create_unknown(where, type(error).__name__) from None
        return created_job(reply.content, jobs.read_job, submission_key=submission_key, where=where)

    def find(self, submission_key: str, *, since: float) -> Search:
        """Walk the job list for the marker; see `walk.search`. A display name may be anybody's: of those that are not
        asked for, only what has the form of a marker is ours. Raises `ProviderUnavailable`, `ProviderRefused`."""
        found = walk.search(self._page, submission_key, since=since, sleep=self._sleep, monotonic=self._monotonic)
        if submission_key:
            return found
        return replace(found, jobs=tuple(job for job in found.jobs if walk.is_marker(job.marker)))

    def get(self, provider_job_id: str) -> ProviderJob:
        """The job's present state. GONE after the API itself has answered 404 three times, seconds apart; a 404 from
        anything else (a gateway) is `ProviderUnavailable`."""
        return present_or_gone(
            provider_job_id, lambda: self._read_job(provider_job_id), raw_state="NOT_FOUND", sleep=self._sleep
        )

    def cancel(self, provider_job_id: str) -> ProviderJob:
        """Ask for cancellation; returns the state afterwards. There is no state of being cancelled: the job stays as it
        was until it has ended. One that has ended already, or is unknown, is read as it is."""
        import httpx2

        where = f"Gemini cancel of {provider_job_id}"
        path = f"/{_VERSION}/{quote(provider_job_id)}:cancel"
        try:
            with self._repeatable(where, but=(400, 404, 409)):
                self._transport.repeat(lambda: self._transport.send("POST", path))
        except httpx2.HTTPStatusError:
            pass
        return self.get(provider_job_id)

    def download(self, channel: str) -> Iterator[bytes]:
        """A file's exact bytes, complete, in chunks of up to 1 MiB; see `download.stream` and `GeminiFile`."""
        return download.stream(GeminiFile(self._transport, channel), sleep=self._sleep)

    def result_files(self, job: ProviderJob) -> Mapping[str, str]:
        """The job itself: its results go with it. The id of a result file is too long for `files.delete`, as for
        `files.get` (googleapis/js-genai#1227)."""
        return {"job": job.id} if job.channels or job.state is ProviderState.GONE else {}

    def delete_file(self, file_id: str) -> bool:
        """Delete an uploaded file, or a job with its results. False if it was not there. Raises `ProviderUnavailable`,
        `ProviderRefused`."""
        from google.genai import errors

        if file_id.startswith("batches/"):
            return self.delete_job(file_id)

        where = f"Gemini deletion of {file_id}"
        try:
            with self._repeatable(where, but=(404,)):
                self._transport.repeat(lambda: self._sdk().files.delete(name=file_id))
        except errors.ClientError as error:
            if not told_by(error).own:
                raise not_its_own(_NAME, where) from None
            return False
        return True

    def delete_job(self, provider_job_id: str) -> bool:
        """Delete a job with its results. False if it was not there. Raises as `delete_file`."""
        import httpx2

        where = f"Gemini deletion of {provider_job_id}"
        path = f"/{_VERSION}/{quote(provider_job_id)}"
        try:
            with self._repeatable(where, but=(404,)):
                self._transport.repeat(lambda: self._transport.send("DELETE", path))
        except httpx2.HTTPStatusError as error:
            if not told_by(error).own:
                raise not_its_own(_NAME, where) from None
            return False
        return True

    def close(self) -> None:
        """Close the connections, if any were made."""
        if self._sdk_of_key is not None:
            self._sdk_of_key[1].close()
            self._sdk_of_key = None
        self._transport.close()

    def _sdk(self) -> Client:
        """The SDK's client for the present key; its own retries are off unless they are asked for (SDK 3.6)."""
        from google.genai import Client, types

        key = self._transport.key()
        if self._sdk_of_key is None or self._sdk_of_key[0] != key:
            options = types.HttpOptions(base_url=self._transport.base_url, api_version=_VERSION)
            self._sdk_of_key = (key, Client(api_key=key, vertexai=False, http_options=options))
        return self._sdk_of_key[1]

    def _read_job(self, name: str) -> ProviderJob:
        import httpx2

        where, path = f"Gemini job {name}", f"/{_VERSION}/{quote(name)}"
        try:
            with self._repeatable(where, but=(404,)):
                reply = self._transport.repeat(lambda: self._transport.send("GET", path))
        except httpx2.HTTPStatusError as error:
            if not told_by(error).own:
                raise not_its_own(_NAME, where) from None
            raise NoSuchJob(error.response.content) from None
        return _read(reply.content, jobs.read_job, where)

    def _page(self, token: str) -> walk.ListPage:
        where = "Gemini job list"
        params = {"pageSize": str(PAGE_SIZE), **({"pageToken": token} if token else {})}
        with self._repeatable(where):
            reply = self._transport.repeat(lambda: self._transport.send("GET", f"/{_VERSION}/batches", params=params))
        return _read(reply.content, jobs.read_page, where)

    @contextmanager
    def _repeatable(self, where: str, *, but: tuple[int, ...] = ()) -> Iterator[None]:
        """Failures as ours, except answers with a status in `but`, which are raised as they came."""
        try:
            yield
        except self._transport.failures as error:
            told = told_by(error)
            if told.status in but:
                raise
            raise call_failure(told, where) from None


@contextmanager
def _seekable(body: BinaryIO) -> Iterator[BinaryIO]:
    """`body` itself, or a copy on disk: the SDK asks for the size first, and a repeated upload begins at the start."""
    if isinstance(body, io.IOBase) and body.seekable():
        yield cast("BinaryIO", body)
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(body, copy, 1 << 20)
        yield cast("BinaryIO", copy)
