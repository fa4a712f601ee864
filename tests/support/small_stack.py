"""A cloud assembly small enough to deploy in a second: a function, a state machine that retries it, a bus, a bucket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BUCKET = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"

HANDLER = """
import json, os, sys

class Retryable(Exception):
    pass

class Narrower(Retryable):
    pass

runs = 0

def handler(event, context):
    global runs
    runs += 1
    sys.stderr.write("run " + str(runs) + "\\n")
    todo = event.get("detail", event)
    if todo.get("count_in"):
        with open(todo["count_in"], "a") as out:
            out.write("x")
        tries = os.path.getsize(todo["count_in"])
    else:
        tries = 1
    if todo.get("raise") and tries <= todo.get("times", 99):
        raise {"Retryable": Retryable, "Narrower": Narrower, "KeyError": KeyError}[todo["raise"]]("as asked")
    if todo.get("exit"):
        os._exit(3)
    return {"runs": runs, "tries": tries, "environment": dict(os.environ)}
"""

MACHINE: dict[str, Any] = {
    "StartAt": "Call",
    "States": {
        "Call": {
            "Type": "Task",
            "QueryLanguage": "JSONata",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Arguments": {"FunctionName": "${Function}", "Payload": "{% $states.input %}"},
            "Output": "{% {'tries': $states.result.Payload.tries} %}",
            "Retry": [{"ErrorEquals": ["Retryable"], "IntervalSeconds": 1, "MaxAttempts": 3, "BackoffRate": 1}],
            "Catch": [
                {"ErrorEquals": ["Retryable"], "Output": {"caught": "Retryable"}, "Next": "Done"},
                {"ErrorEquals": ["Runtime.ExitError"], "Output": {"caught": "Runtime.ExitError"}, "Next": "Done"},
                {
                    "ErrorEquals": ["States.ALL"],
                    "Output": {"caught": "{% 'other: ' & $states.errorOutput.Error %}"},
                    "Next": "Done",
                },
            ],
            "Next": "Done",
        },
        "Done": {"Type": "Succeed"},
    },
}


def template(variables: dict[str, str]) -> dict[str, Any]:
    """Outputs as the real stack's, as far as the local stack reads them."""
    return {
        "Resources": {
            "Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Version": "2012-10-17", "Statement": []}}},
            "Bucket": {
                "Type": "AWS::S3::Bucket",
                "Properties": {
                    "BucketEncryption": {
                        "ServerSideEncryptionConfiguration": [
                            {
                                "BucketKeyEnabled": True,
                                "ServerSideEncryptionByDefault": {
                                    "SSEAlgorithm": "aws:kms",
                                    "KMSMasterKeyID": {"Fn::GetAtt": ["Key", "Arn"]},
                                },
                            }
                        ]
                    },
                    "LifecycleConfiguration": {
                        "Rules": [
                            {"Id": "inbox", "Status": "Enabled", "Prefix": "inbox/", "ExpirationInDays": 30},
                            {
                                "Id": "raw",
                                "Status": "Enabled",
                                "TagFilters": [{"Key": "raw", "Value": "90d"}],
                                "ExpirationInDays": 90,
                                "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
                            },
                        ]
                    },
                },
            },
            "Table": {
                "Type": "AWS::DynamoDB::Table",
                "Properties": {
                    "BillingMode": "PAY_PER_REQUEST",
                    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                },
            },
            "Secret": {"Type": "AWS::SecretsManager::Secret", "Properties": {"GenerateSecretString": {}}},
            "OtherSecret": {"Type": "AWS::SecretsManager::Secret", "Properties": {}},
            "Role": {
                "Type": "AWS::IAM::Role",
                "Properties": {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}},
            },
            "DeadLetters": {"Type": "AWS::SQS::Queue", "Properties": {}},
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "Runtime": "python3.13",
                    "Handler": "small.handler",
                    "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                    "Timeout": 20,
                    "Code": {
                        "S3Bucket": BUCKET.replace("${AWS::AccountId}", "000000000000").replace(
                            "${AWS::Region}", "us-east-1"
                        ),
                        "S3Key": "small.zip",
                    },
                    "Environment": {"Variables": variables},
                    "DeadLetterConfig": {"TargetArn": {"Fn::GetAtt": ["DeadLetters", "Arn"]}},
                },
            },
            "Machine": {
                "Type": "AWS::StepFunctions::StateMachine",
                "Properties": {
                    "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                    "DefinitionString": json.dumps(MACHINE),
                    "DefinitionSubstitutions": {"Function": {"Fn::GetAtt": ["Function", "Arn"]}},
                },
            },
            "Bus": {"Type": "AWS::Events::EventBus", "Properties": {"Name": {"Fn::Sub": "${AWS::StackName}-bus"}}},
            "Rule": {
                "Type": "AWS::Events::Rule",
                "Properties": {
                    "EventBusName": {"Ref": "Bus"},
                    "EventPattern": {"source": ["test"]},
                    "Targets": [{"Id": "f", "Arn": {"Fn::GetAtt": ["Function", "Arn"]}}],
                },
            },
        },
        "Outputs": {
            "Bucket": {"Value": {"Ref": "Bucket"}},
            "Table": {"Value": {"Ref": "Table"}},
            "StateMachineArn": {"Value": {"Ref": "Machine"}},
            "OpenAISecret": {"Value": {"Ref": "Secret"}},
            "GeminiSecret": {"Value": {"Ref": "OtherSecret"}},
            "EventBus": {"Value": {"Ref": "Bus"}},
            "BuildManifestFunction": {"Value": {"Ref": "Function"}},
            "DiscoverBackfillFunction": {"Value": {"Ref": "Function"}},
            "DeadLetters": {"Value": {"Ref": "DeadLetters"}},
        },
    }


def write(directory: Path, stack: str = "Small", variables: dict[str, str] | None = None) -> Path:
    """Write the assembly as the CDK would, and return its directory."""
    code = directory / "asset.small"
    code.mkdir(parents=True)
    (code / "small.py").write_text(HANDLER)
    told = {
        "TALLYBATCH_OPENAI_SECRET": "told-by-template",
        "TALLYBATCH_SETTLE_WINDOW_S": "900",
        "TALLYBATCH_BUCKET": "told-by-template",
        **(variables or {}),
    }
    (directory / f"{stack}.template.json").write_text(json.dumps(template(told)))
    place = {"current": {"bucketName": BUCKET, "objectKey": "small.zip"}}
    files = {
        "small": {"source": {"path": "asset.small", "packaging": "zip"}, "destinations": place},
        "template": {
            "source": {"path": f"{stack}.template.json", "packaging": "file"},
            "destinations": {"current": {"bucketName": BUCKET, "objectKey": "template.json"}},
        },
    }
    (directory / f"{stack}.assets.json").write_text(json.dumps({"version": "1.0", "files": files}))
    return directory
