"""Sites that record, publishers that never give up, and a pipeline's driver that can be killed.

Owns processes and threads, and who was acknowledged what. Invariants: every wait is bounded; a publisher
does over a lost connection what paho does: it sends again, marked, what was not acknowledged. Must not know:
what a test expects of the lake.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from brokerweave import lab
from brokerweave.edgelog.layout import Position
from brokerweave.lab.broker import HOST, free_port
from brokerweave.lab.node import LabNode
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, Publish
from brokerweave.pipeline.lake.notes import LakeNotes
from tests.support.clients import end
from tests.support.sites import start_all, start_broker
from tests.support.waiting import LIMIT, wait_until

IN_FLIGHT = 20
"""Messages that a publisher sends before it waits for an acknowledgement."""
PATIENCE = 600.0
"""Seconds for what needs Spark, on a machine that does much else. Reached only by a test that fails."""


@dataclass
class RecordingSite:
    name: str
    broker: lab.Broker
    node: LabNode
    address: str

    def freeze_service(self) -> None:
        os.kill(self.service, signal.SIGSTOP)

    def thaw_service(self) -> None:
        os.kill(self.service, signal.SIGCONT)

    @property
    def service(self) -> int:
        """The process id of its Flight service."""
        return int(self.node.status()["flight"]["pid"])

    def wait_for_service(self) -> None:
        self.node.wait_for(lambda status: status["flight"]["state"] == "running", "its service", LIMIT)


@contextlib.contextmanager
def recording_sites(
    brokers: Mapping[str, str], settings: Mapping[str, Mapping[str, object]] | None = None
) -> Iterator[dict[str, RecordingSite]]:
    """One site for each name, with that kind of broker; it records s/#."""
    with contextlib.ExitStack() as stack:
        running: dict[str, lab.Broker] = {}
        with ThreadPoolExecutor(len(brokers)) as pool:
            starts = {name: pool.submit(start_broker, kind) for name, kind in brokers.items()}
        for name, start in starts.items():
            if start.exception() is None:
                running[name] = start.result()
                stack.callback(running[name].close)
        for start in starts.values():
            start.result()  # or why not, or a skip
        sites = {}
        for name in brokers:
            address = f"{HOST}:{free_port()}"
            keys: dict[str, Mapping[str, object]] = {
                "edge_log": {"fsync_interval": 0.1},
                "flight": {"listen": address},
                **(settings or {}),
            }
            node = LabNode(name, running[name].port, settings=keys, taps=("s/#",))
            stack.callback(node.close)
            sites[name] = RecordingSite(name, running[name], node, f"grpc://{address}")
        start_all([site.node.start for site in sites.values()])
        for site in sites.values():
            site.wait_for_service()
        yield sites
        for site in sites.values():
            assert "Traceback" not in site.node.log_tail(10_000)


