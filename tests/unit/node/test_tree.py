"""Link states that are passed on in any order give every node the same tree."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.node import tree
from brokerweave.node.tree import LinkRecord, LinkStates, Tree, decode, encode


class Flood:
    """Link states of many nodes; packets wait in queues until `step` delivers one of them."""

    def __init__(self, names: str, seed: int) -> None:
        self.random = Random(seed)
        self.states = {name: LinkStates(name, 1) for name in names}
        self.queues: dict[tuple[str, str], deque[bytes]] = {}
        self.sent = 0

    def link(self, a: str, b: str) -> None:
        self.queues[a, b], self.queues[b, a] = deque(), deque()
        for one, other in ((a, b), (b, a)):
            self.states[one].link_up(other)
            self.send(one, self.states[one].records.values(), other)
            self.renew(one)

    def cut(self, a: str, b: str) -> None:
        del self.queues[a, b], self.queues[b, a]
        for one, other in ((a, b), (b, a)):
            self.states[one].link_down(other)
            self.renew(one)

    def renew(self, name: str) -> None:
        record = self.states[name].renew()
        if record is not None:
            self.send_all(name, [record])

    def send(self, source: str, records: object, target: str) -> None:
        for payload in encode(list(records)):  # type: ignore[call-overload]
            self.sent += 1
            self.queues[source, target].append(payload)

    def send_all(self, source: str, records: list[LinkRecord], but: str = "") -> None:
        for one, other in list(self.queues):
            if one == source and other != but:
                self.send(one, records, other)

    def step(self) -> bool:
        waiting = [key for key, queue in self.queues.items() if queue]
        if not waiting:
            return False
        source, target = self.random.choice(waiting)
        fresh = self.states[target].take(decode(self.queues[source, target].popleft()))
        if fresh:
            self.send_all(target, fresh, but=source)
        return True

    def settle(self) -> dict[str, Tree]:
        for _ in range(1_000_000):
            if not self.step():
                return {name: states.tree(0.0) for name, states in self.states.items()}
        raise AssertionError("the records go round for ever")


def components(names: str, links: set[tuple[str, str]]) -> dict[str, set[str]]:
    found = {name: {name} for name in names}
    for a, b in links:
        joined = found[a] | found[b]
        for name in joined:
            found[name] = joined
    return found


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_and_goes_each_component_ends_with_one_spanning_tree(seed: int) -> None:
    random = Random(seed)
    names = "abcdefghij"[: random.randrange(2, 11)]
    flood, links = Flood(names, seed), set[tuple[str, str]]()
    for _ in range(60):
        a, b = sorted(random.sample(names, 2))
        if (a, b) in links:
            links.remove((a, b))
            flood.cut(a, b)
        else:
            links.add((a, b))
            flood.link(a, b)
        for _ in range(random.randrange(10)):
            flood.step()
    trees = flood.settle()
    parts = components(names, links)
    for name in names:
        assert trees[name].nodes == parts[name]
        assert len(trees[name].edges) == len(parts[name]) - 1
        assert trees[name].edges <= links
        assert all(trees[name] == trees[other] for other in parts[name])
    # Each change is two records that cross every link once or twice, beside what is told at a link's start.
    assert flood.sent <= 60 * (2 + 4 * len(names) ** 2)


def ring(names: str) -> Flood:
    flood = Flood(names, 1)
    for a, b in zip(names, names[1:] + names[0], strict=True):
        flood.link(a, b)
        flood.settle()
    return flood


def test_a_link_that_comes_up_takes_no_working_links_place() -> None:
    flood = ring("bcde")
    before = flood.settle()["b"]
    flood.link("b", "d")
    assert flood.settle()["b"] == before


def test_a_failed_link_is_replaced_by_one_other_and_stands_by_when_it_returns() -> None:
    flood = ring("abcd")
    before = flood.settle()["a"]
    assert ("a", "d") not in before.edges
    flood.cut("b", "c")
    after = flood.settle()["a"]
    assert after.edges == before.edges - {("b", "c")} | {("a", "d")}
    flood.link("b", "c")
    assert flood.settle()["a"].edges == after.edges


def test_the_same_links_after_a_failure_are_another_tree() -> None:
    flood = Flood("ab", 1)
    flood.link("a", "b")
    before = flood.settle()["a"]
    flood.cut("a", "b")
    flood.link("a", "b")
    after = flood.settle()["a"]
    assert after.edges == before.edges
    assert after.digest != before.digest


def test_a_link_that_only_one_end_names_is_not_there() -> None:
    states = LinkStates("a", 1)
    states.link_up("b")
    states.renew()
    assert states.tree(0.0).edges == frozenset()
    assert not states.linked("b")
    states.take([LinkRecord("b", 1, 5, 0, (("a", 5),))])
    assert states.tree(0.0).edges == {("a", "b")}
    assert states.linked("b")


def test_an_older_record_changes_nothing_and_is_not_passed_on() -> None:
    states = LinkStates("a", 1)
    new, old = LinkRecord("b", 2, 1, 0, (("c", 1),)), LinkRecord("b", 1, 9, 0, ())
    assert states.take([new]) == [new]
    assert states.take([old, new]) == []
    assert states.records["b"] == new


def test_a_node_outdoes_a_record_of_its_own_from_an_earlier_life() -> None:
    states = LinkStates("a", 1)
    (outdone,) = states.take([LinkRecord("a", 7, 40, 0, (("z", 1),))])
    assert outdone == states.own
    assert states.own.version > (7, 40)
    assert states.own.links == ()


def test_what_is_behind_a_tree_neighbour() -> None:
    flood = Flood("abcde", 1)
    for a, b in ("ab", "bc", "bd", "ae"):
        flood.link(a, b)
    found = flood.settle()["a"]
    assert found.behind("a", "b") == {"c", "d"}
    assert found.behind("a", "e") == set()
    assert found.behind("a", "c") == set()


def test_a_node_out_of_reach_is_forgotten_after_a_while() -> None:
    flood = Flood("abc", 1)
    flood.link("a", "b")
    flood.link("b", "c")
    flood.settle()
    flood.cut("b", "c")
    flood.settle()
    states = flood.states["a"]
    states.tree(100.0)
    assert "c" in states.records
    states.tree(tree.UNREACHABLE_SECONDS + 1)
    assert set(states.records) == {"a", "b"}


def test_a_record_that_came_just_now_is_kept_though_its_node_was_long_out_of_reach() -> None:
    flood = Flood("abc", 1)
    flood.link("a", "b")
    flood.link("b", "c")
    flood.settle()
    flood.cut("a", "b")
    flood.settle()
    states = flood.states["a"]
    states.tree(100.0)
    late = 100.0 + tree.UNREACHABLE_SECONDS + 1
    states.take(flood.states["b"].records.values())  # b is linked again, and did not say so yet
    assert states.tree(late).nodes == {"a"}
    assert set(states.records) == {"a", "b", "c"}
    states.tree(late + tree.UNREACHABLE_SECONDS + 1)
    assert set(states.records) == {"a"}


def test_records_of_nodes_that_are_in_reach_again_are_told_for_those_who_forgot_them() -> None:
    flood = Flood("abc", 1)
    flood.link("a", "b")
    flood.link("b", "c")
    flood.settle()
    states = flood.states["b"]
    assert states.returned == []
    flood.cut("b", "c")
    flood.settle()
    states.tree(100.0)
    assert states.returned == []
    flood.link("b", "c")
    flood.settle()
    assert [record.node for record in states.returned] == ["c"]


def test_the_number_of_records_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_NODES", 10)
    states = LinkStates("a", 1)
    states.take(LinkRecord(f"n{i}", 1, 1, 0, ()) for i in range(50))
    assert len(states.records) == 10
    assert states.refused == 41


def test_records_read_back_as_they_were_written_over_several_packets() -> None:
    records = [LinkRecord(f"n{i}", i, i + 1, i // 2, (("x", 3), ("ü", 9))) for i in range(1200)]
    payloads = list(encode(records))
    assert len(payloads) == 3
    assert [record for payload in payloads for record in decode(payload)] == records


VALID = next(encode([LinkRecord("a", 1, 2, 0, (("b", 1), ("c", 2)))]))


@pytest.mark.parametrize(
    "payload",
    [b"", VALID[:-1], VALID + b"x", b"\x02" + VALID[1:], b"\x01\xff\xff" + VALID[3:]]
    + [VALID.replace(b"\x01b", b"\x01" + name) for name in (b"\xff", b"c", b"a", b"z")]
    + [VALID.replace(b"\x01a", b"\x00"), VALID[:5] + b"\xff" * 8 + VALID[13:]],
)
def test_what_no_node_writes_is_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(payload)
