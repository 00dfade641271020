"""The load of a storm: clients that are moved, and those at the other end of their messages.

Owns the connections, their schedule and what was seen of each message. Invariants: a message goes out by the
clock, whether or not earlier ones arrived; nobody but this thread touches a connection once `run` has begun.
Must not know: moves, what the logs mean.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from brokerweave.bench.folder import HEADER, RECEIVES, SENDS, T_CLIENT
from brokerweave.bench.load.clients import LoadConnection, LoadPublisher, LoadSubscriber, opened
from brokerweave.bench.load.plan import PlannedClient, WorkerPlan
from brokerweave.bench.migration.network import RegionNetwork
from brokerweave.bench.migration.records import RunClient
from brokerweave.bench.migration.scenario import CENTRAL, PAYLOAD, WEST
from brokerweave.errors import BrokerweaveError

PUBLISHER_EVERY = 5
"""Each fifth of those that move publishes."""
_TICK = 0.001
_END = 1 << 62


class StormLog:
    """What was sent, and what came."""

    def __init__(self) -> None:
        self._sent: list[list[int]] = []
        self._got: list[tuple[int, int, int, int, int, int]] = []

    @property
    def turn(self) -> int:
        """Of the next message."""
        return len(self._sent)

    def sent(self, client: PlannedClient, message: int, due: int, moment: int) -> None:
        self._sent.append([client.number, message, client.topic, T_CLIENT, due, moment, 0, 1])

    def acknowledged(self, turn: int) -> None:
        self._sent[turn][6] = time.monotonic_ns()

    def came(self, client: PlannedClient, headers: bytes) -> None:
        now = time.monotonic_ns()
        for publisher, message, _ in HEADER.iter_unpack(headers):
            self._got.append((client.number, publisher, message, client.topic, T_CLIENT, now))

    def sends(self) -> pa.Table:
        return _table(self._sent, SENDS)

    def receives(self) -> pa.Table:
        return _table(self._got, RECEIVES)


class StormLoad:
    def __init__(
        self,
        count: int,
        qos: int,
        interval: float,
        network: RegionNetwork,
        ports: Mapping[str, tuple[str, int]],
    ) -> None:
        """`ports`: of the gateway, in eu-west, and of the site in eu-central."""
        self.label = f"storm{time.monotonic_ns() % 10**9}"
        self.failure = ""
        self._interval = int(interval * 1e9)
        self._count = count
        self.log = StormLog()
        self._lit: Sequence[int] = ()
        self._due: dict[int, int] = {}
        self._quiet: float | None = None
        clients = planned(count, ports)
        plan = _plan(self.label, qos, clients, count)
        self._subscribers: dict[int, LoadSubscriber] = {}
        self._publishers: dict[int, LoadPublisher] = {}
        for region in (CENTRAL, WEST):
            for publishes in (False, True):
                mine = [each for each in clients[region] if each.publishes is publishes]
                with network[region].inside():
                    socks = opened(plan, mine)
                for client, sock in zip(mine, socks, strict=True):
                    if publishes:
                        publisher = LoadPublisher(client, sock, plan, self.log.acknowledged)
                        self._publishers[client.number] = publisher
                    else:
                        subscriber = LoadSubscriber(client, sock, plan, len(self._subscribers))
                        self._subscribers[client.number] = subscriber
        everybody: list[LoadConnection] = [*self._subscribers.values(), *self._publishers.values()]
        self._by_file = {each.sock.fileno(): each for each in everybody}
        self._messages = dict.fromkeys(self._publishers, 0)
        self._backlogged: set[LoadConnection] = set()

    # What the storm says

    def movers(self) -> list[int]:
        """The numbers of the clients that are to be moved."""
        return list(range(self._count))

    def light(self, clients: Sequence[int]) -> None:
        """Only these get and send messages from now on."""
        self._lit = list(clients)

    def finish(self, quiet: float) -> None:
        """Send nothing more; the load ends when nothing came for so many seconds."""
        self._quiet = quiet

    def close(self) -> None:
        for each in self._by_file.values():
            each.sock.close()

    def pids(self, prefix: str) -> dict[str, int]:
        """This process, which also asks the controller."""
        return {f"{prefix}storm": os.getpid()}

    # The loop

    def run(self) -> None:
        """Until `finish`, and what is on its way then has come."""
        try:
            with select.epoll() as poll:
                for file in self._by_file:
                    poll.register(file, select.EPOLLIN)
                self._serve(poll)
        except (BrokerweaveError, OSError) as error:
            self.failure = f"a client of the storm lost its connection: {error}"

    def _serve(self, poll: select.epoll) -> None:
        last = time.monotonic()
        while True:
            for file, _ in poll.poll(_TICK, len(self._by_file)):
                last = time.monotonic()
                self._receive(self._by_file[file])
            if self._backlogged:
                self._backlogged = {each for each in self._backlogged if not each.flush()}
            quiet = self._quiet
            if quiet is None:
                self._publish(time.monotonic_ns())
            elif time.monotonic() - last > quiet:
                return

    def _publish(self, now: int) -> None:
        lit = self._lit
        for place, client in enumerate(lit):
            due = self._due.get(client)
            if due is None or due < now - self._interval:  # new to it: not all at one moment
                due = now + self._interval * place // len(lit)
            if due <= now:
                self._send(client, due)
                due += self._interval
            self._due[client] = due

    def _send(self, client: int, due: int) -> None:
        number = client if client in self._publishers else client + self._count
        publisher, message = self._publishers[number], self._messages[number]
        self._messages[number] = message + 1
        moment = time.monotonic_ns()
        turn = self.log.turn
        self.log.sent(publisher.client, message, due, moment)
        publisher.publish(message, turn, moment)
        if publisher.backlog:
            self._backlogged.add(publisher)

    def _receive(self, connection: LoadConnection) -> None:
        if isinstance(connection, LoadPublisher):
            connection.receive()
        elif isinstance(connection, LoadSubscriber):
            self.log.came(connection.client, connection.receive())
        if connection.backlog:
            self._backlogged.add(connection)

    # Who there is

    def clients(self, begin: int) -> list[RunClient]:
        everybody = [each.client for each in (*self._subscribers.values(), *self._publishers.values())]
        return [
            RunClient(each.number, "storm", "storm-1", each.topic, each.publishes, begin, _END)
            for each in everybody
        ]


def _table(rows: Sequence[Sequence[int]], schema: pa.Schema) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in schema]
    return pa.table([pa.array(c, each.type) for c, each in zip(columns, schema, strict=True)], schema=schema)


def planned(count: int, ports: Mapping[str, tuple[str, int]]) -> dict[str, list[PlannedClient]]:
    """Those that move have the numbers below `count`; a subscriber's publisher is so many above it. Topic 0
    is that of all publishers that move."""

    def client(number: int, region: str, topic: int, publishes: bool) -> PlannedClient:
        host, port = ports[region]
        return PlannedClient(number, host, port, topic, T_CLIENT, publishes)

    far, near = [client(2 * count, CENTRAL, 0, False)], []
    for number in range(count):
        if number % PUBLISHER_EVERY == PUBLISHER_EVERY - 1:
            near.append(client(number, WEST, 0, True))
        else:
            near.append(client(number, WEST, number + 1, False))
            far.append(client(number + count, CENTRAL, number + 1, True))
    return {CENTRAL: far, WEST: near}


def _plan(label: str, qos: int, planned: Mapping[str, Sequence[PlannedClient]], count: int) -> WorkerPlan:
    topics = ("storm/up", *(f"storm/{number}" for number in range(count)))
    everybody = tuple(each for some in planned.values() for each in some)
    return WorkerPlan(
        worker=0,
        folder="",
        label=label,
        clients=everybody,
        topics=topics,
        copies=(),
        publishers=(),
        any_latency=False,
        interval=1.0,
        latency_interval=1.0,
        qos=qos,
        subscriber_qos=qos,
        payload=PAYLOAD,
        tick=0.0,
        eager=False,
        warm_up=0.0,
        measured=1.0,
        cool_down=0.0,
    )
