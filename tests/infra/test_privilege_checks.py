"""The checks of privileges themselves: they say no where AWS would, and name function, call and action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.iam_declared import declared_sources
from tests.support.iam_needs import Call, Place, needs
from tests.support.iam_policies import Need, Policies
from tests.support.iam_template import Stack
from tests.support.recorder.sitecustomize import kept

PLACE = Place("000000000000", "us-east-1", "data", "the-key", "arn:aws:states:us-east-1:000000000000:stateMachine:job")
TABLE = "arn:aws:dynamodb:us-east-1:000000000000:table/ledger"
LISTS = Policies(
    [
        {
            "Statement": {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": "arn:aws:s3:::data",
                "Condition": {"StringLikeIfExists": {"s3:prefix": ["jobs/*"]}},
            }
        }
    ]
)


def asked(service: str, operation: str, error: str = "", **params: Any) -> set[str]:
    """Actions and resources that the call needs, without those on the key."""
    call = Call("job-Seal", service, operation, kept(params), error)
    return {f"{need.action} {need.resource}" for need in needs(call, PLACE) if not need.action.startswith("kms:")}


@pytest.mark.parametrize(
    ("operation", "params", "actions"),
    [
        ("GetObject", {}, {"GetObject"}),
        ("HeadObject", {"VersionId": "v"}, {"GetObjectVersion"}),
        ("PutObject", {"Body": b"secret", "IfNoneMatch": "*"}, {"PutObject"}),
        ("PutObject", {"Tagging": "a=b", "IfMatch": "e"}, {"PutObject", "PutObjectTagging", "GetObject"}),
        ("CreateMultipartUpload", {"Tagging": "a=b"}, {"PutObject", "PutObjectTagging"}),
        ("UploadPart", {"Body": b"x"}, {"PutObject"}),
        ("AbortMultipartUpload", {}, {"AbortMultipartUpload"}),
        ("GetObjectTagging", {"VersionId": "v"}, {"GetObjectVersionTagging"}),
        ("PutObjectTagging", {}, {"PutObjectTagging"}),
    ],
)
def test_given_a_call_on_an_object_when_mapped_then_these_are_its_actions(
    operation: str, params: dict[str, Any], actions: set[str]
) -> None:
    wanted = {f"s3:{action} arn:aws:s3:::data/jobs/a" for action in actions}
    assert asked("s3", operation, Bucket="data", Key="jobs/a", **params) == wanted


@pytest.mark.parametrize("directive", ["COPY", "REPLACE"])
def test_given_a_copy_when_mapped_then_the_sources_tags_count_only_where_they_go_along(directive: str) -> None:
    source = {"Bucket": "theirs", "Key": "raw/a", "VersionId": "v"}
    found = asked("s3", "CopyObject", Bucket="data", Key="inbox/a", CopySource=source, TaggingDirective=directive)
    plain = {"s3:PutObject arn:aws:s3:::data/inbox/a", "s3:GetObjectVersion arn:aws:s3:::theirs/raw/a"}
    tags = {
        "s3:GetObjectVersionTagging arn:aws:s3:::theirs/raw/a",
        "s3:PutObjectTagging arn:aws:s3:::data/inbox/a",
    }
    assert found == (plain | tags if directive == "COPY" else plain)


def test_given_statements_items_and_an_index_when_mapped_then_each_table_and_verb_is_asked_for() -> None:
    statements = [
        {"Statement": "INSERT INTO \"ledger\" VALUE {'pk': ?}"},
        {"Statement": 'UPDATE "ledger" SET "answer" = ? WHERE "pk" = ?'},
    ]
    assert asked("dynamodb", "BatchExecuteStatement", Statements=statements) == {
        f"dynamodb:PartiQLInsert {TABLE}",
        f"dynamodb:PartiQLUpdate {TABLE}",
    }
    items = [{kind: {"TableName": "ledger", "Item": {}}} for kind in ("Put", "Delete", "ConditionCheck", "Put")]
    assert asked("dynamodb", "TransactWriteItems", TransactItems=items) == {
        f"dynamodb:{action} {TABLE}" for action in ("PutItem", "DeleteItem", "ConditionCheckItem")
    }
    assert asked("dynamodb", "Query", TableName="ledger", IndexName="jobs") == {f"dynamodb:Query {TABLE}/index/jobs"}


def test_given_an_object_that_is_missing_when_asked_for_then_listing_is_needed_without_a_prefix() -> None:
    """S3 tells a missing object only who may list the bucket, and such a request has no prefix to compare."""
    call = Call("job-Seal", "s3", "HeadObject", {"Bucket": "data", "Key": "jobs/a"}, "404")
    (listing,) = [need for need in needs(call, PLACE) if need.action == "s3:ListBucket"]
    assert LISTS.allow(listing)
    strict = [{**each, "Condition": {"StringLike": {"s3:prefix": ["jobs/*"]}}} for each in LISTS.statements]
    assert not Policies([{"Statement": strict}]).allow(listing)


def test_given_a_prefix_when_listed_then_it_must_be_one_of_the_granted() -> None:
    assert LISTS.allow(Need("s3:ListBucket", "arn:aws:s3:::data", {"s3:prefix": "jobs/acme/"}))
    assert not LISTS.allow(Need("s3:ListBucket", "arn:aws:s3:::data", {"s3:prefix": "results/acme/"}))
    assert not LISTS.allow(Need("s3:ListBucket", "arn:aws:s3:::other", {"s3:prefix": "jobs/acme/"}))


def test_given_a_deny_when_something_else_allows_then_it_is_denied() -> None:
    deny = {"Statement": [{"Effect": "Deny", "Action": "s3:*", "Resource": "arn:aws:s3:::data"}]}
    assert not Policies([{"Statement": LISTS.statements}, deny]).allow(Need("s3:ListBucket", "arn:aws:s3:::data"))


def test_given_a_call_that_nobody_has_mapped_when_mapped_then_it_is_said_and_not_let_through() -> None:
    for service, operation in (("s3", "DeleteObject"), ("dynamodb", "ExecuteStatement"), ("sqs", "SendMessage")):
        with pytest.raises(NotImplementedError, match="which actions"):
            asked(service, operation, Bucket="data", Key="jobs/a")


def test_given_the_parameters_of_a_call_when_kept_then_no_content_is() -> None:
    told = kept({"Bucket": "data", "Key": "jobs/a", "Body": b"secret", "Metadata": {"a": "secret"}})
    assert told == {"Bucket": "data", "Key": "jobs/a"}
    assert kept({"TableName": "ledger", "Key": {"pk": {"S": "secret"}}, "Item": {}}) == {"TableName": "ledger"}


def test_given_a_declared_source_when_a_backfill_lists_heads_and_copies_then_it_may_below_the_prefix_alone() -> None:
    declared = Policies([declared_sources({"theirs"}, "lake/")])
    source = {"Bucket": "theirs", "Key": "lake/a", "VersionId": "v"}
    copy = {"Bucket": "data", "Key": "inbox/a", "CopySource": source, "TaggingDirective": "REPLACE"}
    calls = [
        Call("job-Discover", "s3", "ListObjectsV2", {"Bucket": "theirs", "Prefix": "lake/2026/"}),
        Call("job-Discover", "s3", "HeadObject", {"Bucket": "theirs", "Key": "lake/a"}, "404"),
        Call("job-Discover", "s3", "CopyObject", copy),
    ]
    reads = [need for call in calls for need in needs(call, PLACE) if "theirs" in need.resource]
    assert len(reads) == 4
    assert [str(need) for need in reads if not declared.allow(need)] == []
    assert not declared.allow(Need("s3:GetObject", "arn:aws:s3:::theirs/private/a"))
    assert declared_sources(set(), "lake/") == {"Statement": []}


def test_given_publish_shard_as_it_once_was_when_it_writes_under_jobs_then_that_is_denied(
    template: Mapping[str, Any],
) -> None:
    """The fault that this whole check is for: the role could write results/ alone."""
    stack = Stack(template)
    (role,) = [
        f"<{name}>" for name, _ in stack.of_type("AWS::IAM::Role") if name.startswith("FunctionsPublishShardRole")
    ]
    bucket = stack.one("AWS::S3::Bucket", "StorageBucket")[0]
    need = Need("s3:PutObject", f"{bucket}/jobs/acme/5d41/published/a")
    now = stack.role(role)
    assert now.allow(need)
    then = [each for each in now.statements if "s3:PutObject" not in each["Action"]]
    assert not Policies([{"Statement": then}]).allow(need)