class Publisher:
    """Publishes numbered messages with QoS 1, as many as `allow` lets it; knows which were answered."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self.acknowledged: set[str] = set()
        self.reconnects = -1
        self._allowed = 0
        self._sent = 0
        self._waiting: dict[int, str] = {}
        self._early: set[int] = set()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._ending = False
        self._client = paho.Client(CallbackAPIVersion.VERSION2, f"sensor-{name}", clean_session=False)
        self._client.max_inflight_messages_set(IN_FLIGHT)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_publish = self._answered
        self._client.on_connect = self._connected
        self._client.connect(HOST, port)
        self._client.loop_start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def allow(self, total: int) -> None:
        """Go on up to so many messages altogether."""
        with self._work:
            self._allowed = total
            self._work.notify()

    def unanswered(self) -> set[str]:
        with self._lock:
            return set(self._waiting.values())

    @property
    def answered(self) -> int:
        with self._lock:
            return len(self.acknowledged)

    def close(self) -> None:
        with self._work:
            self._ending = True
            self._work.notify()
        self._thread.join(LIMIT)
        end(self._client)

    def _connected(self, *_: object) -> None:
        self.reconnects += 1

    def _run(self) -> None:
        while True:
            with self._work:
                # What paho queues itself is unanswered too; keep that short, so that it tells what was sent.
                ready = self._work.wait_for(
                    lambda: (
                        self._ending or (self._sent < self._allowed and len(self._waiting) < 2 * IN_FLIGHT)
                    ),
                    1,
                )
                if self._ending:
                    return
                if not ready:
                    continue
                self._sent += 1
                number = self._sent
            identifier = f"{self.name}-{number}"
            payload = json.dumps({"id": identifier, "n": number, "t": 20 + number % 7 / 2})
            # Not under the lock: paho holds one of its own while it tells of an acknowledgement.
            info = self._client.publish(f"s/{self.name}/{number % 5}", payload, 1)
            with self._lock:
                if info.mid in self._early:
                    self._early.discard(info.mid)
                    self.acknowledged.add(identifier)
                else:
                    self._waiting[info.mid] = identifier

    def _answered(self, _client: Any, _data: Any, mid: int, *_: object) -> None:
        with self._work:
            identifier = self._waiting.pop(mid, None)
            if identifier is None:
                self._early.add(mid)
            else:
                self.acknowledged.add(identifier)
            self._work.notify()


class Pulse:
    """Publishes at a steady rate with QoS 1 over one connection; `trouble` is what a client notices."""

    def __init__(self, port: int, name: str, rate: int, payload: Callable[[int], bytes]) -> None:
        self.sent = self.answered = 0
        self.trouble = ""
        self._name, self._rate, self._payload = name, rate, payload
        self._ending = threading.Event()
        self._socket = socket.create_connection((HOST, port), timeout=LIMIT)
        self._socket.sendall(codec.encode(Connect(f"pulse-{name}", 4), 4))
        assert self._socket.recv(4)[:1] == b"\x20"
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._listen)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        began, before = time.monotonic(), 0
        try:
            while not self._ending.wait(0.05):
                due = int((time.monotonic() - began) * self._rate)
                frames = [self._frame(number) for number in range(before, due)]
                self._socket.sendall(b"".join(frames))
                self.sent = before = due
        except OSError as error:
            self.trouble = f"{self._name}: {error}"

    def _frame(self, number: int) -> bytes:
        topic = f"s/{self._name}/{number % 5}"
        return codec.encode(Publish(topic, self._payload(number), 1, packet_id=number % 65_535 + 1), 4)

    def _listen(self) -> None:
        held = 0
        try:
            while data := self._socket.recv(65_536):
                held += len(data)
                self.answered, held = self.answered + held // 4, held % 4  # a PUBACK has four bytes
            if not self._ending.is_set():
                self.trouble = f"{self._name}: the connection was ended"
        except OSError as error:
            if not self._ending.is_set():
                self.trouble = f"{self._name}: {error}"

    def finish(self) -> None:
        """Stop publishing, and wait until all of it is acknowledged."""
        self._ending.set()
        self._threads[0].join(LIMIT)
        wait_until(lambda: self.answered >= self.sent, f"{self.sent} acknowledgements; {self.answered}")
        self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[1].join(LIMIT)
        self._socket.close()


@dataclass
class Driver:
    """`brokerweave pipeline run`, in a process group of its own."""

    lake: Path
    checkpoint: Path
    addresses: Sequence[str]
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        return self.lake.with_name(self.lake.name + ".output")

    def start(self, trigger: str = "1 second") -> None:
        command = [sys.executable, "-m", "brokerweave", "pipeline", "run", "--master", "local[2]"]
        command += ["--nodes", ",".join(self.addresses), "--to", str(self.lake), "--trigger", trigger]
        command += ["--checkpoint", str(self.checkpoint), *self.options]
        with self.output.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def kill(self) -> None:
        """The whole group, at once."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(LIMIT)
            self.process = None

    def terminate(self) -> int:
        """Politely; the code it ends with."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        self.process = None
        return code

    def finish(self, seconds: float = PATIENCE) -> int:
        assert self.process is not None
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the driver did not end in {seconds:g} s; it said:\n{self.said()}"
            ) from None
        self.process = None
        return code

    def run(self, trigger: str = "available-now") -> int:
        self.start(trigger)
        return self.finish()

    def said(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    def held(self) -> dict[str, Position]:
        """How far the lake is, by node."""
        return {note.node: note.held for note in LakeNotes(self.lake).logs().values()}

    def wait_for(self, condition: Callable[[dict[str, Position]], bool], what: str) -> None:
        """Until the lake is as far as that, or the driver has ended."""

        def there() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the driver ended; it said:\n{self.said()}"
            return condition(self.held())

        try:
            wait_until(there, what, PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}; the lake is at {self.held()}; it said:\n{self.said()}") from None

    def wait_for_more(self, nodes: Sequence[str], before: Mapping[str, Position] | None = None) -> None:
        """Until it brought more of each of these nodes than `before`, or than the lake has now."""
        before = self.held() if before is None else before
        least = Position(0, 0)
        self.wait_for(
            lambda held: all(held.get(node, least) > before.get(node, least) for node in nodes),
            f"more rows of {', '.join(nodes)}",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if kind is not None:
            print(f"the driver said:\n{self.said()[-5000:]}")


def wait_for_answers(publishers: Sequence[Publisher], total: int, seconds: float = PATIENCE) -> None:
    def all_there() -> bool:
        time.sleep(0.05)
        return all(each.answered >= total for each in publishers)

    wait_until(all_there, f"{total} acknowledgements for each publisher", seconds)
