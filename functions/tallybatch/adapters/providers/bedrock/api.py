"""Calls to Bedrock's control plane for batch inference, and its results in our bucket.

Create is idempotent by `clientRequestToken`: the same submission_key again gives the same job. It is sent once all the
same, with the SDK's retries off, so that each call has one answer that can be told apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO

import msgspec
from botocore.exceptions import ClientError

from tallybatch.adapters.aws_errors import error_code
from tallybatch.adapters.providers.bedrock import jobs, output
from tallybatch.adapters.providers.bedrock.failures import (
    CALL_ERRORS,
    CONFLICT,
    NOT_FOUND,
    call_failure,
    create_failure,
)
from tallybatch.adapters.providers.common import walk
from tallybatch.adapters.providers.common.failures import create_unknown
from tallybatch.adapters.providers.common.replies import NoSuchJob, present_or_gone, read
from tallybatch.domain.errors import ProviderRefused, TallybatchError
from tallybatch.ports import TERMINAL_STATES, Objects, ProviderJob, ProviderState, Search

PAGE_SIZE = 1000
MIN_HOURS, MAX_HOURS = 24, 168
"""Bounds of `timeoutDurationInHours`."""

_NAME = "Bedrock"
_read = partial(read, _NAME)
_NAME_PREFIX = "tallybatch-"
_NAME_CHARS = 63
_RAW = "TallybatchRaw"


class _Created(msgspec.Struct):
    jobArn: str = ""  # noqa: N815 - the wire's name


def job_name(submission_key: str) -> str:
    """Names need not be unique, ours are as far as 52 hex characters go; the token decides. At most 63 characters."""
    return (_NAME_PREFIX + submission_key)[:_NAME_CHARS]


class BedrockApi:
    """`ports.ProviderApi`. `client` and `create_client` are boto3 clients of `bedrock`, the second without retries;
    `objects` is the bucket that holds the request files and gets the results; `role_arn` the service role with which
    Bedrock reads and writes there."""

    name = "bedrock"
    create_is_idempotent = True
    keeps_files = False

    def __init__(
        self,
        client: Any,
        create_client: Any,
        objects: Objects,
        role_arn: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._create_client = create_client
        self._objects = objects
        self._role_arn = role_arn
        self._sleep = sleep
        self._monotonic = monotonic
        for each in (client, create_client):
            each.meta.events.register("after-call.bedrock", _keep_raw, unique_id=_RAW)

    def upload(self, filename: str, body: BinaryIO, *, uri: str) -> str:
        """Nothing to send: Bedrock reads the file where it is. Its name must end in `.jsonl`."""
        del filename, body
        if not uri.endswith(".jsonl"):
            raise ProviderRefused("Bedrock reads only objects named *.jsonl", where=uri, do="name it so")
        return uri

    def create(
        self,
        *,
        submission_key: str,
        file_id: str,
        endpoint: str,
        model: str,
        output_uri: str,
        deadline_s: float = 0,
    ) -> ProviderJob:
        """Send create once. `deadline_s` becomes `timeoutDurationInHours`, rounded up, within 24 to 168: the same for
        each call with this key, for the same token with another request is a conflict."""
        where = f"Bedrock create for {submission_key}"
        if not self._role_arn:
            raise ProviderRefused(
                "there is no service role for Bedrock", where=where, do="set TALLYBATCH_BEDROCK_ROLE_ARN"
            )
        request = {
            "jobName": job_name(submission_key),
            "clientRequestToken": submission_key,
            "roleArn": self._role_arn,
            "modelId": model,
            "modelInvocationType": endpoint,
            "inputDataConfig": {"s3InputDataConfig": {"s3InputFormat": "JSONL", "s3Uri": file_id}},
            "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": output_uri}},
            "timeoutDurationInHours": min(max(math.ceil(deadline_s / 3600), MIN_HOURS), MAX_HOURS),
        }
        try:
            raw = _raw(self._create_client.create_model_invocation_job(**request))
        except CALL_ERRORS as error:
            if isinstance(error, ClientError) and error_code(error) == CONFLICT:
                return self._adopt(submission_key, where)
            raise create_failure(error, where) from None
        except TallybatchError:
            raise
        except Exception as error:
            raise create_unknown(where, type(error).__name__) from None
        arn = _created(raw)
        if not arn:
            raise create_unknown(where, "the answer names no job")
        return ProviderJob(arn, ProviderState.SUBMITTED, "Submitted", submission_key, raw)

    def _adopt(self, submission_key: str, where: str) -> ProviderJob:
        """After a conflict: the job that carries our token is the one, whatever it was that differed."""
        try:
            found = self.find(submission_key, since=0).jobs
        except TallybatchError as error:
            raise create_unknown(where, f"a conflict, and then {type(error).__name__}") from None
        if not found:
            raise create_unknown(where, "a conflict with a job that is not listed")
        return min(found, key=lambda job: (job.created_at, job.id))

    def find(self, submission_key: str, *, since: float) -> Search:
        """Jobs whose token is `submission_key` ("": whose name and token are ours), asked for by name and compared
        exactly; every page is walked.

        `complete` is False when the walk was cut short or an item could not be read: then absence proves nothing.
        """
        query: dict[str, Any] = {"nameContains": job_name(submission_key), "maxResults": PAGE_SIZE}
        if since > walk.CLOCK_MARGIN_S:
            query["submitTimeAfter"] = datetime.fromtimestamp(since - walk.CLOCK_MARGIN_S, UTC)

        def page_after(token: str) -> walk.ListPage:
            page = self._page({**query, "nextToken": token} if token else query)
            found, readable = walk.read_items(map(bytes, page.invocationJobSummaries), _named_by_us)
            return walk.ListPage(tuple(found), page.nextToken or "", bool(page.nextToken), readable)

        return walk.search(page_after, submission_key, since=since, sleep=self._sleep, monotonic=self._monotonic)

    def get(self, provider_job_id: str) -> ProviderJob:
        """The job's present state; of one that has ended, with the channels found in S3 and the larger of its counts
        and the manifest's. GONE after the service has said three times, seconds apart, that there is no such job."""
        return present_or_gone(
            provider_job_id,
            lambda: self._with_output(self._read(provider_job_id)),
            raw_state="ResourceNotFound",
            sleep=self._sleep,
        )

    def cancel(self, provider_job_id: str) -> ProviderJob:
        """Ask the service to stop; returns the state afterwards, without channels. A job that has ended already
        answers with a 400 (BerriAI/litellm#34087): it is read instead, and so is one that is unknown."""
        where = f"Bedrock stop of {provider_job_id}"
        try:
            self._client.stop_model_invocation_job(jobIdentifier=provider_job_id)
        except ClientError as error:
            failure = call_failure(error, where)
            if not isinstance(failure, ProviderRefused) or error_code(error).startswith("AccessDenied"):
                raise failure from None
        except CALL_ERRORS as error:
            raise call_failure(error, where) from None
        try:
            return self._read(provider_job_id).job
        except NoSuchJob:
            return self.get(provider_job_id)

    def download(self, channel: str) -> Iterator[bytes]:
        """See `output.stream`."""
        return output.stream(self._objects, channel)

    def result_files(self, job: ProviderJob) -> Mapping[str, str]:
        del job
        return {}

    def delete_file(self, file_id: str) -> bool:
        """Bedrock has no files: it reads and writes our own bucket, where lifecycle rules end them."""
        del file_id
        return False

    def _read(self, provider_job_id: str) -> jobs.Read:
        where = f"Bedrock job {provider_job_id}"
        try:
            raw = _raw(self._client.get_model_invocation_job(jobIdentifier=provider_job_id))
        except CALL_ERRORS as error:
            if isinstance(error, ClientError) and error_code(error) == NOT_FOUND:
                raise NoSuchJob(msgspec.json.encode(error.response.get("Error", {}))) from None
            raise call_failure(error, where) from None
        return _read(raw, jobs.read_job, where)

    def _with_output(self, read: jobs.Read) -> ProviderJob:
        job = read.job
        if job.state not in TERMINAL_STATES:
            return job
        channels = output.channels(self._objects, read.output_uri)
        if output.MANIFEST_CHANNEL in channels:
            job = jobs.with_manifest(job, self._objects.get(channels[output.MANIFEST_CHANNEL]))
        return replace(job, channels=channels, failure=None if channels else job.failure)

    def _page(self, query: dict[str, Any]) -> jobs.Page:
        where = "Bedrock job list"
        try:
            raw = _raw(self._client.list_model_invocation_jobs(**query))
        except CALL_ERRORS as error:
            raise call_failure(error, where) from None
        return _read(raw, jobs.read_page, where)


def _named_by_us(raw: bytes) -> ProviderJob:
    """A summary; without a marker if its name is not the one that we give to a job of that token."""
    read = jobs.read_job(raw)
    return read.job if read.name == job_name(read.job.marker) else replace(read.job, marker="")


def _keep_raw(http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
    parsed[_RAW] = http_response.content


def _raw(reply: dict[str, Any]) -> bytes:
    raw: bytes = reply[_RAW]
    return raw


def _created(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=_Created).jobArn
    except (ValueError, RecursionError):
        return ""
