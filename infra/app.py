"""Synthesis: `python -m infra.app` writes the cloud assembly to `cdk.out`, without Docker and without the CDK CLI.

`--context KEY=VALUE` sets an option of `infra.options.StackOptions` (repeatable), `--output DIR` another place. Run by
the CDK CLI (`cdk deploy --app "python -m infra.app"`) it takes context and output from that. The account and region are
CDK_DEFAULT_ACCOUNT and CDK_DEFAULT_REGION, or the context keys `account` and `region`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aws_cdk import App, Environment, Validations
from cdk_nag import AwsSolutionsChecks
from pydantic import ValidationError

from infra.bundling import BundlingError
from infra.constructs.functions import FunctionCode
from infra.options import StackOptions
from infra.stack import TallybatchStack

NO_ACCOUNT: Final = "000000000000"
DEFAULT_REGION: Final = "us-east-1"
DEFAULT_OUTPUT: Final = "cdk.out"
FEATURE_FLAGS: Final[Mapping[str, bool]] = {
    "@aws-cdk/aws-iam:minimizePolicies": True,
    "@aws-cdk/aws-s3:serverAccessLogsUseBucketPolicy": True,
    "@aws-cdk/core:enablePartitionLiterals": True,
}
"""They stand here, not in a cdk.json, so that every way to synthesise gives the same template."""


def build_app(
    context: Mapping[str, Any] | None = None, *, output: Path | None = None, code: FunctionCode | None = None
) -> App:
    """The app with its one stack, checked by cdk-nag when it is synthesised.

    Raises `ValidationError` for a wrong option and `BundlingError` if the functions cannot be packed.
    """
    app = App(
        outdir=str(output) if output else None,
        context=dict(context or {}),
        post_cli_context=dict(FEATURE_FLAGS),
        analytics_reporting=False,
    )
    environ, lookup = os.environ, app.node.try_get_context
    env = Environment(
        account=environ.get("CDK_DEFAULT_ACCOUNT") or lookup("account") or NO_ACCOUNT,
        region=environ.get("CDK_DEFAULT_REGION") or lookup("region") or DEFAULT_REGION,
    )
    options = StackOptions.from_context(app, stack=environ.get("TALLYBATCH_STACK", ""))
    TallybatchStack(app, options=options, env=env, code=code)
    Validations.of(app).add_plugins(AwsSolutionsChecks())
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m infra.app", description="Synthesise the stack.")
    parser.add_argument("--context", "-c", action="append", default=[], metavar="KEY=VALUE", help="set an option")
    parser.add_argument("--output", "-o", type=Path, metavar="DIR", help=f"where to (default: {DEFAULT_OUTPUT})")
    given = parser.parse_args(arguments)
    pairs = [entry.partition("=") for entry in given.context]
    wrong = [key for key, equals, _ in pairs if not equals]
    if wrong:
        parser.error(f"--context takes KEY=VALUE, not {wrong[0]!r}")
    known = {*StackOptions.model_fields, "account", "region"}
    for key in (key for key, _, _ in pairs if key not in known and not key.startswith("@aws-cdk/")):
        parser.error(f"--context: no option {key!r}; there are {', '.join(sorted(known))}")
    output = given.output or (None if "CDK_OUTDIR" in os.environ else Path(DEFAULT_OUTPUT))
    try:
        app = build_app({key: value for key, _, value in pairs}, output=output)
    except (ValidationError, BundlingError) as error:
        sys.exit(f"infra: {error}")
    app.synth()


if __name__ == "__main__":
    main()
