"""The wiring as every node knows it, and the spanning tree that all nodes derive from it.

Owns the link states: for each node its latest *record*, which names the neighbours whose link is up on its
side. A link exists while both ends name each other. Invariants: of two records of a node the newer wins;
equal link states give equal trees at every node; links are ranked by age, so a new link never replaces a
working one, and a failed link is replaced by at most one other; two trees with the same digest had no failure
between them. Must not know: messages, strategies, when to send what.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from brokerweave.errors import RemoteProtocolError

MAX_NODES = 20_000
"""Records kept: bounds what a neighbour can make this node remember."""
MAX_LINKS = 20_000
"""Links in one record."""
PACKET_RECORDS = 500
"""Records in one control packet."""
UNREACHABLE_SECONDS = 300.0
"""How long the record of a node that cannot be reached is kept."""

_HEAD = struct.Struct(">BH")
_RECORD = struct.Struct(">QQQH")
_SINCE = struct.Struct(">Q")
_FORMAT = 1
_MAX_NUMBER = 0x7FFF_FFFF_FFFF_FFFF

Edge = tuple[str, str]
"""A link, the smaller id first."""


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """One node's links. `counter` orders the records of an epoch, and is ahead of every counter that the node
    had seen (a Lamport clock); `cut` is the counter at which a link last went; `links` are (neighbour, the
    counter at which the link came up), sorted."""

    node: str
    epoch: int
    counter: int
    cut: int
    links: tuple[tuple[str, int], ...]

    @property
    def version(self) -> tuple[int, int]:
        return self.epoch, self.counter


@dataclass(frozen=True, slots=True)
class Tree:
    """The spanning tree of one node's component. `digest` names it, and the failures before it."""

    nodes: frozenset[str]
    edges: frozenset[Edge]
    digest: bytes
    adjacent: dict[str, tuple[str, ...]] = field(compare=False)

    def neighbours(self, node: str) -> tuple[str, ...]:
        return self.adjacent.get(node, ())

    def behind(self, node: str, neighbour: str) -> frozenset[str]:
        """The nodes that `node` reaches through this tree neighbour, itself not included."""
        if neighbour not in self.neighbours(node):
            return frozenset()
        found, waiting = {node, neighbour}, [neighbour]
        while waiting:
            fresh = [n for n in self.neighbours(waiting.pop()) if n not in found]
            found.update(fresh)
            waiting += fresh
        return frozenset(found - {node, neighbour})


class LinkStates:
    def __init__(self, node_id: str, epoch: int) -> None:
        self.node_id = node_id
        self.records: dict[str, LinkRecord] = {node_id: LinkRecord(node_id, epoch, 1, 0, ())}
        self.refused = 0
        """Records for which there was no room."""
        self._up: dict[str, int] = {}
        self.returned: list[LinkRecord] = []
        """Of nodes that the last tree reached again: a neighbour may have forgotten what this node kept."""
        self._clock = 1
        self._unreachable: dict[str, float] = {}
        self._told: set[str] = set()
        """Nodes whose record came since the last tree, known or not."""

    @property
    def own(self) -> LinkRecord:
        return self.records[self.node_id]

    def link_up(self, neighbour: str) -> None:
        self._clock += 1
        self._up[neighbour] = self._clock

    def link_down(self, neighbour: str) -> None:
        self._up.pop(neighbour, None)

    def renew(self) -> LinkRecord | None:
        """The own record, if links came or went since it was made last."""
        before, links = self.own, tuple(sorted(self._up.items()))
        if links == before.links:
            return None
        self._clock += 1
        cut = before.cut if set(before.links) <= set(links) else self._clock
        self.records[self.node_id] = LinkRecord(self.node_id, before.epoch, self._clock, cut, links)
        return self.own

    def take(self, records: Iterable[LinkRecord]) -> list[LinkRecord]:
        """Keep the records that are newer than the known ones, and return them: others need them too."""
        fresh = []
        for record in records:
            self._clock = max(self._clock, record.counter)
            self._told.add(record.node)
            known = self.records.get(record.node)
            if known is not None and known.version >= record.version:
                continue
            if record.node == self.node_id:
                # From an earlier life of this node whose clock was ahead: outdo it.
                self._clock += 1
                known = self.own
                self.records[self.node_id] = LinkRecord(
                    self.node_id, record.epoch, self._clock, self._clock, known.links
                )
                fresh.append(self.own)
            elif known is None and len(self.records) >= MAX_NODES:
                self.refused += 1
            else:
                self.records[record.node] = record
                fresh.append(record)
        return fresh

    def tree(self, now: float) -> Tree:
        """The tree of this node's component; forgets records of nodes that are long out of reach."""
        nodes = self._component()
        for node in self.records.keys() - nodes:
            if node in self._told:
                self._unreachable[node] = now  # the records that lead there may come a little later
            elif now - self._unreachable.setdefault(node, now) > UNREACHABLE_SECONDS:
                del self.records[node]
        self._told.clear()
        self.returned = [self.records[node] for node in sorted(self._unreachable.keys() & nodes)]
        self._unreachable = {
            n: t for n, t in self._unreachable.items() if n in self.records and n not in nodes
        }
        edges = _spanning(self._links(nodes))
        adjacent: dict[str, list[str]] = {}
        for a, b in sorted(edges):
            adjacent.setdefault(a, []).append(b)
            adjacent.setdefault(b, []).append(a)
        digest = hashlib.blake2b(digest_size=16)
        for node in sorted(nodes):
            record = self.records[node]
            digest.update(repr((node, record.epoch, record.cut)).encode())
        digest.update(repr(sorted(edges)).encode())
        neighbours = {node: tuple(names) for node, names in adjacent.items()}
        return Tree(frozenset(nodes), frozenset(edges), digest.digest(), neighbours)

    def linked(self, neighbour: str) -> bool:
        """Whether both ends say that the link to this neighbour is up."""
        record = self.records.get(neighbour)
        names = dict(self.own.links)
        return neighbour in names and record is not None and self.node_id in dict(record.links)

    def _component(self) -> set[str]:
        named = {node: {name for name, _ in record.links} for node, record in self.records.items()}
        found, waiting = {self.node_id}, [self.node_id]
        while waiting:
            node = waiting.pop()
            for other in named[node]:
                if other not in found and node in named.get(other, ()):
                    found.add(other)
                    waiting.append(other)
        return found

    def _links(self, nodes: set[str]) -> list[tuple[int, str, str]]:
        """The links among these nodes, oldest first; a link is as old as the younger of its ends says."""
        since = {(node, name): at for node in nodes for name, at in self.records[node].links}
        links = [(max(at, since[b, a]), a, b) for (a, b), at in since.items() if a < b and (b, a) in since]
        return sorted(links)


