"""Carries out a schedule: clients' actions and faults, each with its recovery.

Owns how a fault is made, and how everything is healed at the end. Invariant: an action that no longer makes
sense (its node is down, its link is gone) does nothing, so that schedules can be shortened freely. Must not
know: what is promised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brokerweave.sim.gateways.faults import strike
from brokerweave.sim.schedule import Action
from brokerweave.sim.world import START, Killed

if TYPE_CHECKING:
    from brokerweave.sim.run import Simulation

LONGEST = 12.0
"""Seconds: no fault lasts longer."""
_LINK_FAULTS = ("delay", "cut", "partition", "split", "move", "link", "unplug")
_FAULTS = frozenset((*_LINK_FAULTS, "kill", "stop", "broker", "freeze", "disk", "skew", "site"))


class Actor:
    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._world = simulation.world
        self._moving: dict[str, str] = {}
        """Nodes whose subtree is cut off at the moment -> where they will be linked again."""
        self._healed = False

    def do(self, action: Action) -> None:
        self._world.note("schedule", str(action)[10:])
        if action.kind in _FAULTS:
            self._sim.disturb(LONGEST)
        if self._sim.view is not None:
            self._sim.view.faults.action(action.kind, action.arguments)
        getattr(self, f"_do_{action.kind}")(*action.arguments)

    def heal(self) -> None:
        """The end of all faults: whatever is broken is repaired at once."""
        self._healed = True
        self._world.note("schedule", "everything heals")
        self._sim.disturb()
        for node in self._sim.nodes.values():
            node.disk.kill_at_write = 0  # before anything moves: what is healed below may write at once
        for wire in self._sim.network.wires():
            wire.calm()
            wire.heal()
        for name in list(self._moving):
            self._link_again(name)
        for name in self._sim.names:
            self._start_broker(name)
            node = self._sim.nodes[name]
            node.disk.failing = False
            node.host.thaw()
            self._start(name)
        if self._sim.region is not None:
            self._sim.region.heal()
        for client in self._sim.clients.values():
            client.arrive()

    # Clients

    def _do_arrive(self, client: str) -> None:
        self._sim.clients[client].arrive()

    def _do_leave(self, client: str) -> None:
        self._sim.clients[client].leave()

    def _do_drop(self, client: str) -> None:
        self._sim.clients[client].drop()

    def _do_roam(self, client: str) -> None:
        self._sim.clients[client].roam()

    def _do_relocate(self, client: str, site: str) -> None:
        self._sim.clients[client].move(site)

    def _do_subscribe(self, client: str, topic_filter: str, qos: int) -> None:
        self._sim.clients[client].subscribe(topic_filter, qos)

    def _do_unsubscribe(self, client: str, topic_filter: str) -> None:
        self._sim.clients[client].unsubscribe(topic_filter)

    def _do_publish(self, client: str, topic: str, qos: int, retain: bool) -> None:
        self._sim.clients[client].publish(topic, qos, retain)

    def _do_delete(self, client: str, topic: str, qos: int) -> None:
        self._sim.clients[client].delete(topic, qos)

    # Gateways

    def _do_order(self, client: str, site: str, via: str) -> None:
        if self._sim.region is not None:
            self._sim.region.order(client, site, via)

    def _do_strike(self, client: str, what: str, down: float) -> None:
        strike(self._sim, self, client, what, down)

    def _do_unplug(self, gateway: str, site: str) -> None:
        """All connections of a gateway to a site break."""
        self._sim.network.wire(gateway, site).cut()

    # The network

    def _do_delay(self, one: str, other: str, delay: float, jitter: float, rate: float, lasts: float) -> None:
        wire = self._sim.network.wire(one, other)
        wire.delay, wire.jitter, wire.rate = delay, jitter, rate
        self._world.later(lasts, wire.calm)

    def _do_cut(self, name: str, kind: str, half_open: bool) -> None:
        network = self._sim.network
        if kind == "links":
            for other in self._sim.topology.neighbours(name):
                network.wire(name, other).cut(half_open)
        elif kind == "broker":
            network.wire(name, f"{name}/broker").cut()
        else:
            for client in self._sim.clients.values():
                if client.site == name:
                    network.wire(name, client.gateway or client.name).cut()

    def _do_partition(self, name: str, lasts: float) -> None:
        self._do_split(name, lasts)

    def _do_split(self, names: str, lasts: float) -> None:
        """These sites do not reach the others for a while."""
        half = names.split("+")
        others = [other for other in self._sim.names if other not in half]
        wires = [self._sim.network.wire(one, other) for one in half for other in others]
        for wire in wires:
            wire.block()

        def over() -> None:
            for wire in wires:
                wire.heal()

        self._world.later(lasts, over)

    def _do_link(self, one: str, other: str, lasts: float) -> None:
        """One link breaks: its connections, and nobody gets through for a while."""
        wire = self._sim.network.wire(one, other)
        wire.cut()
        wire.block()
        self._world.later(lasts, wire.heal)

    # Nodes and brokers

    def _do_kill(self, name: str, writes: int, down: float, lose_disk: bool) -> None:
        node = self._sim.nodes[name]

        def late() -> None:
            """It did not write that much."""
            if not self._healed:
                node.kill()

        if writes:
            node.disk.kill_at_write = writes if node.up else 0
            self._world.later(down, late)
        else:
            node.kill()

        def again() -> None:
            if lose_disk and not node.up:
                node.lose_disk()
            self._start(name)

        self._world.later(down * (2 if writes else 1), again)

    def _do_site(self, names: str, down: float) -> None:
        """Whole sites die at once, node, disk and broker; they come back empty."""
        for name in names.split("+"):
            self._sim.nodes[name].kill()
            self._do_broker(name, False, down)

        def again() -> None:
            for name in names.split("+"):
                if not self._sim.nodes[name].up:
                    self._sim.nodes[name].lose_disk()
                self._start(name)

        self._world.later(down, again)

    def _do_stop(self, name: str, down: float) -> None:
        self._sim.nodes[name].stop()
        self._world.later(down, lambda: self._start(name))

    def _start(self, name: str) -> None:
        node = self._sim.nodes[name]
        if not node.up:
            self._world.note(name, "starts")
            node.start()

    def _do_broker(self, name: str, keep_state: bool, down: float) -> None:
        broker = self._sim.brokers[name]
        if not broker.host.up:
            return
        if not keep_state:
            self._sim.checker.broker_lost_state(name)
            self._sim.gone.add(name)
        if self._sim.view is not None:
            self._sim.view.broker_dies(name, keep_state)
        broker.die(keep_state)
        self._world.later(down, lambda: self._start_broker(name))

    def _start_broker(self, name: str) -> None:
        if not self._sim.brokers[name].host.up:
            self._world.note(f"{name}/broker", "starts")
            self._sim.brokers[name].host.start()
            if self._sim.view is not None:
                self._sim.view.faults.broker_starts(name)
            self._sim.gone.discard(name)

    def _do_freeze(self, name: str, lasts: float) -> None:
        host = self._sim.nodes[name].host
        host.freeze()
        self._world.later(lasts, host.thaw)

    def _do_disk(self, name: str, lasts: float) -> None:
        disk = self._sim.nodes[name].disk
        disk.failing = True

        def over() -> None:
            disk.failing = False

        self._world.later(lasts, over)

    def _do_skew(self, name: str, jump: float, rate: float) -> None:
        node = self._sim.nodes[name]
        before, steady = node.now(), node.steady()
        node.clock_rate = rate
        node.steady_offset = steady - self._world.now * rate
        node.clock_offset = before + jump - steady
        assert node.now() >= before > START / 2

    def _do_queues(self, name: str, memory: int, disk: int) -> None:
        node = self._sim.nodes[name]
        node.options = replace(node.options, outbox_memory=memory, outbox_disk=disk)

    # The wiring

    def _do_move(self, name: str, away: float, where: float) -> None:
        """A node's link is taken away, and it (with all behind it) is linked again elsewhere."""
        topology = self._sim.topology
        neighbours = topology.neighbours(name)
        if self._healed or not neighbours or name in self._moving:
            return
        old = neighbours[int(where * len(neighbours))]
        self._sim.expected.unlinked(name, old)
        self._sim.checker.wiring_changes()
        topology.remove(name, old)
        behind = topology.component(name)
        others = [other for other in self._sim.names if other not in behind]
        if not others:  # there are other ways to it
            others = [o for o in self._sim.names if o != name and o not in topology.neighbours(name)]
        self._moving[name] = others[int(where * len(others))]
        self._unlink(name, old)
        self._world.later(away, lambda: self._link_again(name))

    def _unlink(self, one: str, other: str) -> None:
        """An operator removes it at both ends, and again should a last call of the other have undone that."""
        for here, there in ((one, other), (other, one)):
            self._remove(here, there)

        def again() -> None:
            if other not in self._sim.topology.neighbours(one):
                for here, there in ((one, other), (other, one)):
                    node = self._sim.nodes[here]
                    if node.up and there in node.core.neighbour_table:
                        self._sim.facts.counts["zombie neighbours"] += 1
                        self._remove(here, there)
                    elif not node.up:
                        node.remove(there)  # when it is back

        self._world.later(3.0, again)

    def _remove(self, name: str, neighbour: str) -> None:
        """A node that is killed in the middle of this does it when it is back; others do it now."""
        try:
            self._sim.nodes[name].remove(neighbour)
        except Killed as killed:
            killed.bury()

    def _link_again(self, name: str) -> None:
        new = self._moving.pop(name, None)
        if new is None:
            return
        if self._sim.topology.path(name, new) is not None:
            # Another move has brought the two together meanwhile: link whoever is still apart.
            apart = [o for o in self._sim.names if self._sim.topology.path(name, o) is None]
            if not apart and (self._sim.is_tree or new in self._sim.topology.neighbours(name)):
                return
            new = apart[0] if apart else new
        self._world.note("schedule", f"{name} is linked with {new}")
        self._sim.checker.wiring_changes()
        self._sim.topology.add(name, new)
        self._sim.nodes[name].add(new)
