"""Which retained message of a topic counts: an index of versions that ends the same at every node.

Owns the versions: a hybrid time (2^-16 of a millisecond, or the last stamp plus one) given by the node that
took the publication from its client, and a tag of origin and payload for ties. Invariants: the highest
version of a topic wins whatever order versions arrive in; a stamp given here is higher than every stamp seen
before; equal versions are the same publication; a deleted topic keeps its version as a tombstone for
`tombstone_age`, as told by its stamp, so that all nodes forget it at about the same time. Frames lie in the
store, not in memory.
Must not know: links, brokers, when to send what.
"""

from __future__ import annotations

import enum
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from brokerweave.links.hybrid_clock import HybridClock, time_of
from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import PublishHead
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property, get_int

BUCKETS = 256
"""Parts of the index that two nodes compare by one number each. A power of two, for its use as a mask."""

ENTRY_OVERHEAD = 300
"""Bytes that an entry takes beside its topic and frame, about."""

BROKERS_OWN = "$broker"
"""The origin of messages that were at a broker before its node: no node's id, and the same at all nodes, so
that equal messages at two brokers are one version."""

OLDEST = 1
"""The stamp of such messages: anything published through a node is newer."""


@dataclass(frozen=True, slots=True)
class RetainedSettings:
    """Units as in the configuration."""

    tombstone_age: float = 7 * 86_400.0
    max_skew: float = 3_600.0
    max_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class RetainedEntry:
    """The version that counts for a topic. `size` is 0 where its frame did not fit the store's bound."""

    stamp: int
    tag: int
    origin: str
    version: int
    """MQTT version of the frame."""
    dead: bool
    """A tombstone: the topic has no retained message."""
    born: float
    expires: float
    """When an MQTT 5 message expires; 0.0 for never."""
    size: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.stamp, self.tag


class RetainedVerdict(enum.Enum):
    NEW = "new"
    KNOWN = "known"
    """The very same publication is in the index."""
    STALE = "stale"
    """A newer one is in the index."""
    REFUSED = "refused"
    """Its stamp is too far in the future: the clock of its origin is wrong."""


class RetainedStore(Protocol):
    """Keeps entries and frames. What `put` and `remove` did is durable when `commit` returns."""

    def load(self) -> Iterable[tuple[str, RetainedEntry]]: ...

    def put(self, topic: str, entry: RetainedEntry, frame: bytes | None) -> None: ...

    def frame(self, topic: str) -> bytes | None: ...

    def remove(self, topic: str) -> None: ...

    def commit(self) -> None: ...


class MemoryStore:
    def __init__(self) -> None:
        self._kept: dict[str, tuple[RetainedEntry, bytes | None]] = {}

    def load(self) -> Iterable[tuple[str, RetainedEntry]]:
        return [(topic, entry) for topic, (entry, _) in self._kept.items()]

    def put(self, topic: str, entry: RetainedEntry, frame: bytes | None) -> None:
        self._kept[topic] = entry, frame

    def frame(self, topic: str) -> bytes | None:
        return self._kept[topic][1] if topic in self._kept else None

    def remove(self, topic: str) -> None:
        self._kept.pop(topic, None)

    def commit(self) -> None:
        pass


