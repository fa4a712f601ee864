"""Steers and reads a running simulator: for tests and for the command line. Standard library only."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tallybatch.domain.errors import BadInput, ProviderUnavailable


class SimulatorControl:
    """The control API of the simulator whose root is `url`, e.g. `http://127.0.0.1:4600`.

    Every method raises `ProviderUnavailable` if nobody answers there, `BadInput` if the simulator refuses.
    """

    def __init__(self, url: str, *, timeout_s: float = 10) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s

    def health(self) -> dict[str, Any]:
        """`{"status", "scenario", "time", "clock_scale", "providers"}`; `time` is virtual Unix seconds."""
        return self._call("GET", "/_sim/health")

    def journal(self) -> dict[str, Any]:
        """`{"creates", "jobs_per_marker", "tokens_billed", "tokens_per_marker", "batches", "calls", "faults", ...}`."""
        return self._call("GET", "/_sim/journal")

    def reset(self) -> None:
        """Forget jobs, files, journal and fault counters; keep the scenario."""
        self._call("POST", "/_sim/reset")

    def set_scenario(self, path_or_name: str | Path) -> dict[str, Any]:
        """Replace the scenario: a shipped one by name, or a YAML file of this machine by path."""
        path = Path(path_or_name)
        if path.suffix not in (".yaml", ".yml"):
            return self._call("PUT", f"/_sim/scenario?name={quote(str(path_or_name))}")
        return self.set_scenario_text(path.read_text(encoding="utf-8"), source=str(path))

    def set_scenario_text(self, text: str, *, source: str = "scenario") -> dict[str, Any]:
        """Replace the scenario by YAML text; `source` is the name that errors show."""
        return self._call("PUT", f"/_sim/scenario?source={quote(source)}", text.encode())

    def advance(self, seconds: float) -> float:
        """Move the virtual clock forward; returns the new time in Unix seconds."""
        return float(self._call("POST", "/_sim/clock/advance", json.dumps({"seconds": seconds}).encode())["time"])

    def _call(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self._timeout_s)
        try:
            connection.request(method, path, body or None)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ProviderUnavailable(
                "the simulator does not answer", where=self.url, why=str(error), do="see if it runs"
            ) from error
        finally:
            connection.close()
        try:
            document: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise ProviderUnavailable("this is no simulator", where=self.url, why=f"HTTP {answer.status}") from error
        if answer.status >= 400:
            raise BadInput(str(document.get("message", document)), where=self.url + path.split("?")[0])
        return document
