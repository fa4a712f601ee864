"""A synthesised cloud assembly as it is deployed here: its template with local settings, and its files."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import io
import json
import marshal
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.local.loopback import ACCOUNT, REGION, is_loopback
from tallybatch.domain.errors import Permanent
from tallybatch.settings import FUNCTIONS, PREFIX

LOCAL_SETTINGS: Mapping[str, object] = {
    "settle_window_s": 3,
    "create_within_s": 20,
    "unknown_wait_s": 10,
    "max_wait_s": 60,
    "bedrock_min_records": 1,
}
"""Fields of `tallybatch.settings` that differ on one machine. The first two are real seconds; the other times are waits
of the state machine, which the emulator shortens once more by its wait scale. Simulated Bedrock takes jobs of one
record, unlike the service, so that a few records can be tried again."""

OPENAI_SECRET = PREFIX + "OPENAI_SECRET"
"""A function that is told this secret is one that calls providers."""

_EGRESS = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class FunctionEnvironment:
    """What is changed in the functions' variables: `replace` only where a function has the variable already, `add` to
    those that have the variable `add_where`."""

    replace: Mapping[str, str] = field(default_factory=dict)
    add: Mapping[str, str] = field(default_factory=dict)
    add_where: str = OPENAI_SECRET


def local_environment(
    openai_url: str, gemini_url: str, host: Mapping[str, str] | None = None, *, bedrock_url: str = ""
) -> FunctionEnvironment:
    """Short windows for every function, and the providers' URLs for those that call them. Only for a server elsewhere
    do they also get the proxy and certificate variables of `host` (default: our own environment)."""
    known = {name for model in FUNCTIONS for name in model.model_fields}
    if stale := set(LOCAL_SETTINGS) - known:
        raise Permanent(f"no function has the settings {sorted(stale)}", where="infra/local/assembly.py")
    add = {"OPENAI_BASE_URL": openai_url, "GOOGLE_GEMINI_BASE_URL": gemini_url}
    if bedrock_url:
        add["AWS_ENDPOINT_URL_BEDROCK"] = bedrock_url
        add["AWS_ENDPOINT_URL_BEDROCK_RUNTIME"] = bedrock_url
    if not all(is_loopback(url) for url in add.values()):
        source = os.environ if host is None else host
        add |= {name: source[name] for name in _EGRESS if source.get(name)}
        add["NO_PROXY"] = ",".join(part for part in ("127.0.0.1,localhost", source.get("NO_PROXY", "")) if part)
    return FunctionEnvironment(
        replace={PREFIX + name.upper(): str(value) for name, value in LOCAL_SETTINGS.items()}, add=add
    )


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that the template refers to by bucket and key."""

    bucket: str
    key: str
    source: Path
    zipped: bool
    """`source` is a directory that is stored as a zip."""

    def body(self) -> bytes:
        return _zip(self.source) if self.zipped else self.source.read_bytes()


@dataclass(frozen=True, slots=True)
class Assembly:
    stack: str
    template: Mapping[str, Any]
    assets: tuple[Asset, ...]

    @property
    def template_json(self) -> bytes:
        return json.dumps(self.template, separators=(",", ":"), sort_keys=True).encode()

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 over the template; assets count by their keys, which the CDK derives from their content."""
        return hashlib.sha256(self.template_json).hexdigest()

    def resources(self, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Logical id and properties of each resource of a type."""
        for logical_id, resource in self.template["Resources"].items():
            if resource["Type"] == kind:
                yield logical_id, resource.get("Properties", {})


def read(directory: Path, stack: str, environment: FunctionEnvironment | None = None) -> Assembly:
    """The stack's template and assets in a `cdk.out` directory. Raises `Permanent` if it is not one."""
    try:
        template = json.loads((directory / f"{stack}.template.json").read_bytes())
        listed = json.loads((directory / f"{stack}.assets.json").read_bytes())["files"]
    except (OSError, ValueError, KeyError) as error:
        raise Permanent(
            f"no synthesised stack {stack}", where=str(directory), why=str(error), do="synthesise it again"
        ) from error
    assets = []
    for entry in listed.values():
        source = directory / entry["source"]["path"]
        if source.name == f"{stack}.template.json":
            continue
        for place in entry["destinations"].values():
            zipped = entry["source"]["packaging"] == "zip"
            assets.append(Asset(_literal(place["bucketName"]), _literal(place["objectKey"]), source, zipped))
    return Assembly(stack, with_environment(template, environment or FunctionEnvironment()), tuple(assets))


def with_environment(template: Mapping[str, Any], environment: FunctionEnvironment) -> dict[str, Any]:
    """A copy of the template whose functions are told the local values."""
    changed: dict[str, Any] = copy.deepcopy(dict(template))
    for resource in changed["Resources"].values():
        if resource["Type"] != "AWS::Lambda::Function":
            continue
        variables = resource.get("Properties", {}).get("Environment", {}).get("Variables", {})
        variables.update({name: value for name, value in environment.replace.items() if name in variables})
        if environment.add_where in variables:
            variables.update(environment.add)
    return changed


def _literal(name: str) -> str:
    return (
        name.replace("${AWS::AccountId}", ACCOUNT).replace("${AWS::Region}", REGION).replace("${AWS::Partition}", "aws")
    )


def _zip(directory: Path) -> bytes:
    """The same bytes for the same files: sorted, without times. Modules come with their bytecode: the emulator unpacks
    the zip for every worker it starts, and each would compile them all (0.2 CPU seconds of about 0.9)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                name, body = path.relative_to(directory).as_posix(), path.read_bytes()
                _add(archive, name, body, executable=os.access(path, os.X_OK))
                if path.suffix == ".py":
                    _add(archive, importlib.util.cache_from_source(name), _bytecode(name, body))
    return out.getvalue()


def _add(archive: zipfile.ZipFile, name: str, body: bytes, *, executable: bool = False) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o755 << 16 if executable else 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, body)


def _bytecode(name: str, source: bytes) -> bytes:
    """A .pyc that is taken as it is, whatever time the unpacked source gets (PEP 552, unchecked hash). Marshal's
    version 2 has no references between objects, so that the same source gives the same bytes."""
    code = compile(source, name, "exec", dont_inherit=True)
    flags = (0b01).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(source) + marshal.dumps(code, 2)
