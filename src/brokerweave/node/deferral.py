"""What waits for its route goes on as soon as the strategy knows it.

Owns when the strategy is asked again, and the way from there to the outboxes. Invariants: what is to survive
a crash is in the write-ahead log before anybody relies on it, and leaves it with the entry that names who
owes it; what comes for a topic meanwhile finds it waiting, until all before it is gone. Must not know: what a
strategy waits for, clients, links.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from brokerweave.mqtt.publish import publish_head
from brokerweave.node.router import RouteGroup
from brokerweave.node.waiting import WaitingRun
from brokerweave.node.write_ahead_log import RunEntry, Waits

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore


class Deferral:
    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._scheduled = False
        self._topics: set[str] | None = set()
        """To be asked about; None: all."""

    def park(self, one: WaitingRun, taken: tuple[str, int] | None = None) -> None:
        """Keep a run until its route is known; `taken` as for `Outgoing.dispatch`."""
        if one.run.durable:
            one = replace(one, number=self._core.wal.run(_entry(one, taken)))
        if one.key not in self._core.waiting:
            self._core.router.changed((one.topic,))  # retained or not, it is known no longer
        self._core.waiting.add(one)

    def routes_changed(self, topics: Iterable[str] | None) -> None:
        """Ask again about these topics, or all, when this turn is over: the strategy may be in the middle of
        what it does."""
        if topics is None:
            self._topics = None
        elif self._topics is not None:
            self._topics.update(topics)
        if self._core.waiting and not self._scheduled:
            self._scheduled = True
            self._core.host.call_later(0.0, self.ask)
        elif not self._core.waiting:
            self._topics = set()

    def ask(self) -> None:
        """Ask the strategy, and send what it knows the route of."""
        topics, self._topics, self._scheduled = self._topics, set(), False
        self._core.publisher.settle()  # what was gathered is older
        for key in self._core.waiting.queues(topics):
            known: dict[tuple[bool, bytes], RouteGroup] = {}
            while (one := self._core.waiting.first(key)) is not None:
                question = (bool(one.run.blob[0] & 1), one.run.plan)
                if question not in known:
                    answer = self._core.router.answer(key[1], question[0], key[0], question[1])
                    known[question] = answer or RouteGroup((), False, self._core.router.lane(key[1]))
                if not known[question].known:
                    break
                self._send(self._core.waiting.pop(key), known[question])
            else:
                self._core.router.changed((key[1],))

    def _send(self, one: WaitingRun, group: RouteGroup) -> None:
        run, published_here = one.run, one.came_from is None
        if published_here and not run.first and not run.repair:
            run = self._core.publisher.numbered(run, group)
        local = one.local and (group.local or published_here)
        group = replace(group, hops=group.hops if one.hops else (), local=local)
        entry = self._core.retained.index.get(one.topic) if run.stamp and local else None
        if entry is not None and entry.stamp > run.stamp:
            self._core.retained.check.doubt((one.topic,))  # the broker has a newer one by now
        if one.send is not None:
            one.send(run, group, one.came_on, one.number)
        else:
            self._core.outgoing.dispatch(run, group, one.came_on, waited=one.number)

    # Over a restart

    def entries(self) -> list[tuple[int, RunEntry]]:
        """What waits and is to survive."""
        return [(one.number, _entry(one)) for one in self._core.waiting if one.number]

    def recall(self, number: int, entry: RunEntry) -> None:
        """What waited before the restart does so again, and is asked about."""
        waits = entry.waits or Waits(None)
        topic = publish_head(entry.run.blob, entry.run.version).topic.decode()
        self._core.waiting.add(
            WaitingRun(topic, entry.run, waits.came_from, entry.lane, waits.local, waits.hops, number)
        )
        self.routes_changed((topic,))


def _entry(one: WaitingRun, taken: tuple[str, int] | None = None) -> RunEntry:
    waits = Waits(one.came_from, one.local, one.hops)
    return RunEntry(one.run, one.came_on, (), *(taken or ("", 0)), waits=waits)
