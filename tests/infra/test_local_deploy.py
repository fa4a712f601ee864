"""A cloud assembly is deployed once, changed only by a change, and complete: also what the emulator drops."""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from infra.local import assembly, deploy, dropped, loopback
from tallybatch.domain.errors import Permanent
from tests.support import small_stack


def environment_of(endpoint: str, function: str) -> dict[str, str]:
    found = loopback.Aws(endpoint).lambda_.get_function_configuration(FunctionName=function)
    return dict(found["Environment"]["Variables"])


def test_given_a_deployed_assembly_when_deployed_again_then_nothing_changes(emulator: str, tmp_path: Path) -> None:
    directory = small_stack.write(tmp_path, stack="Again")
    first = deploy.deploy(emulator, assembly.read(directory, "Again"))
    second = deploy.deploy(emulator, assembly.read(directory, "Again"))
    assert (first.changed, second.changed) == (True, False)
    assert first.outputs == second.outputs


def test_given_another_local_value_when_deployed_again_then_the_function_is_updated_in_place(
    emulator: str, tmp_path: Path
) -> None:
    directory = small_stack.write(tmp_path, stack="Told")
    first = deploy.deploy(emulator, assembly.read(directory, "Told", assembly.local_environment("http://127.0.0.1:1")))
    second = deploy.deploy(emulator, assembly.read(directory, "Told", assembly.local_environment("http://127.0.0.1:2")))
    assert second.changed
    assert second.outputs["Bucket"] == first.outputs["Bucket"]
    assert environment_of(emulator, first.outputs["BuildManifestFunction"]) == {
        "TALLYBATCH_OPENAI_SECRET": "told-by-template",
        "TALLYBATCH_BUCKET": "told-by-template",
        "TALLYBATCH_SETTLE_WINDOW_S": "3",
        "OPENAI_BASE_URL": "http://127.0.0.1:2",
    }


def test_given_a_bucket_when_deployed_then_encryption_and_lifecycle_are_those_of_the_template(
    emulator: str, tmp_path: Path
) -> None:
    deployed = deploy.deploy(emulator, assembly.read(small_stack.write(tmp_path, stack="Kept"), "Kept"))
    s3 = loopback.Aws(emulator).s3
    bucket = deployed.outputs["Bucket"]
    rule = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert rule["BucketKeyEnabled"] is True
    default = rule["ApplyServerSideEncryptionByDefault"]
    assert default["SSEAlgorithm"] == "aws:kms"
    assert default["KMSMasterKeyID"].startswith("arn:aws:kms:us-east-1:")
    rules = {each["ID"]: each for each in s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]}
    assert rules["inbox"]["Filter"] == {"Prefix": "inbox/"}
    assert rules["inbox"]["Expiration"] == {"Days": 30}
    assert rules["raw"]["Filter"] == {"Tag": {"Key": "raw", "Value": "90d"}}
    assert rules["raw"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 7}


def test_given_a_secret_value_when_deployed_then_the_named_secret_holds_it(emulator: str, tmp_path: Path) -> None:
    read = assembly.read(small_stack.write(tmp_path, stack="Keyed"), "Keyed")
    deployed = deploy.deploy(emulator, read, secrets={"OpenAISecret": "local-simulator-key"})
    stored = loopback.Aws(emulator).secretsmanager.get_secret_value(SecretId=deployed.outputs["OpenAISecret"])
    assert stored["SecretString"] == "local-simulator-key"
    with pytest.raises(Permanent, match="no output Missing"):
        deploy.deploy(emulator, read, secrets={"Missing": "x"})


def test_given_a_template_that_fails_when_mended_then_the_next_deployment_succeeds(
    emulator: str, tmp_path: Path
) -> None:
    directory = small_stack.write(tmp_path, stack="Broken")
    path = directory / "Broken.template.json"
    good = path.read_text()
    broken: dict[str, Any] = json.loads(good)
    broken["Resources"]["Function"]["Properties"]["Code"]["S3Key"] = "never-uploaded.zip"
    broken["Resources"]["Bad"] = {"Type": "AWS::CloudWatch::CompositeAlarm", "Properties": {"AlarmRule": "FALSE"}}
    path.write_text(json.dumps(broken))
    with pytest.raises(Permanent, match="stack Broken"):
        deploy.deploy(emulator, assembly.read(directory, "Broken"))
    path.write_text(good)
    assert deploy.deploy(emulator, assembly.read(directory, "Broken")).changed


def test_given_a_lifecycle_rule_in_an_unknown_shape_when_translated_then_it_is_an_error() -> None:
    with pytest.raises(Permanent, match="NewThing"):
        dropped.lifecycle_rule({"Id": "x", "Status": "Enabled", "NewThing": 1})


def test_given_the_same_files_when_zipped_twice_then_the_bytes_are_equal(tmp_path: Path) -> None:
    one = assembly.read(small_stack.write(tmp_path / "a"), "Small").assets[0]
    other = assembly.read(small_stack.write(tmp_path / "b"), "Small").assets[0]
    assert one.body() == other.body()


def test_given_a_zipped_module_when_it_is_imported_then_its_bytecode_is_taken_as_it_is(tmp_path: Path) -> None:
    # GIVEN
    [asset] = assembly.read(small_stack.write(tmp_path / "a"), "Small").assets
    zipfile.ZipFile(io.BytesIO(asset.body())).extractall(tmp_path / "code")
    module = tmp_path / "code" / "small.py"
    assert module.is_file()
    # WHEN what lies beside the bytecode could not even be compiled
    module.write_text("this is no Python")
    spec = importlib.util.spec_from_file_location("small_from_zip", module)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    # THEN
    assert callable(loaded.handler)
