"""Three sites with two copies of everything, a publisher p at a and a subscriber s at b, told by hand."""

from __future__ import annotations

from collections import Counter

from brokerweave.mqtt.packets import Publish
from brokerweave.sim.client import ModelClient
from brokerweave.sim.pipes import PipeEnd, StreamNetwork
from brokerweave.sim.users_view.faults import FaultLog
from brokerweave.sim.users_view.history import History
from brokerweave.sim.users_view.view import UsersView
from brokerweave.sim.world import VirtualHost, World

SITES = ["a", "b", "c"]


class Client(ModelClient):
    """It is connected because the test says so."""

    own_end: PipeEnd | None = None

    @property
    def end(self) -> PipeEnd | None:
        return self.own_end


class Scene:
    def __init__(self, persistent: bool = True) -> None:
        self.world = world = World("1")
        self.history = History(lambda: world.now)
        self.faults = FaultLog(lambda: world.now, SITES, copies=2, patience=2.0)
        self.view = UsersView(self.history, self.faults)
        self._network = StreamNetwork(world, lambda one, other: 0.0)
        for number, one in enumerate(SITES):
            for other in SITES[number + 1 :]:
                self.link(one, other, True)
        self.publisher = self._client("p", "a", True)
        self.subscriber = self._client("s", "b", persistent)
        self.after(5.0)
        self.connect(self.publisher, "a")
        self.connect(self.subscriber, "b")
        self.subscribe()
        self.after(5.0)

    def _client(self, name: str, site: str, persistent: bool) -> Client:
        return Client(self.world, self._network, self.history, name, site, 4, persistent, None)

    def after(self, seconds: float) -> None:
        self.world.run(self.world.elapsed + seconds)

    def link(self, one: str, other: str, up: bool) -> None:
        self.faults.link_changed(one, other, up)
        self.faults.link_changed(other, one, up)

    def connect(self, client: Client, site: str, resumed: bool = False) -> None:
        here, there = VirtualHost(self.world, client.name), VirtualHost(self.world, site)
        wire = self._network.wire(client.name, site)
        near, far = PipeEnd(here, wire, True), PipeEnd(there, wire, False)
        near.peer, far.peer = far, near
        client.own_end, client.site = near, site
        self.history.welcomed(client, resumed)

    def disconnect(self) -> None:
        self.history.disconnected(self.subscriber)

    def subscribe(self, topic: str = "t") -> None:
        self.history.granted(self.subscriber, topic, 1)

    def publish(self, number: int, acknowledged_after: float = 0.04) -> bytes:
        payload = f"p:{number}".encode()
        self.history.made(self.publisher, payload, "t", 1, False)
        self.history.sent(self.publisher, payload)
        self.after(acknowledged_after)
        self.history.acknowledged(payload)
        return payload

    def deliver(self, payload: bytes, answer_read: bool = True) -> None:
        end = self.subscriber.own_end
        assert end is not None
        end.written += 4
        if answer_read:
            end.peer.read = end.written
        self.history.delivered(self.subscriber, Publish("t", payload, 1))

    def site_dies(self, site: str) -> None:
        """Node, disk and broker."""
        self.history.site_dies(site)
        self.faults.node_ends(site, graceful=False)
        self.faults.disk_lost(site)
        self.faults.broker_dies(site, keeps_state=False)

    def judge(self) -> tuple[list[str], Counter[str]]:
        allowed: Counter[str] = Counter()
        return self.view.judge(allowed), allowed
