"""The clients of this site: their homes, and what these want.

Owns `Homes`: the home of each client, the filters that records here want, and that holders and disk hear of
each change. Invariants: a client has one home here at most, and it has a record; what any record wants the
site wants. Must not know: claims, what goes to a client when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from brokerweave.care.disk import Life, RecordJournal
from brokerweave.care.holders import ALWAYS, HolderStreams
from brokerweave.care.home import Home, State
from brokerweave.care.host import CareHost
from brokerweave.care.ids import MessageId
from brokerweave.care.record import Merged, Record, RecordTable, Snapshot
from brokerweave.care.room import Room
from brokerweave.care.waiting import WaitingHomes
from brokerweave.care.wire import LogEntry
from brokerweave.plugin.sites import SiteBook

MOST_OVER = 10_000


class Homes:
    def __init__(
        self,
        host: CareHost,
        sites: SiteBook,
        room: Room,
        disk: RecordJournal,
        end: Callable[[str, int], None],
    ) -> None:
        """`end`: a client's session ended, the last one of that generation."""
        self._host = host
        self._sites = sites
        self._end = end
        self.table = RecordTable(room, self._dropped)
        own = host.node_id, host.settings.epoch
        self.table.hear(own, ALWAYS)
        self.holders = HolderStreams(host, sites, own, self.table, partial(disk.noted, self.life))
        self.subscribing: set[str] = set()
        """Clients whose SUBSCRIBE is on its way: their broker may deliver what nobody here wanted before."""
        self.waiting = WaitingHomes()
        """Those that go on when others have answered, or heard something."""
        self._by_client: dict[str, Home] = {}
        self._wants: dict[str, dict[str, int]] = {}
        """By filter: the clients whose records want it."""
        self._over: dict[str, frozenset[MessageId]] = {}
        """What a client had in a session that ended here, beyond what had come to this site."""
        self._moment = 0

    @property
    def life(self) -> Life:
        return self._host.node_id, self._sites.life

    def get(self, client: str) -> Home | None:
        return self._by_client.get(client)

    def __getitem__(self, client: str) -> Home:
        return self._by_client[client]

    def __iter__(self) -> Iterator[Home]:
        return iter(list(self._by_client.values()))

    def __len__(self) -> int:
        return len(self._by_client)

    def moment(self) -> int:
        """Later ones are higher."""
        self._moment += 1
        return self._moment

    # Homes come and go

    def open(self, client: str, session: bool) -> Home:
        home = self._by_client[client] = Home(self.table.open(client), session=session)
        return home

    def drop(self, home: Home, ended: int = 0) -> None:
        """`ended`: the generation with which its session ended."""
        self._end(home.client, ended)
        if ended:
            self._over[home.client] = frozenset((*home.record.ids, *home.record.queue))
            if len(self._over) > MOST_OVER:
                del self._over[next(iter(self._over))]
        self.want_no_more(home.record)
        self.table.drop(home.client)
        self._by_client.pop(home.client, None)
        self.waiting.discard(home.client)
        self.holders.note(LogEntry("drop", home.client, generation=ended))

    def begin(self, record: Record) -> None:
        """A session begins where the last one of its client ended."""
        self.table.begin(record, self._over.pop(record.client, ()))

    def give_up(self, home: Home) -> None:
        """An adopted client did not come."""
        if self._by_client.get(home.client) is home and not home.session and home.state is State.HOME:
            self._host.count("clients_given_up")
            self.drop(home)

    def close(self, home: Home, planned: bool = False) -> None:
        """Another site has claimed the client [MQTT-3.1.4-3]."""
        pair, home.pair = home.pair, None
        home.interrupted()
        home.delivering.lost()
        home.session = False
        record = self._host.sessions.records.get(home.client)
        if record is not None:
            self._host.sessions.forget(record)
        if pair is not None and planned:
            pair.close_moved()
        elif pair is not None:
            pair.close_taken_over(session_ends=True)

    # What records want

    def want(self, record: Record) -> None:
        for each, qos in record.filters.items():
            clients = self._wants.setdefault(each, {})
            most = max(clients.values(), default=-1)
            clients[record.client] = qos
            if qos > most:
                self._sites.want({each: qos})

    def want_no_more(self, record: Record, filters: Iterable[str] | None = None) -> None:
        for each in record.filters if filters is None else filters:
            clients = self._wants.get(each, {})
            if clients.pop(record.client, None) is not None:
                most = max(clients.values(), default=-1)
                if most < 0:
                    del self._wants[each]
                self._sites.want({each: most if most >= 0 else None})

    def change(self, home: Home, filters: Mapping[str, int | None]) -> bool:
        """The client wants something else where it is (None: no longer). False: that is nothing new."""
        record = home.record
        new = {f: qos for f, qos in filters.items() if record.filters.get(f) != qos}
        for each in [f for f, qos in filters.items() if qos is None]:
            home.delivering.granted.pop(each, None)
        if new:
            self.table.unsettle(record)
            self.want_no_more(record, [f for f, qos in new.items() if qos is None])
            self.table.set_filters(record, new)
            self.want(record)
            self.holders.filters(record)
        return bool(new)

    # What clients are to get, and have

    def received(self, home: Home, ids: Iterable[MessageId]) -> None:
        ids = list(ids)
        if home.record.also:
            ids += [home.record.also[each] for each in ids if each in home.record.also]
        for each in ids:
            self.table.received(home.record, each)
        if ids:
            self.holders.has(home.record, ids)

    def merge(self, home: Home, told: Snapshot) -> Merged:
        """What another copy of a record knows. The holders hear what is new."""
        record = home.record
        learned = self.table.merge(record, told)
        home.delivering.expect_from_node({held.id for held in told.queue})
        if learned.filters and home.state is not State.LEAVING:
            self.want(record)
            self.holders.filters(record)
        if learned.had:
            self.holders.has(record, learned.had)
        for held in learned.new:
            home.told[held.id] = told.session
            self.holders.learned(record, held)
        return learned

    def forget_before(self, home: Home, ended: int) -> None:
        """A session of the client ended: what others told of it is of no use in this one."""
        home.record.born = ended
        self.received(home, [i for i in home.record.queue if i in home.told and home.told[i] <= ended])
        self.holders.filters(home.record)

    def settle(self, home: Home, version: int) -> None:
        """All origins know this version of what the site wants."""
        me, settings = self._host.node_id, self._host.settings
        for lane, last in enumerate(self._host.cut(me).sequences):  # also what nobody was to get
            self.table.take((me, settings.epoch, lane), last)
        self.table.settle(home.record, version)
        self.holders.note(LogEntry("settled", home.client, version=version))

    def _dropped(self, record: Record, identifier: MessageId) -> None:
        self._host.count("held_dropped")
        home = self._by_client.get(record.client)
        if home is not None:
            home.delivering.by_broker.discard(identifier)

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken: for the simulator and tests."""
        self.table.check()
        for client, home in self._by_client.items():
            assert home.record is self.table.records.get(client), "a home without its record"
            assert home.state is State.LEAVING or home.record.filters.keys() <= self._wants.keys(), (
                "a record wants what its site does not"
            )
