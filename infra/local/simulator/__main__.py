"""`python -m infra.local.simulator --port 4600 --scenario demo`: the simulator as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from infra.local.simulator.core import Core
from infra.local.simulator.scenario import load_scenario, scenario_names
from infra.local.simulator.server import listening_socket, uvicorn_server
from infra.local.simulator.store import S3Store
from tallybatch.domain.errors import BadInput


def main() -> int:
    """Exit codes: 0 after Ctrl-C, 1 if the port is taken, 3 if the scenario is refused; SIGTERM ends it as such."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4600, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--scenario", default="demo", help=f"a YAML file, or one of {', '.join(scenario_names())}")
    parser.add_argument("--journal-dir", type=Path, help="append what happens to <provider>.jsonl in this directory")
    parser.add_argument("--clock-scale", type=float, default=1.0, help="virtual seconds per real second")
    parser.add_argument("--s3-endpoint", default="", help="where Bedrock's input and output are, on this machine")
    arguments = parser.parse_args()
    if arguments.clock_scale < 0:
        parser.error("--clock-scale must be 0 or more")
    try:
        scenario = load_scenario(arguments.scenario)
        store = S3Store(arguments.s3_endpoint) if arguments.s3_endpoint else None
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        return 3
    try:
        listener = listening_socket(arguments.host, arguments.port)
    except OSError as error:
        sys.stderr.write(f"cannot listen on {arguments.host}:{arguments.port}: {error}\n")
        return 1
    core = Core(scenario, clock_scale=arguments.clock_scale, journal_dir=arguments.journal_dir, store=store)
    url = f"http://{arguments.host}:{listener.getsockname()[1]}"
    bases = f"OpenAI {url}/openai/v1, Bedrock {url}/bedrock, Gemini {url}/gemini"
    sys.stderr.write(f"simulator ({scenario.name}) on {url}; base URLs: {bases}\n")
    sys.stderr.flush()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(uvicorn_server(core).serve(sockets=[listener]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
