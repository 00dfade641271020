"""One process of the load tool: its clients, its schedule, its logs.

    python -m brokerweave.bench.load.worker      reads its plan and then the moment to begin, a line each

It prints lines of JSON: `ready`, then how far it is once a second, then its result. Invariants: messages are
sent by the clock whether or not earlier ones arrived (open loop); it ends by itself, soon after the plan's
end or when its input ends. Must not know: what it measures, or that there are other workers.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
from typing import Any

from brokerweave.bench.folder import L_CLIENT, T_CLIENT
from brokerweave.bench.load.clients import LoadConnection, LoadPublisher, LoadSubscriber, opened
from brokerweave.bench.load.logs import ReceiveLog, SendLog, write_sends
from brokerweave.bench.load.plan import PlannedClient, WorkerPlan
from brokerweave.bench.load.returning import Returning
from brokerweave.bench.load.sockets import retransmissions
from brokerweave.bench.load.tally import Tally
from brokerweave.errors import BrokerweaveError, Unavailable

_DRAIN = 30.0
"""Seconds that what is still under way may take at the end: it is late, and only what never comes is lost."""
_QUIET = 0.5
"""Who heard nothing for this long, and has nothing left to send, has heard all, ..."""
_QUIET_BACK = 3.0
"""... or for this long, where clients come back and are sent what they missed."""
_HASTE = -15
"""The load goes before everybody else where it may: it stands for machines of its own."""


class LoadStream:
    """The publishers of one kind, taking turns on one schedule."""

    def __init__(self, clients: list[PlannedClient], interval: float) -> None:
        self.clients = sorted(clients, key=lambda client: client.phase)
        self._interval = interval * 1e9
        self._count = len(clients)
        self.publishers: list[LoadPublisher] = []
        self.log = SendLog(self.clients, interval, 0)
        self.next_due = 0

    def begin(self, at: int) -> None:
        self.log.began = at
        self._set_next(0)

    def _set_next(self, turn: int) -> None:
        message, of = divmod(turn, self._count)
        self.next_due = self.log.began + int((message + self.clients[of].phase) * self._interval)

    def publish_due(self, now: int, backlogged: set[LoadConnection]) -> None:
        sent = self.log.sent
        while self.next_due <= now:
            turn = len(sent)
            message, of = divmod(turn, self._count)
            publisher = self.publishers[of]
            moment = time.monotonic_ns()
            publisher.publish(message, turn, moment)
            sent.append(moment)
            if publisher.backlog:
                backlogged.add(publisher)
            self._set_next(turn + 1)

    def acknowledged(self, turn: int) -> None:
        self.log.acked[turn] = time.monotonic_ns()


class Worker:
    def __init__(self, plan: WorkerPlan) -> None:
        self.plan = plan
        self.streams = [
            LoadStream(clients, plan.interval_of(kind))
            for kind in (T_CLIENT, L_CLIENT)
            if (clients := [c for c in plan.clients if c.publishes and c.kind == kind])
        ]
        listening = [client for client in plan.clients if not client.publishes]
        self.subscribers = [
            LoadSubscriber(client, sock, plan, place)
            for place, (client, sock) in enumerate(zip(listening, opened(plan, listening), strict=True))
        ]
        for stream in self.streams:
            for client, sock in zip(stream.clients, opened(plan, stream.clients), strict=True):
                stream.publishers.append(LoadPublisher(client, sock, plan, stream.acknowledged))
        everybody: list[LoadPublisher | LoadSubscriber] = [*self.subscribers]
        everybody += [each for stream in self.streams for each in stream.publishers]
        self.by_file = {each.sock.fileno(): each for each in everybody}
        self._poll = select.epoll()
        for file in self.by_file:
            self._poll.register(file, select.EPOLLIN)
        self._backlogged: set[LoadConnection] = set()
        self._returning = Returning(plan) if plan.addresses else None
        self._arrived = 0
        self._last_arrival = 0

    def run(self, begin: int) -> dict[str, Any]:
        """Everything from `begin` (nanoseconds) on; what was counted."""
        plan = self.plan
        window = begin + int(plan.warm_up * 1e9), begin + int((plan.warm_up + plan.measured) * 1e9)
        self.tally = Tally(plan, *window)
        self.log = ReceiveLog(plan, [each.length for each in self.subscribers], self.tally, begin)
        for stream in self.streams:
            stream.begin(begin)
        time.sleep(max(0.0, begin / 1e9 - time.monotonic()))
        cpu = self._play(begin, window)
        self._drain()
        self.log.close()
        counted = write_sends(plan, [stream.log for stream in self.streams], *window)
        latencies = self.tally.latencies()
        latencies.tofile(f"{plan.folder}/latencies-{plan.worker}")
        again = retransmissions(each.sock for each in self.by_file.values())
        return {**counted, **self.tally.result(), "cpu_share": cpu, "retransmissions": again}

    def _play(self, begin: int, window: tuple[int, int]) -> float:
        """Publish and listen until the plan's end; the share of a core that this took in the window."""
        end = begin + int(self.plan.total * 1e9)
        second = begin + 1_000_000_000
        used, marks = 0.0, list(window)
        while (now := time.monotonic_ns()) < end:
            for stream in self.streams:
                stream.publish_due(now, self._backlogged)
            self._flush()
            self._welcome()
            if marks and now >= marks[0]:
                used = time.process_time() - used
                marks.pop(0)
            if now >= second:
                self._tell()
                second += 1_000_000_000
            self._wait(now, end)
        return (time.process_time() - used if marks else used) / self.plan.measured

    def _wait(self, now: int, end: int) -> None:
        """Let time pass until the next look, and take in what came."""
        if self.plan.tick and self.plan.eager:
            until = min(now + int(self.plan.tick * 1e9), end)
            while (left := until - time.monotonic_ns()) > 0:
                self._receive(left / 1e9)
            return
        if self.plan.tick:
            time.sleep(max(0.0, self.plan.tick - (time.monotonic_ns() - now) / 1e9))
            self._receive(0.0)
            return
        until = min([end, *(stream.next_due for stream in self.streams)])
        if self._backlogged:
            until = min(until, now + 1_000_000)
        self._receive(max(0.0, (until - time.monotonic_ns()) / 1e9))

    def _receive(self, timeout: float) -> None:
        for file, _ in self._poll.poll(timeout, len(self.by_file)):
            client = self.by_file[file]
            try:
                self._take_in(client)
            except (ConnectionError, Unavailable):
                if self._returning is None:
                    raise
                self._poll.unregister(file)
                del self.by_file[file]
                self._backlogged.discard(client)
                client.leave()
                self._returning.wants(client)

    def _take_in(self, client: LoadPublisher | LoadSubscriber) -> None:
        frames = client.receive()
        # An acknowledgement counts, too: more of what waits for one is under way.
        self._last_arrival = now = time.monotonic_ns()
        if frames and isinstance(client, LoadSubscriber):
            self._arrived += len(frames) // client.length[0]
            self.log.add(now, client.place, frames)
        if client.backlog:
            self._backlogged.add(client)

    def _welcome(self) -> None:
        """Clients that found another address."""
        for client, sock in self._returning.back() if self._returning is not None else ():
            client.connected(sock)
            self.by_file[sock.fileno()] = client
            self._poll.register(sock.fileno(), select.EPOLLIN)
            if client.backlog:
                self._backlogged.add(client)

    def _flush(self) -> None:
        if self._backlogged:
            self._backlogged = {each for each in self._backlogged if not each.flush()}

    def _drain(self) -> None:
        end = time.monotonic_ns() + int(_DRAIN * 1e9)
        usual = _QUIET_BACK if self._returning is not None else _QUIET
        quiet = int((usual if self.plan.quiet is None else self.plan.quiet) * 1e9)
        self._last_arrival = time.monotonic_ns()
        while (now := time.monotonic_ns()) < end and (
            (self._backlogged and quiet) or now - self._last_arrival < quiet
        ):
            self._flush()
            self._welcome()
            self._receive(0.01)

    def _tell(self) -> None:
        say({"sent": sum(len(stream.log.sent) for stream in self.streams), "received": self._arrived})


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends us, in good order
    with contextlib.suppress(PermissionError):
        os.nice(_HASTE)
    try:
        worker = Worker(WorkerPlan.from_dict(json.loads(sys.stdin.readline())))
        say({"ready": True})
        begin = sys.stdin.readline()
        if not begin:
            return 1
        # What stands now stands to the end, and a run makes no cycles: no pause may come between sends.
        gc.collect()
        gc.freeze()
        gc.disable()
        say({"result": worker.run(int(begin))})
    except (BrokerweaveError, OSError, MemoryError) as error:
        with contextlib.suppress(OSError):
            say({"error": " ".join(str(error).split()) or "out of memory"})
        os._exit(1)  # what is half written stays so: to finish it might fail once more, and loudly
    return 0


if __name__ == "__main__":
    sys.exit(main())
