"""The demo's second part: four sites of a mesh behind HAProxy, one killed with its broker, nothing missed.

Owns these sites, their clients and what is counted. Invariants: every wait has a limit; whatever happens,
`close` leaves nothing running; a copy counts as allowed only at a subscriber whose connection the kill ended,
of what came just before. Must not know: how anything else in the demo is shown.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brokerweave.demo.clients import Measuring, Sensor, Subscriber, close_all
from brokerweave.demo.deliveries import ACK_MARGIN, Key
from brokerweave.demo.sites import Site, SiteRow
from brokerweave.errors import Unavailable
from brokerweave.lab.balancer import Balancer, served
from brokerweave.lab.broker import HOST, free_port
from brokerweave.lab.debian import Mosquitto
from brokerweave.lab.node import LabNode

STRATEGY = "mesh"
"""What these sites run: clients miss nothing when theirs dies."""
SITES = "abcd"
SENSORS = 4
SUBSCRIBERS = 8
PERIOD = 0.1
"""Seconds between two measurements of one sensor."""
BEFORE, AFTER = 2.0, 5.0
"""Seconds of measuring around the kill."""
START_SECONDS = 20.0
SETTLE_SECONDS = 15.0


def missing() -> str | None:
    """Why there is no second part here, in one line."""
    return Mosquitto.missing() or Balancer.missing()


@dataclass(frozen=True, slots=True)
class MeshTally:
    """`moved`: clients that the kill cut off. `repeated`: copies that were on their way at the kill."""

    killed: str
    moved: int
    published: int
    delivered: int
    lost: int
    doubled: int
    repeated: int
    back: float
    """Seconds from the kill until the last of them was connected elsewhere."""

    @property
    def ok(self) -> bool:
        return self.published > 0 and self.moved > 0 and not self.lost and not self.doubled

    def sentence(self) -> str:
        said = (
            f"mesh: {self.published:,} published, {self.delivered:,} of {self.published * SUBSCRIBERS:,} "
            f"delivered; {self.lost} lost, {self.doubled} doubled"
        )
        return said + (f" ({self.repeated} more were on their way at the kill)" if self.repeated else "")


class _Subscriber(Subscriber):
    """One that knows when its connection ended."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port, None)
        self.cut = 0.0
        self._client.on_disconnect = self._ended

    def _ended(self, *_: Any) -> None:
        self.cut = self.cut or time.time()


class MeshDemo(SiteRow):
    """The sites, and the clients in front of the balancer."""

    def __init__(self) -> None:
        super().__init__()
        self._sensors: list[Sensor] = []
        self._subscribers: list[_Subscriber] = []
        self._measuring: Measuring | None = None

    def play(self, said: Callable[[str], None]) -> MeshTally:
        said(f"mesh: starting {len(SITES)} sites behind HAProxy")
        port = self._begin_all()
        self._subscribers = [_Subscriber(f"s{number}", port) for number in range(SUBSCRIBERS)]
        self._sensors = [Sensor(STRATEGY, f"m{number}", port, None) for number in range(SENSORS)]
        for subscriber in self._subscribers:
            subscriber.start()
        for subscriber in self._subscribers:
            subscriber.wait_until_subscribed()
        for sensor in self._sensors:
            sensor.start()
        self._await(lambda: all(sensor.connected for sensor in self._sensors), "sensors connected")
        self._measuring = Measuring(self._sensors, PERIOD)
        self._measuring.start()
        said(f"mesh: {SUBSCRIBERS} subscribers and {SENSORS} sensors know one address, HAProxy's")
        time.sleep(BEFORE)
        site = max(self.sites, key=lambda each: int(each.node.status()["sessions"]["open"]))
        clients: list[Sensor | Subscriber] = [*self._sensors, *self._subscribers]
        begin = time.time()
        self._kill_all(site)
        said(f"mesh: site {site.id} killed with its broker and its disk (kill -9)")
        cut: set[int] = set()

        def all_back() -> bool:
            away = {number for number, client in enumerate(clients) if not client.connected}
            cut.update(away)
            return bool(cut) and not away

        self._await(all_back, "clients back")
        moved, back = len(cut), time.time() - begin
        said(f"mesh: {moved} clients came back at other sites, the last after {back:.1f} s")
        time.sleep(max(0.0, begin + AFTER - time.time()))
        self._measuring.stop()
        self._await(self._complete, "everything acknowledged and delivered", SETTLE_SECONDS, must=False)
        time.sleep(0.5)  # for copies that should not come
        return self._tally(site.id, moved, begin, back)

    def _begin_all(self) -> int:
        """All sites, and the balancer; gives its port."""
        brokers = [Mosquitto(config=("set_tcp_nodelay true",)) for _ in SITES]
        self._children += brokers
        for start in [self._begin(broker) for broker in brokers]:
            start.result()
        first = free_port()
        nodes: list[LabNode] = []
        servers = []
        for name, broker in zip(SITES, brokers, strict=True):
            key = broker.directory / "key"
            key.write_text("a key that the four sites of the demo share\n")
            health = free_port()
            member = free_port() if nodes else first
            settings: dict[str, dict[str, object]] = {
                "node": {"health": f"{HOST}:{health}"},
                "membership": {
                    "bind": f"{HOST}:{member}",
                    "join": [f"{HOST}:{first}"] if nodes else [],
                    "key_file": str(key),
                },
            }
            nodes.append(LabNode(name, broker.port, strategy=STRATEGY, settings=settings))
            servers.append(served(name, nodes[-1].port, health))
        self._children += nodes
        for start in [self._begin(node) for node in nodes]:
            start.result()
        for node in nodes:
            node.wait_for_links(len(SITES) - 1, START_SECONDS)
        self.sites = [Site(n.id, b, n, b.version) for n, b in zip(nodes, brokers, strict=True)]
        balancer = Balancer(servers)
        self._children.append(balancer)
        self._begin(balancer).result()
        return balancer.port

    @staticmethod
    def _kill_all(site: Site) -> None:
        for process in (site.node, site.broker):
            os.killpg(process.pid, signal.SIGKILL)

    def _complete(self) -> bool:
        published = sum(sensor.acknowledged for sensor in self._sensors)
        waiting = sum(sensor.waiting for sensor in self._sensors)
        return not waiting and all(len(each.distinct) >= published for each in self._subscribers)

    def _await(
        self, done: Callable[[], bool], what: str, seconds: float = START_SECONDS, must: bool = True
    ) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                if must:
                    raise Unavailable(f"mesh: not {what} in {seconds:g} s")
                return
            time.sleep(0.02)

    def _tally(self, killed: str, moved: int, kill: float, back: float) -> MeshTally:
        sent = [each for sensor in self._sensors for each in sensor.sent() if each.acked is not None]
        lost = doubled = repeated = 0
        for subscriber in self._subscribers:
            lost += sum(each.key not in subscriber.distinct for each in sent)
            firsts: dict[Key, float] = {}
            for key, at in list(subscriber.arrivals):
                if key not in firsts:
                    firsts[key] = at
                elif subscriber.cut and kill - ACK_MARGIN <= firsts[key] <= subscriber.cut + ACK_MARGIN:
                    repeated += 1
                else:
                    doubled += 1
        delivered = len(sent) * SUBSCRIBERS - lost
        return MeshTally(killed, moved, len(sent), delivered, lost, doubled, repeated, back)

    def close(self) -> None:
        if self._measuring is not None:
            self._measuring.stop()
        close_all([*self._sensors, *self._subscribers])
        super().close()