def _spanning(links: list[tuple[int, str, str]]) -> set[Edge]:
    """Kruskal's: each link in turn, unless its ends are joined already."""
    leader: dict[str, str] = {}

    def find(node: str) -> str:
        while (above := leader.get(node, node)) != node:
            leader[node] = leader.get(above, above)
            node = above
        return node

    edges = set()
    for _, a, b in links:
        one, other = find(a), find(b)
        if one != other:
            leader[other] = one
            edges.add((a, b))
    return edges


def encode(records: Iterable[LinkRecord]) -> Iterator[bytes]:
    """Payloads of as many control packets as it takes. Big-endian: format u8, records u16, then for each:
    id (u8 length, UTF-8), epoch u64, counter u64, cut u64, links u16, and for each link: id, since u64."""
    waiting = list(records)
    for start in range(0, len(waiting), PACKET_RECORDS):
        some = waiting[start : start + PACKET_RECORDS]
        parts = [_HEAD.pack(_FORMAT, len(some))]
        for record in some:
            numbers = _RECORD.pack(record.epoch, record.counter, record.cut, len(record.links))
            parts += [_name(record.node), numbers]
            for neighbour, since in record.links:
                parts += [_name(neighbour), _SINCE.pack(since)]
        yield b"".join(parts)


def decode(payload: bytes) -> list[LinkRecord]:
    """Raises `RemoteProtocolError` for anything that `encode` does not write."""
    try:
        version, count = _HEAD.unpack_from(payload)
        if version != _FORMAT or count > PACKET_RECORDS:
            raise RemoteProtocolError(f"link states of version {version} with {count} records")
        position, records = _HEAD.size, []
        for _ in range(count):
            position, record = _read_record(payload, position)
            records.append(record)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise RemoteProtocolError("link states that cannot be read") from None
    if position != len(payload):
        raise RemoteProtocolError("link states go on after their last record")
    return records


def _read_record(data: bytes, position: int) -> tuple[int, LinkRecord]:
    position, node = _read_name(data, position)
    epoch, counter, cut, count = _RECORD.unpack_from(data, position)
    position += _RECORD.size
    links = []
    for _ in range(count):
        position, neighbour = _read_name(data, position)
        (since,) = _SINCE.unpack_from(data, position)
        position += _SINCE.size
        links.append((neighbour, since))
    names = [name for name, _ in links]
    numbers = [epoch, counter, cut, *(since for _, since in links)]
    if count > MAX_LINKS or sorted(set(names)) != names or node in names or max(numbers) > _MAX_NUMBER:
        raise RemoteProtocolError(f"a record of {node!r} that no node writes")
    return position, LinkRecord(node, epoch, counter, cut, tuple(links))


def _name(name: str) -> bytes:
    data = name.encode()
    return b"%c%b" % (len(data), data)


def _read_name(data: bytes, position: int) -> tuple[int, str]:
    end = position + 1 + data[position]
    if end > len(data) or end == position + 1:
        raise RemoteProtocolError("link states with an empty or cut name")
    return end, data[position + 1 : end].decode()
