"""What waits until two nodes see the same tree: for how long, how much of it, and behind what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.node import gates, rerouting
from brokerweave.node.core import NodeCore
from brokerweave.node.gates import SETTLE_LIMIT
from brokerweave.node.views import ViewMark, encode_mark
from tests.unit.node.cyclic import LANES, World
from tests.unit.node.retained_sites import Sites
from tests.unit.node.test_wiring import check, counted, settled, tree_links

ROW = [("a", "b"), ("a", "c")]


def sees_another_tree(world: World, name: str, neighbour: str) -> None:
    """What the neighbour sends from now on was sent in another view, as far as the node knows."""
    for lane in range(LANES):
        world.core(name).wiring.mark_arrived(
            neighbour, lane, encode_mark(ViewMark(b"another tree     "[:16], 0))
        )


def test_each_neighbours_batches_wait_for_as_long_as_the_limit_says_and_not_for_anothers() -> None:
    world = settled(ROW)
    sees_another_tree(world, "a", "b")
    world.nodes["b"].publish("t/1")
    world.run(SETTLE_LIMIT - 1)
    sees_another_tree(world, "a", "c")
    world.nodes["c"].publish("t/1")
    world.run(0.5)
    assert world.nodes["a"].taken == []
    world.run(2)
    assert [payload for _, payload in world.nodes["a"].taken] == ["b0"]
    world.run(SETTLE_LIMIT)
    assert [payload for _, payload in world.nodes["a"].taken] == ["b0", "c0"]
    assert world.core("a").counters["tree_view_limits"] == 2


def test_a_limit_that_was_not_needed_does_not_end_the_next_wait() -> None:
    world = settled(ROW)
    sees_another_tree(world, "a", "b")
    world.nodes["b"].publish("t/1")
    world.run(SETTLE_LIMIT - 1)
    seen = world.core("a").wiring
    for lane in range(LANES):
        seen.mark_arrived("b", lane, encode_mark(ViewMark(seen.view, 0)))
    sees_another_tree(world, "a", "b")
    world.nodes["b"].publish("t/1")
    world.run(SETTLE_LIMIT - 1)
    assert [payload for _, payload in world.nodes["a"].taken] == ["b0"]
    world.run(2)
    assert [payload for _, payload in world.nodes["a"].taken] == ["b0", "b1"]


@pytest.mark.parametrize(("qos", "dead"), [(0, ("a", "b")), (1, ("b", "a"))])
def test_a_node_does_not_wait_for_the_acknowledgement_of_what_is_dropped_or_known_since(
    qos: int, dead: tuple[str, str]
) -> None:
    world = settled(ROW)
    table, there = world.core("a").neighbour_table, world.core("b").neighbour_table
    topic = next(f"t/{number}" for number in range(20) if world.core("a").lane_of(f"t/{number}") == 1)
    world._wires.pop((*dead, 1))  # the lane is half open
    world.nodes["a"].publish(topic, qos)
    world.run(0.5)
    world.cut("a", "c")
    world.run(1)
    assert not world.core("a").wiring.settled
    table.lost("b", 1)
    there.lost("a", 1)
    world.run(0.5)
    world._connect("a", "b", 1, world._incarnation[frozenset("ab")])
    world.run(2)
    assert all(world.core(name).wiring.settled for name in "ab")
    assert world.core("a").counters["dropped_link_down"] == (not qos)


def test_what_waits_for_the_same_view_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "STASH_BYTES", 1_000)
    world = settled(ROW)
    sees_another_tree(world, "a", "b")
    world.nodes["b"].publish("t/1")
    world.run(1)
    assert world.nodes["a"].taken == []
    for _ in range(30):
        world.nodes["b"].publish("t/1")
        world.run(0.01)
    world.run(1)
    assert len(world.nodes["a"].taken) > 20
    assert world.core("a").counters["tree_view_limits"] >= 1
    stashed = [lane.stashed for lane in world.core("a").wiring.peers["b"].lanes]
    assert max(stashed) <= 1_000


def _watched(
    core: NodeCore, flood: Callable[..., None], held: list[bool], lane: int, *args: object, once: bool = False
) -> None:
    table = core.neighbour_table
    held += [table[neighbour].lanes[index].held for neighbour, index in core.wiring.rerouting.on_disk]
    flood(lane, *args, once=once)


def test_a_lane_waits_while_what_it_has_on_disk_goes_to_others_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rerouting, "MOVE_BYTES", 1)
    world = settled([("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")])
    held: list[bool] = []
    for core in [node.core for node in world.nodes.values()]:
        for neighbour in core.neighbour_table.all():
            for lane in neighbour.lanes:
                lane.outbox.memory_bytes = 400

        flood = partial(_watched, core, core.arrivals.flood, held)
        monkeypatch.setattr(core.arrivals, "flood", flood)
    for _ in range(30):
        world.nodes["a"].publish("t/1")
        world.nodes["d"].publish("t/1")
    world.run(0.05)
    world.cut(*tree_links(world)[0])
    world.run(60)
    check(world, ordered=False)
    assert held
    assert all(held)
    lanes = [
        lane for node in world.nodes.values() for n in node.core.neighbour_table.all() for lane in n.lanes
    ]
    assert not any(lane.held for lane in lanes)


@pytest.mark.parametrize(("seed", "wait"), [(0, 0.2), (0, 0.3), (1, 0.1), (3, 0.2), (7, 0.05)])
def test_what_is_flooded_from_disk_does_not_overtake_what_is_flooded_from_memory(
    seed: int, wait: float
) -> None:
    world = settled(ROW, seed=seed)
    for node in world.nodes.values():
        for neighbour in node.core.neighbour_table.all():
            for lane in neighbour.lanes:
                lane.outbox.memory_bytes = 600
    world.cut("a", "b")
    world.run(10)
    for _ in range(3):
        world.nodes["a"].publish("t/1")  # b is owed more than fits into memory: that is not sorted
    world.link("a", "b")
    world.run(wait)
    for _ in range(6):
        world.nodes["c"].publish("t/1")
        world.run(0.02)
    world.run(60)
    check(world)


def test_a_repair_passes_to_a_link_that_has_just_joined_though_floods_follow() -> None:
    world = settled(ROW)
    core = world.core("a")
    core.wiring.gates.hold("c")  # as if it had just joined
    for lane in range(LANES):
        core.wiring.mark_arrived("b", lane, encode_mark(ViewMark(core.wiring.view, 1_000)))
    frame = codec.encode(Publish("t/r", b"kept", 1, True, packet_id=1), 4)
    lane = core.lane_of("t/r")
    repair = Run("b", 0, 0, 1, 4, 1, 2, world.time, frame, stamp=1 << 20, repair=True)
    world.core("b").outgoing.enqueue("a", lane, repair)
    world.run(1)
    assert ("t/r", "kept") in world.nodes["a"].taken
    assert any(run.repair for run in core.neighbour_table["c"].lanes[lane].outbox.kept())
    assert counted(world, "dropped_damaged") == 0


def test_an_old_qos_0_message_that_may_have_been_here_before_a_crash_is_not_given_to_subscribers() -> None:
    sites = Sites("a")
    retained = sites.node("a").retained
    sites.publish("a", "t", b"newest")
    newest = retained.index.clock.last

    def comes(qos: int, stamp: int) -> list[tuple[Run, bool]]:
        frame = codec.encode(Publish("t", b"older", qos, True, packet_id=1 if qos else 0), 4)
        return retained.taken(Run("b", 1, 1, 1, 4, qos, 2, 0.0, frame, stamp))

    assert len(comes(0, newest - 1)) == 1
    retained.unsure_until = newest - 1
    assert comes(0, newest - 1) == []
    assert len(comes(1, newest - 1)) == 1
    retained.unsure_until = newest - 2
    assert len(comes(0, newest - 1)) == 1


def test_a_qos_0_message_that_came_as_a_flood_is_known_when_it_comes_itself_behind_a_newer_one() -> None:
    world = settled(ROW)
    lane = world.core("a").lane_of("t/r")

    def comes(payload: bytes, sequence: int, flood: bool) -> list[str]:
        frame = codec.encode(Publish("t/r", payload, 0, flood), 4)
        stamp = (1 << 20) + sequence if flood else 0  # who knows a newer one passes it on without
        run = Run("x", 1, sequence, 1, 4, 0, 2, world.time, frame, stamp, flood=flood, repair=flood)
        world.core("b").outgoing.enqueue("a", lane, run)
        world.run(1)
        return [payload for topic, payload in world.nodes["a"].taken]

    assert comes(b"first", 1, flood=True) == ["first"]
    assert comes(b"third", 3, flood=True) == ["first", "third"]
    assert comes(b"second", 2, flood=True) == ["first", "third"]  # of no use to an index
    assert comes(b"first", 1, flood=False) == ["first", "third"]
    assert comes(b"second", 2, flood=False) == ["first", "third", "second"]