class RetainedIndex:
    def __init__(self, settings: RetainedSettings, store: RetainedStore) -> None:
        self.settings = settings
        self.clock = HybridClock(settings.max_skew)
        self.bytes = 0
        """What `max_bytes` bounds: frames, topics and overhead."""
        self._store = store
        self._buckets: list[dict[str, RetainedEntry]] = [{} for _ in range(BUCKETS)]
        self._fingerprints = [0] * BUCKETS
        self._mortal: set[str] = set()
        for topic, entry in store.load():
            self._set(topic, entry)
            self.clock.last = max(self.clock.last, entry.stamp)

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from list(bucket)

    @property
    def tombstones(self) -> int:
        return sum(entry.dead for bucket in self._buckets for entry in bucket.values())

    @property
    def without_frame(self) -> int:
        return sum(not entry.size for bucket in self._buckets for entry in bucket.values())

    @property
    def fingerprints(self) -> tuple[int, ...]:
        """One number for each bucket; equal buckets have equal numbers, an empty one 0."""
        return tuple(self._fingerprints)

    @property
    def mortal(self) -> bool:
        """Whether `purge` has anything to wait for."""
        return bool(self._mortal)

    def get(self, topic: str) -> RetainedEntry | None:
        return self._buckets[_bucket(topic)].get(topic)

    def bucket(self, number: int) -> dict[str, RetainedEntry]:
        return self._buckets[number]

    def frame(self, topic: str) -> bytes | None:
        return self._store.frame(topic)

    def offer(
        self, stamp: int, origin: str, frame: bytes, head: PublishHead, version: int, born: float, now: float
    ) -> RetainedVerdict:
        """A version arrived, `now`; it becomes the topic's entry if it is newer."""
        topic, payload = head.topic.decode(), frame[head.payload_start :]
        if not self.clock.see(stamp, now):
            return RetainedVerdict.REFUSED
        tag = tag_of(origin, payload)
        known = self.get(topic)
        if known is not None and known.rank >= (stamp, tag):
            return RetainedVerdict.KNOWN if known.rank == (stamp, tag) else RetainedVerdict.STALE
        if known is None and not payload and now - time_of(stamp) > self.settings.tombstone_age:
            return RetainedVerdict.KNOWN  # forgotten here, and soon everywhere
        expires = _expiry(frame, head, version, born)
        size = len(frame) + len(head.topic)
        if self.bytes + size + ENTRY_OVERHEAD > self.settings.max_bytes and payload:
            size = 0
        entry = RetainedEntry(stamp, tag, origin, version, not payload, born, expires, size)
        self._put(topic, entry, frame if size else None)
        return RetainedVerdict.NEW

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken. Walks all entries: for the simulator and tests."""
        entries = {topic: entry for bucket in self._buckets for topic, entry in bucket.items()}
        size = sum(entry.size + ENTRY_OVERHEAD for entry in entries.values())
        assert self.bytes == size, "the bytes of the retained index are counted wrong"
        assert self._mortal == {t for t, entry in entries.items() if entry.dead or entry.expires}, (
            "what is to be purged is not known"
        )
        for number, bucket in enumerate(self._buckets):
            fingerprint = 0
            for topic, entry in bucket.items():
                fingerprint ^= _mark(topic, entry)
            assert self._fingerprints[number] == fingerprint, f"the fingerprint of bucket {number} is wrong"
        latest = max((entry.stamp for entry in entries.values()), default=0)
        assert self.clock.last >= latest, "a stamp given now would be older than one seen"

    def commit(self) -> None:
        self._store.commit()

    def purge(self, now: float) -> None:
        """Turn what expired into tombstones, and forget tombstones that are old enough."""
        for topic in list(self._mortal):
            entry = self.get(topic)
            assert entry is not None
            if entry.dead and now - time_of(entry.stamp) > self.settings.tombstone_age:
                self._drop(topic)
                self._store.remove(topic)
            elif not entry.dead and now >= entry.expires:
                # Made from the entry alone, so that all nodes make the same.
                frame = codec.encode(Publish(topic, b"", retain=True), entry.version)
                tag, size = tag_of(entry.origin, b""), len(frame) + len(topic.encode())
                self._put(topic, replace(entry, tag=tag, dead=True, expires=0.0, size=size), frame)
        self._store.commit()

    def _put(self, topic: str, entry: RetainedEntry, frame: bytes | None) -> None:
        self._drop(topic)
        self._set(topic, entry)
        self._store.put(topic, entry, frame)

    def _set(self, topic: str, entry: RetainedEntry) -> None:
        number = _bucket(topic)
        self._buckets[number][topic] = entry
        self._fingerprints[number] ^= _mark(topic, entry)
        self.bytes += entry.size + ENTRY_OVERHEAD
        if entry.dead or entry.expires:
            self._mortal.add(topic)

    def _drop(self, topic: str) -> None:
        number = _bucket(topic)
        entry = self._buckets[number].pop(topic, None)
        if entry is not None:
            self._fingerprints[number] ^= _mark(topic, entry)
            self.bytes -= entry.size + ENTRY_OVERHEAD
            self._mortal.discard(topic)


def tag_of(origin: str, payload: bytes) -> int:
    """64 bits that tell versions of one stamp apart; the highest bit lets a tombstone win."""
    return _hash(origin.encode() + b"\0" + payload) >> 1 | (not payload) << 63


def _bucket(topic: str) -> int:
    return zlib.crc32(topic.encode()) & BUCKETS - 1


def _mark(topic: str, entry: RetainedEntry) -> int:
    return _hash(b"%d %d %b" % (entry.stamp, entry.tag, topic.encode())) or 1


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())


def _expiry(frame: bytes, head: PublishHead, version: int, born: float) -> float:
    if Property.MESSAGE_EXPIRY_INTERVAL not in head.properties:  # a byte of them: cheaper than reading them
        return 0.0
    packet = codec.decode(frame, version)
    assert isinstance(packet, Publish)
    seconds = get_int(packet.properties, Property.MESSAGE_EXPIRY_INTERVAL, -1)
    return born + seconds if seconds >= 0 else 0.0
