"""The embedded default as one thing: `up`, `down`, `status`, `reset`. The commands and the tests call these.

`up` may be called at any time: it keeps what is right, mends what is not, and leaves nothing running if it fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from infra.local import assembly, deploy, emulator, processes, simulation, synth
from infra.local.loopback import REGION, Aws, free_port
from infra.local.state import State, StateDir
from tallybatch.domain.errors import BadInput, Permanent

STACK = "Tallybatch"
STATE_DIR = emulator.ROOT / ".tallybatch"
SIMULATED = ("openai", "bedrock", "gemini")
"""Providers whose traffic the simulator takes unless a URL sends it elsewhere."""

DUMMY_KEY = "local-simulator-key"
KEYS: Mapping[str, tuple[str, ...]] = {"openai": ("OPENAI_API_KEY",), "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY")}
"""Where a provider's key is looked for, in this order."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """`state` is up, degraded (some of it runs, or the stack is missing) or down. What is not there is None."""

    state: str
    endpoint_url: str | None = None
    region: str = REGION
    bucket: str | None = None
    table: str | None = None
    state_machine_arn: str | None = None
    simulator_url: str | None = None
    stack: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return asdict(self)


def up(
    state_dir: Path = STATE_DIR,
    *,
    provider_urls: Mapping[str, str] | None = None,
    scenario: str = "demo",
    wait_scale: float = emulator.WAIT_SCALE,
    assembly_dir: Path | None = None,
    stack: str = STACK,
    report: Report = lambda _: None,
) -> LocalStatus:
    """Everything running and deployed; returns at once if it is so already.

    `provider_urls` sends a provider's traffic to another server than the simulator, with the key in the environment:
    nothing else ever spends money. `assembly_dir` deploys a ready-made assembly instead of synthesising the stack.
    Raises `BadInput` for a wrong argument, `Permanent` with the reason and the end of the log when it does not work.
    """
    urls = checked_urls(provider_urls or {})
    where = StateDir(Path(state_dir).resolve())
    with where.lock():
        state = where.load()
        started: list[str] = []
        try:
            _ensure_emulator(where, state, wait_scale, started, report)
            _ensure_simulator(where, state, urls, scenario, started, report)
            directory = assembly_dir or synth.synthesise(where.assemblies, where.logs / "synth.log", report)
            _deploy(where, state, directory, stack, urls, report)
        except BaseException:
            _end(where, state, started)
            raise
        return _status(state)


def down(state_dir: Path = STATE_DIR, *, report: Report = lambda _: None) -> LocalStatus:
    """End every process of this state directory, also those that a killed command left behind. Data is kept; an
    execution that runs at this moment is marked as failed by the emulator (States.ServiceRestart)."""
    where = StateDir(Path(state_dir).resolve())
    if not where.root.is_dir():
        return LocalStatus("down")
    with where.lock():
        state = where.load()
        _end(where, state, ["simulator", "emulator"], report)
        return _status(state)


def status(state_dir: Path = STATE_DIR) -> LocalStatus:
    """What runs now, asked of the processes themselves."""
    return _status(StateDir(Path(state_dir).resolve()).load())


def reset(state_dir: Path = STATE_DIR, *, report: Report = lambda _: None) -> LocalStatus:
    """`down`, and forget all data: objects, ledger, the simulator's jobs. Synthesised stacks are kept."""
    stopped = down(state_dir, report=report)
    where = StateDir(Path(state_dir).resolve())
    if where.root.is_dir():
        with where.lock():
            for directory in (where.emulator, where.journal, where.logs):
                shutil.rmtree(directory, ignore_errors=True)
            where.file.unlink(missing_ok=True)
        report("all local data is gone")
    return stopped


def checked_urls(provider_urls: Mapping[str, str]) -> dict[str, str]:
    """Provider name to base URL. Raises `BadInput` for a provider or URL that cannot be used."""
    for name, url in provider_urls.items():
        if name not in SIMULATED:
            raise BadInput(f"no provider {name}", where="--provider-url", do=f"use one of {', '.join(SIMULATED)}")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"{url!r} is no http(s) URL", where=f"--provider-url {name}", do="e.g. http://host:8000/v1")
    return {name: url.rstrip("/") for name, url in provider_urls.items()}


def openai_target(urls: Mapping[str, str], simulator_port: int, host: Mapping[str, str]) -> tuple[str, str]:
    """Base URL and key for OpenAI. A key in `host` goes only where an explicit URL sends it, never to the simulator,
    and without such a URL nothing but the simulator is called."""
    if "openai" in urls:
        return urls["openai"], _key("openai", host)
    return simulation.openai_url(simulator_port), DUMMY_KEY


def gemini_target(urls: Mapping[str, str], simulator_port: int, host: Mapping[str, str]) -> tuple[str, str]:
    """The same for Gemini, whose key is GEMINI_API_KEY or GOOGLE_API_KEY, as its SDK has it."""
    if "gemini" in urls:
        return urls["gemini"], _key("gemini", host)
    return simulation.gemini_url(simulator_port), DUMMY_KEY


