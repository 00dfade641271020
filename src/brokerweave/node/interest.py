"""Who at this site wants what, and what the strategy must hear of it.

Owns the session records and, per filter, the clients that hold it. Invariants: the strategy hears of a
filter when its first client comes, when its highest QoS changes and when its last client goes, and of
nothing else, all that one packet changes in one call; a record's filters and this table never differ; what
changes of a stored session is in the write-ahead log at once. Must not know: pairs, time.
"""

from __future__ import annotations

from collections.abc import Iterable

from brokerweave.mqtt.topics import shared_filter
from brokerweave.node.write_ahead_log import WriteAheadLog
from brokerweave.plugin import Strategy
from brokerweave.session.record import SessionRecord
from brokerweave.tables import fit

EVERYTHING = "#"
FLOODED = "$share/\0/#"
"""What stands for everything in a client's own filters, whichever it really has."""

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
    def __init__(self, strategy: Strategy, wal: WriteAheadLog | None = None) -> None:
        self._strategy = strategy
        self._wal = wal or WriteAheadLog()
        self.flooded: set[str] = set()
        """Clients for which this site takes everything, because nobody knows what they want."""
        self._wanted: dict[str, _Holders] = {}
        self.records: dict[str, SessionRecord] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def filters(self) -> dict[str, int]:
        """Each filter with the highest QoS any client here was granted."""
        return {name: holders.highest for name, holders in self._wanted.items()}

    def add(self, record: SessionRecord, granted: Iterable[tuple[str, int]]) -> None:
        raised: dict[str, int] = {}
        wants: dict[str, int | None] = {}
        for topic_filter, qos in granted:
            if record.stored and record.filters.get(topic_filter) != qos:
                self._wal.note("filter", record.client_id, topic_filter, qos)
            record.filters[topic_filter] = qos
            raised |= self._hold(*_holder(record.client_id, topic_filter), qos)
            if _routable(topic_filter):
                wants[topic_filter] = qos
        if raised:
            self._strategy.subscribed(raised)
        self._strategy.client_wants(record.client_id, wants)

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken. Walks all filters: for the simulator and tests."""
        held: dict[str, dict[str, int]] = {}
        for record in self.records.values():
            for topic_filter, qos in record.filters.items():
                holder, plain = _holder(record.client_id, topic_filter)
                if _leads_out(plain):
                    held.setdefault(plain, {})[holder] = qos
        for client in self.flooded:
            held.setdefault(EVERYTHING, {})[f"{client}\0\0"] = 2
        assert held == {plain: holders.qos for plain, holders in self._wanted.items()}, (
            "records and wanted filters differ"
        )
        for plain, holders in self._wanted.items():
            counts = [sum(qos == each for qos in holders.qos.values()) for each in (0, 1, 2)]
            assert holders.counts == counts, f"the holders of {plain} are counted wrong"

    def tell(self, record: SessionRecord) -> None:
        """A client came back to its session: what it wants is what it wanted."""
        wants: dict[str, int | None] = {f: qos for f, qos in record.filters.items() if _routable(f)}
        if record.client_id in self.flooded:
            wants[FLOODED] = 2
        self._strategy.client_wants(record.client_id, wants)

    def _hold(self, holder: str, plain: str, qos: int) -> dict[str, int]:
        """What the strategy has to hear of it."""
        if not _leads_out(plain):
            return {}
        holders = self._wanted.setdefault(plain, _Holders())
        before = holders.highest
        holders.put(holder, qos)
        return {plain: holders.highest} if holders.highest != before else {}

    def discard(self, record: SessionRecord, topic_filters: Iterable[str], tell: bool = True) -> None:
        released = []
        wants: dict[str, int | None] = {}
        for topic_filter in topic_filters:
            if _routable(topic_filter):
                wants[topic_filter] = None
            if record.filters.pop(topic_filter, None) is not None and record.stored:
                self._wal.note("unfilter", record.client_id, topic_filter)
            released.append(_holder(record.client_id, topic_filter))
        fit(record.filters)
        self._release(released)
        if tell:
            self._strategy.client_wants(record.client_id, wants)

    def _release(self, holds: Iterable[tuple[str, str]]) -> None:
        lowered: dict[str, int] = {}
        gone: list[str] = []
        for holder, plain in holds:
            holders = self._wanted.get(plain)
            if holders is None or holder not in holders.qos:
                continue
            before = holders.highest
            holders.remove(holder)
            after = holders.highest
            if after < 0:
                del self._wanted[plain]
                lowered.pop(plain, None)
                gone.append(plain)
            elif after != before:
                lowered[plain] = after
        fit(self._wanted)
        if lowered:
            self._strategy.subscribed(lowered)
        if gone:
            self._strategy.unsubscribed(gone)

    def forget(self, record: SessionRecord, left: bool = True) -> None:
        """The session ended: nothing of it is wanted any more. Not `left`: its client is here, with a new
        one."""
        if record.stored:
            record.stored = False
            self._wal.note("ended", record.client_id)
        self.discard(record, list(record.filters), tell=left)
        self.calm(record)
        if self.records.get(record.client_id) is record:
            del self.records[record.client_id]
            fit(self.records)
        if left:
            self._strategy.client_left(record.client_id)

    def flood(self, record: SessionRecord) -> None:
        """Until it is known what this client wants, everything that others publish comes to this site."""
        self.flooded.add(record.client_id)
        raised = self._hold(f"{record.client_id}\0\0", EVERYTHING, 2)
        if raised:
            self._strategy.subscribed(raised)
        self._strategy.client_wants(record.client_id, {FLOODED: 2})

    def calm(self, record: SessionRecord) -> None:
        """What this client wants is known, or its session is over."""
        record.unknown = False
        if record.client_id in self.flooded:
            self.flooded.discard(record.client_id)
            self._release([(f"{record.client_id}\0\0", EVERYTHING)])
            self._strategy.client_wants(record.client_id, {FLOODED: None})


def _leads_out(plain: str) -> bool:
    """$SYS and its like are each broker's own; nobody needs a filter of 64 KiB of slashes."""
    return not plain.startswith("$") and plain.count("/") < MAX_LEVELS


def _routable(topic_filter: str) -> bool:
    return _leads_out(shared_filter(topic_filter)[1])


def _holder(client_id: str, topic_filter: str) -> tuple[str, str]:
    """A client may hold `f` and `$share/g/f` at once: two holders of one plain filter."""
    group, plain = shared_filter(topic_filter)
    return (client_id if group is None else f"{client_id}\0{group}"), plain
