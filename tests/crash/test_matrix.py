"""A part of the crash matrix on every run of the tests; all of it is `poe prove`."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra.local.simulator.server import SimulatorServer
from tests.crash.matrix import MODELS, Matrix, matrices, providers
from tests.support.wire import Fault

EVERY = 14
PARTS = 2
"""Tests into which the runs are dealt, so that workers share them."""


@pytest.fixture(scope="module", params=[name for name in MODELS if name in providers()])
def matrix(emulator: str, request: pytest.FixtureRequest) -> Iterator[Matrix]:
    with matrices(emulator, [request.param]) as [made]:
        yield made


def test_given_a_job_when_it_runs_undisturbed_then_its_calls_and_faults_are_enumerated(matrix: Matrix) -> None:
    calls = matrix.undisturbed.calls
    points = [point for trial in matrix.trials() for point in trial]

    assert {"DynamoDB PutItem", "AWSStepFunctions StartExecution", "AWSEvents PutEvents"} <= {c.label for c in calls}
    assert any(call.of_s3 for call in calls)
    assert sum(call.made_job for call in calls) == 3
    assert len(points) > 3 * len(calls)
    struck = Counter((point.call.where, point.fault) for point in points)
    for call in calls:
        assert {fault for where, fault in struck if where == call.where} >= {Fault.BEFORE, Fault.AFTER, Fault.LOST}


@pytest.mark.parametrize("part", range(PARTS))
def test_given_a_crash_at_a_call_when_the_job_goes_on_then_nothing_is_lost_or_paid_twice(
    matrix: Matrix, part: int
) -> None:
    creates = matrix.creates()
    trials = [*creates, *(trial for trial in matrix.trials()[::EVERY] if trial not in creates)]

    found = list(matrix.violations(trials[part::PARTS]))

    assert [(point.call.label, point.fault.value, point.then, wrong) for point, wrong in found if wrong] == []


def test_given_servers_that_count_when_a_job_runs_then_they_saw_exactly_the_calls_that_the_harness_saw(
    emulator: str,
) -> None:
    with counting_relay(emulator) as (endpoint_url, heard), matrices(endpoint_url, providers()[:1]) as [matrix]:
        heard.clear()
        armed = matrix.ground.wire.armed

        @contextmanager
        def listening(task: str) -> Iterator[None]:
            """What the test itself asks between the tasks does not count."""
            before = len(heard)
            with armed(task):
                yield
            counted.extend(heard[before:])

        counted: list[str] = []
        matrix.ground.wire.armed = listening  # type: ignore[method-assign]
        life = matrix.live(())

    ours = [call for call in life.calls if call.origin == endpoint_url]
    assert len(counted) == len(ours) > 200
    assert Counter(line.split()[0] for line in counted)["PUT"] == sum(call.label.startswith("PUT ") for call in ours)
    theirs = [call for call in life.calls if call.origin == matrix.ground.simulator.url]
    assert sum(life.journal["calls"].values()) == len(theirs) > 10
    assert len(life.calls) == len(ours) + len(theirs)
    assert life.strays == ()


@contextmanager
def counting_relay(upstream: str) -> Iterator[tuple[str, list[str]]]:
    """A relay before a server that notes the first line of each request which passes it."""
    parts = urlsplit(upstream)
    heard: list[str] = []

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            threading.current_thread().name = "simulator's relay"
            with socket.create_connection((parts.hostname or "", parts.port or 80)) as server:
                back = threading.Thread(target=pump, args=(server, self.request, None), daemon=True)
                back.start()
                pump(self.request, server, heard)
                back.join(timeout=10)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Relay) as relay:
        threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{relay.server_address[1]}", heard
        relay.shutdown()


def pump(source: Any, sink: Any, heard: list[str] | None) -> None:
    """A client sends nothing before the answer to its last request: a request begins where a chunk does."""
    try:
        while data := source.recv(1 << 16):
            line = data.split(b"\r\n", 1)[0]
            if heard is not None and line.endswith(b" HTTP/1.1"):
                heard.append(line.decode())
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_given_a_connection_beside_the_counted_layers_when_a_task_opens_it_then_it_is_told(
    matrix: Matrix, simulator: SimulatorServer
) -> None:
    wire = matrix.ground.wire
    wire.begin({})

    with wire.armed("Rogue"):
        simulator.control.health()

    assert len(wire.strays) == 1
    assert wire.strays[0].startswith("Rogue ")
