"""Who at this site wants what, and what the strategy must hear of it.

Owns the session records and, per filter, the clients that hold it. Invariants: the strategy hears of a
filter when its first client comes, when its highest QoS changes and when its last client goes, and of
nothing else; a record's filters and this table never differ. Must not know: pairs, time.
"""

from __future__ import annotations

from brokerweave.cooperation.api import Strategy
from brokerweave.mqtt.topics import shared_filter
from brokerweave.session.record import SessionRecord

MAX_LEVELS = 200
"""A deeper filter stays at its site: each level costs every node on the way a node in its trie."""


class _Holders:
    """The clients that hold one filter, counted by QoS: the highest is known without looking at all."""

    __slots__ = ("counts", "qos")

    def __init__(self) -> None:
        self.qos: dict[str, int] = {}
        self.counts = [0, 0, 0]

    def put(self, holder: str, qos: int) -> None:
        self.remove(holder)
        self.qos[holder] = qos
        self.counts[qos] += 1

    def remove(self, holder: str) -> None:
        qos = self.qos.pop(holder, None)
        if qos is not None:
            self.counts[qos] -= 1

    @property
    def highest(self) -> int:
        """-1 when nobody is left."""
        return max((qos for qos in (0, 1, 2) if self.counts[qos]), default=-1)


class Interest:
    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._wanted: dict[str, _Holders] = {}
        self.records: dict[str, SessionRecord] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def filters(self) -> dict[str, int]:
        """Each filter with the highest QoS any client here was granted."""
        return {name: holders.highest for name, holders in self._wanted.items()}

    def add(self, record: SessionRecord, topic_filter: str, qos: int) -> None:
        record.filters[topic_filter] = qos
        holder, plain = _holder(record.client_id, topic_filter)
        if plain.startswith("$") or plain.count("/") >= MAX_LEVELS:
            return  # $SYS and its like are each broker's own; nobody needs a filter of 64 KiB of slashes
        holders = self._wanted.setdefault(plain, _Holders())
        before = holders.highest
        holders.put(holder, qos)
        if holders.highest != before:
            self._strategy.subscribed(plain, holders.highest)

    def discard(self, record: SessionRecord, topic_filter: str) -> None:
        record.filters.pop(topic_filter, None)
        holder, plain = _holder(record.client_id, topic_filter)
        holders = self._wanted.get(plain)
        if holders is None or holder not in holders.qos:
            return
        before = holders.highest
        holders.remove(holder)
        after = holders.highest
        if after < 0:
            del self._wanted[plain]
            self._strategy.unsubscribed(plain)
        elif after != before:
            self._strategy.subscribed(plain, after)

    def forget(self, record: SessionRecord) -> None:
        """The session ended: nothing of it is wanted any more."""
        for topic_filter in list(record.filters):
            self.discard(record, topic_filter)
        if self.records.get(record.client_id) is record:
            del self.records[record.client_id]


def _holder(client_id: str, topic_filter: str) -> tuple[str, str]:
    """A client may hold `f` and `$share/g/f` at once: two holders of one plain filter."""
    group, plain = shared_filter(topic_filter)
    return (client_id if group is None else f"{client_id}\0{group}"), plain