def _key(name: str, host: Mapping[str, str]) -> str:
    return next((host[key] for key in KEYS[name] if host.get(key)), DUMMY_KEY)


def _ensure_emulator(where: StateDir, state: State, wait_scale: float, started: list[str], report: Report) -> None:
    running = state.emulator
    if running and running.alive and state.wait_scale == wait_scale and emulator.healthy(_endpoint(state)):
        return
    if running and running.alive:
        report("the emulator runs but does not fit: starting it again")
    _end(where, state, ["emulator"])
    config = emulator.Emulator(
        free_port(state.emulator_port), where.emulator, where.logs / "emulator.log", wait_scale=wait_scale
    )
    report("starting the AWS emulator")
    started.append("emulator")
    state.emulator, lost = emulator.start(config)
    state.emulator_port, state.wait_scale = config.port, wait_scale
    where.save(state)
    if lost:
        report("the emulator was killed the last time and could not save its state: it begins empty")


def _ensure_simulator(
    where: StateDir, state: State, urls: Mapping[str, str], scenario: str, started: list[str], report: Report
) -> None:
    wanted = any(name not in urls for name in SIMULATED)
    running = state.simulator
    port = state.simulator_port
    scenario, identity = simulation.scenario_identity(scenario)
    identity = f"{identity} {_endpoint(state)}"
    if wanted and running and running.alive and state.scenario == identity and port and simulation.healthy(port):
        return
    _end(where, state, ["simulator"])
    if not wanted:
        return
    port = free_port(port)
    report(f"starting the provider simulator (scenario {scenario})")
    started.append("simulator")
    state.simulator = simulation.start(
        port, scenario, where.journal, where.logs / "simulator.log", s3_endpoint=_endpoint(state)
    )
    state.simulator_port, state.scenario = port, identity
    where.save(state)


def _deploy(
    where: StateDir, state: State, directory: Path, stack: str, urls: Mapping[str, str], report: Report
) -> None:
    openai, openai_key = openai_target(urls, state.simulator_port or 0, os.environ)
    gemini, gemini_key = gemini_target(urls, state.simulator_port or 0, os.environ)
    bedrock = urls.get("bedrock") or simulation.bedrock_url(state.simulator_port or 0)
    read = assembly.read(directory, stack, assembly.local_environment(openai, gemini, bedrock_url=bedrock))
    secrets = {"OpenAISecret": openai_key, "GeminiSecret": gemini_key}
    try:
        deployed = deploy.deploy(_endpoint(state), read, secrets=secrets, report=report)
    except (ClientError, BotoCoreError) as error:
        raise Permanent("the emulator refused a call", where=f"stack {stack}", why=str(error)) from error
    if not deployed.changed:
        report(f"{stack} is deployed already, unchanged")
    for line in new_routes(state.provider_urls, urls, os.environ):
        report(line)
    state.stack, state.provider_urls = stack, dict(urls)
    where.save(state)


def new_routes(before: Mapping[str, str], urls: Mapping[str, str], host: Mapping[str, str]) -> list[str]:
    """Where calls go that have not gone there until now: money may hang on it."""
    told = []
    for name, url in urls.items():
        if before.get(name) == url:
            continue
        keys = KEYS.get(name, ())
        found = next((key for key in keys if host.get(key)), "")
        missing = f"; {' or '.join(keys)} is not set, so without a key" if keys else ""
        told.append(f"{name}: calls go to {url}" + (f", with {found}: this may cost money" if found else missing))
    return [*told, *(f"{name}: calls go to the simulator again" for name in before if name not in urls)]


def _end(where: StateDir, state: State, names: list[str], report: Report = lambda _: None) -> None:
    """End the named processes, remembered or found by their command line."""
    try:
        if "simulator" in names:
            for running in {*filter(None, [state.simulator]), *simulation.strays(where.journal)}:
                processes.stop(running)
            state.simulator = None
        if "emulator" in names:
            for running in {*filter(None, [state.emulator]), *emulator.strays(where.emulator)}:
                if running.alive and not emulator.stop(running):
                    report("the emulator had to be killed: its state is lost")
            state.emulator = None
    finally:
        where.save(state)


def _endpoint(state: State) -> str:
    return f"http://127.0.0.1:{state.emulator_port}"


def _status(state: State) -> LocalStatus:
    emulated = bool(state.emulator and state.emulator.alive and emulator.healthy(_endpoint(state)))
    simulated = bool(
        state.simulator and state.simulator.alive and state.simulator_port and simulation.healthy(state.simulator_port)
    )
    needed = any(name not in state.provider_urls for name in SIMULATED)
    deployed = deploy.outputs(Aws(_endpoint(state)), state.stack) if emulated and state.stack else {}
    if emulated and deployed and (simulated or not needed):
        word = "up"
    else:
        word = "degraded" if emulated or simulated else "down"
    return LocalStatus(
        state=word,
        endpoint_url=_endpoint(state) if emulated else None,
        bucket=deployed.get("Bucket"),
        table=deployed.get("Table"),
        state_machine_arn=deployed.get("StateMachineArn"),
        simulator_url=simulation.url(state.simulator_port) if simulated and state.simulator_port else None,
        stack=state.stack if deployed else None,
    )
