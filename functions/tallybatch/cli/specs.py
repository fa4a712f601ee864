"""`tallybatch spec …`: check, show and push spec files, and the schema by which editors complete them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.syntax import Syntax

from tallybatch.cli import output
from tallybatch.cli.files import read_file
from tallybatch.cli.options import AsJson, EndpointUrl, StackName, Tenant, connected
from tallybatch.domain.errors import BadInput, NotFound, Problem
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.layout import NAME, spec_key
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import REFUSED, parse_spec, resolved, spec_schema
from tallybatch.domain.yaml_file import read_yaml
from tallybatch.ports import Objects

app = typer.Typer(
    no_args_is_help=True,
    help="Spec files: what a job is to do.\n\nExample: `tallybatch spec check film-genre.yaml`",
)

SpecFile = Annotated[Path, typer.Argument(metavar="FILE", help="A spec, in YAML.")]


@dataclass(frozen=True, slots=True)
class CheckedSpec:
    spec: Spec
    data: bytes

    @property
    def digest(self) -> str:
        return sha256_hex(self.data)


@app.command()
def check(file: SpecFile, as_json: AsJson = False) -> None:
    """Read a spec and name everything that is wrong with it, with line and key. Exit code 3 if anything is.

    Example: `tallybatch spec check film-genre.yaml`
    """
    found = load_spec(file)
    spec = found.spec
    document = {
        "ok": True,
        "file": str(file),
        "name": spec.name,
        "provider": spec.provider,
        "model": spec.model_resolved,
        "prompt_version": spec.prompt_version,
        "schema_version": spec.output.schema_version,
        "spec_digest": found.digest,
    }
    output.answer(document, as_json=as_json, human=output.facts(list(document.items())))


@app.command()
def show(
    file: SpecFile,
    with_defaults: Annotated[
        bool, typer.Option("--resolved", help="Every key with its effective value, defaults included.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a spec as it is read.

    Example: `tallybatch spec show film-genre.yaml --resolved`
    """
    found = load_spec(file)
    values: dict[str, Any] = (
        resolved(found.spec) if with_defaults else read_yaml(found.data, file=str(file), what=REFUSED).data
    )
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    if as_json:
        output.answer(values, as_json=True)
    elif output.stdout().is_terminal:
        output.stdout().print(Syntax(text.rstrip("\n"), "yaml", background_color="default"))
    else:
        print(text, end="")


@app.command()
def schema(as_json: AsJson = False) -> None:
    """Print the JSON Schema of specs (with --json or without), for an editor's completion.

    Example: `tallybatch spec schema > tallybatch-spec.schema.json`
    """
    output.answer(spec_schema(), as_json=as_json)


@app.command()
def push(
    ctx: typer.Context,
    file: SpecFile,
    tenant: Tenant = "default",
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Check a spec and put it where jobs find it: specs/TENANT/NAME.yaml.

    Example: `tallybatch spec push film-genre.yaml --tenant acme`
    """
    found = load_spec(file)
    require_name(tenant, "--tenant")
    objects = connected(ctx, stack, endpoint_url).objects
    changed = push_spec(objects, tenant, found)
    document = {
        "tenant": tenant,
        "name": found.spec.name,
        "uri": objects.uri(spec_key(tenant, found.spec.name)),
        "spec_digest": found.digest,
        "changed": changed,
    }
    output.answer(document, as_json=as_json, human=output.facts(list(document.items())))


def load_spec(file: Path) -> CheckedSpec:
    """Raises `BadInput` with all that is wrong with the file."""
    data = read_file(file)
    return CheckedSpec(parse_spec(data, file=str(file)), data)


def push_spec(objects: Objects, tenant: str, found: CheckedSpec) -> bool:
    """False if it is there already, byte for byte."""
    key = spec_key(tenant, found.spec.name)
    try:
        if objects.get(key) == found.data:
            return False
    except NotFound:
        pass
    objects.put(key, found.data, content_type="application/yaml")
    return True


def pushed_spec(objects: Objects, tenant: str, name: str) -> CheckedSpec:
    """The spec as it is stored. Raises `NotFound`, or `BadInput` if somebody stored one that is wrong."""
    key = spec_key(tenant, name)
    try:
        data = objects.get(key)
    except NotFound:
        raise NotFound(
            f"tenant {tenant} has no spec {name}",
            where=objects.uri(key),
            do="put it there with `tallybatch spec push FILE --tenant …`, or give the path of its file as --spec",
        ) from None
    return CheckedSpec(parse_spec(data, file=objects.uri(key)), data)


def require_name(value: str, where: str) -> None:
    if not NAME.fullmatch(value):
        problem = Problem(f"{value!r} must match {NAME.pattern}", code="bad_name")
        raise BadInput("the name cannot be used", [problem], where=where, do="use letters, digits, `.`, `_` and `-`")
