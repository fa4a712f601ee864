"""Runs the emulator with the few places mended where it behaves unlike AWS in a way that our workflow depends on.

`python -m infra.local.launcher --data-dir DIR [--with-parent]`, configured by the environment (see `emulator.py`).
Each mend is an exact replacement in the emulator's source. A text that is not there once (another version) ends the
start with an error: running on silently would let retries be tested against names that AWS never sends.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

CLEAN_EXIT = "clean-exit"
"""Written into the data directory when all state was saved; absent after a kill."""


class MendDoesNotFit(RuntimeError):
    """The emulator's source is not the one that the mends were written for."""


@dataclass(frozen=True, slots=True)
class Mend:
    module: str
    old: str
    new: str
    reason: str


MENDS = (
    Mend(
        "ministack.core.lambda_runtime",
        '{"status": "error", "error": str(e), "trace": traceback.format_exc()}',
        '{"status": "error", "error": str(e), "error_type": type(e).__name__, "trace": traceback.format_exc()}',
        "AWS names a failed invocation by the exception's class; ErrorEquals matches that name",
    ),
    Mend(
        "ministack.core.lambda_runtime",
        '            if response.get("status") == "error":\n                proc, self._proc = self._proc, None',
        '            if response.get("status") == "error" and "error_type" not in response:\n'
        "                proc, self._proc = self._proc, None",
        "AWS keeps the execution environment after an exception, and only replaces one that died",
    ),
    Mend(
        "ministack.services.lambda_svc",
        '            error_type = "Runtime.HandlerError"\n            if _RIE_TIMEOUT_TEXT_RE.fullmatch(error_msg):',
        '            error_type = result.get("error_type") or "Runtime.HandlerError"\n'
        '            if error_msg == "Worker process died":\n'
        '                error_type = "Runtime.ExitError"\n'
        "            if _RIE_TIMEOUT_TEXT_RE.fullmatch(error_msg):",
        "the class name has to reach the answer of Invoke; AWS names a process that ended Runtime.ExitError",
    ),
    Mend(
        "ministack.services.eventbridge",
        "    threading.Thread(\n"
        "        target=lambda_svc._execute_function_with_config_scope, args=(exec_record, event), daemon=True\n"
        "    ).start()\n",
        "    lambda_svc.invoke_async_with_retry(exec_record, event)\n",
        "EventBridge invokes a function asynchronously: two more tries, then the dead-letter queue",
    ),
    Mend(
        "ministack.services.stepfunctions",
        '    max_conc = int(state_def.get("MaxConcurrency") or 0)\n',
        '    max_conc = state_def.get("MaxConcurrency")\n'
        '    if "MaxConcurrencyPath" in state_def:\n'
        '        max_conc = _resolve_path_or_ctx(state_def["MaxConcurrencyPath"], effective, ctx)\n'
        "    max_conc = int(max_conc or 0)\n",
        "a distributed Map runs as many children as MaxConcurrencyPath says, not up to 64 at once",
    ),
    Mend(
        "ministack.services.stepfunctions",
        '                    resource, effective, ctx["Task"]["Token"], state_def)\n',
        '                    resource, effective, ctx["Task"]["Token"],\n'
        "                    _apply_jsonata_template(\n"
        '                        {key: value for key, value in state_def.items() if key == "TimeoutSeconds"},\n'
        "                        raw_input, ctx))\n",
        "TimeoutSeconds may be a JSONata expression",
    ),
    Mend(
        "ministack.services.stepfunctions",
        "            _call_lambda(func_ref, lambda_payload)\n        except _ExecutionError:\n            pass\n",
        "            _call_lambda(func_ref, lambda_payload)\n        except _ExecutionError:\n"
        "            _task_tokens.pop(token, None)\n            raise\n",
        "a task that waits for a token fails at once when the function that takes the token away does",
    ),
)


def mended_source(name: str, source: str) -> str:
    """`source` of the emulator's module `name` with its mends. Raises `MendDoesNotFit`."""
    for mend in MENDS:
        if mend.module == name:
            if source.count(mend.old) != 1:
                raise MendDoesNotFit(
                    f"{name} holds the text to be mended {source.count(mend.old)} times instead of once "
                    f"({mend.reason}): adapt infra/local/launcher.py to this version of ministack, or pin the former"
                )
            source = source.replace(mend.old, mend.new)
    return source


def apply_mends() -> None:
    """Load the mended modules before anything imports the originals."""
    for name in dict.fromkeys(mend.module for mend in MENDS):
        if name in sys.modules:
            raise MendDoesNotFit(f"{name} was imported before it could be mended")
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise MendDoesNotFit(f"{name} is not part of the installed ministack")
        code = compile(mended_source(name, Path(spec.origin).read_text()), spec.origin, "exec")
        module = ModuleType(name)
        module.__file__, module.__spec__, module.__loader__ = spec.origin, spec, spec.loader
        module.__package__ = spec.parent or ""
        sys.modules[name] = module
        exec(code, module.__dict__)  # noqa: S102  the emulator's own source, with the replacements above
        parent, _, child = name.rpartition(".")
        setattr(importlib.import_module(parent), child, module)


def end_with_parent(parent: int) -> None:
    """End this process as soon as `parent` is gone: a test run that is killed leaves no emulator behind."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m infra.local.launcher", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="where state is kept and this process is known by")
    parser.add_argument("--with-parent", type=int, default=0, metavar="PID", help="end when this parent process ends")
    options = parser.parse_args()
    clean_exit = options.data_dir / CLEAN_EXIT
    if options.with_parent:
        end_with_parent(options.with_parent)
    apply_mends()
    emulator = importlib.import_module("ministack.app")
    sys.argv = ["ministack"]
    was_clean = clean_exit.exists()
    clean_exit.unlink(missing_ok=True)
    try:
        emulator.main()
    except SystemExit:
        # Only before it serves, e.g. for a busy port: what is stored was not touched.
        if was_clean:
            clean_exit.touch()
        raise
    clean_exit.touch()


if __name__ == "__main__":
    main()
