"""Python loads this at its start when its directory is on the path: in a function of the local stack, each call to AWS
is written down with what decides which IAM action and resource it needs. Nowhere else does it do anything.

One file per process, one JSON document per distinct call: `function`, `service`, `operation`, `error` ("" for none),
and of the parameters names and identities, never contents.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

DIRECTORY = "TALLYBATCH_TEST_CALLS"
"""The variable that says where."""
_PLAIN = (
    "Bucket", "Key", "VersionId", "Prefix", "IfMatch", "IfNoneMatch", "Tagging", "TaggingDirective", "TableName",
    "IndexName", "stateMachineArn", "executionArn", "SecretId", "modelId", "roleArn", "jobIdentifier",
)  # fmt: skip
_STATEMENT = re.compile(r'(INSERT INTO|UPDATE|SELECT .* FROM|DELETE FROM) "([^"]+)"(?:\."([^"]+)")?')


def kept(params: Mapping[str, Any]) -> dict[str, Any]:
    """What decides on action and resource, of a call's parameters as the SDK takes them."""
    found: dict[str, Any] = {name: params[name] for name in _PLAIN if isinstance(params.get(name), str)}
    if "CopySource" in params:
        found["CopySource"] = params["CopySource"]
    if "TransactItems" in params:
        pairs = [(kind, body["TableName"]) for item in params["TransactItems"] for kind, body in item.items()]
        found["TransactItems"] = sorted(set(pairs))
    if "RequestItems" in params:
        found["RequestItems"] = sorted(params["RequestItems"])
    if "Statements" in params:
        found["Statements"] = sorted({_statement(each["Statement"]) for each in params["Statements"]})
    if "Entries" in params:
        found["Entries"] = sorted({each.get("EventBusName", "default") for each in params["Entries"]})
    return found


def _statement(text: str) -> tuple[str, str]:
    matched = _STATEMENT.match(text)
    return (matched[1].split()[0], matched[2]) if matched else (text, "")


class _Recorder:
    def __init__(self, file: Path, function: str) -> None:
        self._file, self._function = file, function
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def note(self, service: str, operation: str, params: Mapping[str, Any], error: str) -> None:
        call = {"function": self._function, "service": service, "operation": operation, "error": error}
        line = json.dumps({**call, "params": params}, sort_keys=True)
        with self._lock:
            if line not in self._seen:
                self._seen.add(line)
                with self._file.open("a") as out:
                    out.write(line + "\n")

    def wrap(self, client: Any) -> None:
        """Let a `botocore.client.BaseClient` tell of each call, after its end."""
        inner: Callable[..., Any] = client._make_api_call

        def make(this: Any, operation: str, params: Mapping[str, Any]) -> Any:
            error, told = "", kept(params)  # before the SDK's own hooks change the parameters
            try:
                return inner(this, operation, params)
            except Exception as raised:
                response = getattr(raised, "response", {})
                error = response.get("Error", {}).get("Code", "") or type(raised).__name__
                raise
            finally:
                self.note(this.meta.service_model.service_name, operation, told, error)

        client._make_api_call = make


class _OnImport:
    """A finder that wraps `botocore.client` when something imports it: no function pays for an import it has not."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "botocore.client":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._recorder.wrap(module.BaseClient)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get(DIRECTORY) and os.environ.get("AWS_LAMBDA_FUNCTION_NAME"):
    _file = Path(os.environ[DIRECTORY]) / f"{os.environ['AWS_LAMBDA_FUNCTION_NAME']}-{os.getpid()}.jsonl"
    sys.meta_path.insert(0, _OnImport(_Recorder(_file, os.environ["AWS_LAMBDA_FUNCTION_NAME"])))
