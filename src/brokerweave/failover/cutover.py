"""A client came back at this node: which of what it is owed goes to it from here, once and in order.

Owns the judgement for one SUBSCRIBE. Three ways lead to the client: its queue at the holders, this node's
broker because the origin knew that the client is here (after the *cut*), and this node's broker because
others here want the topic. Invariants: of the three exactly one is taken, as far as can be known; where it
cannot, a publication is given rather than lost, except to a subscription of QoS 0; what came from one
origin's lane stays in order. Must not know: links, brokers, packets to the client.

The life of one: built when SUBACK came, then `add_cut`, `arrived`, `dead`, `offer`, `answered`, `live` in any
order until `complete` or until the caller will not wait longer; then `ready` once, then `late` for whatever
comes after. `received` and `finished` say what holders need not keep any more.
"""

from __future__ import annotations

import enum
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from brokerweave.failover.held import Held, aged
from brokerweave.failover.ids import MessageId
from brokerweave.failover.injections import Injection, InjectionLog
from brokerweave.mqtt.topics import matches

MOST_SETTLED = 100_000
"""Ids remembered so that nothing is given twice; beyond, the oldest goes."""


class Verdict(enum.Enum):
    MINE = "to be given from the queue"
    BROKER = "the broker gives it, or gave it"
    LATER = "its origin routed it knowing that the client is here"
    UNCLEAR = "the broker may or may not give it"
    WAITING = "its origin has not been heard of yet"
    FOREIGN = "the client did not ask for it"


class Cutover:
    """`nodes`: all others that are to answer, with a cut and with a queue. `me` is this node, an origin too.

    `subscribed` and `granted` are the ticks of SUBSCRIBE and SUBACK, `filters` those of that SUBSCRIBE with
    the QoS that was granted. `before` is the cutover of the client's previous SUBSCRIBE here, if any: what
    matches a filter of both is judged by the first.
    """

    def __init__(
        self,
        subscribed: int,
        granted: int,
        filters: Mapping[str, int],
        log: InjectionLog,
        *,
        me: str = "",
        nodes: Iterable[str] = (),
        before: Cutover | None = None,
    ) -> None:
        self.doubted = 0
        """Publications given, or not, without knowing for sure."""
        self.done = False
        """`ready` was called."""
        self._subscribed = subscribed
        self._granted = granted
        self._filters = dict(filters)
        self._log = log
        self._me = me
        self._before = before
        self._unheard = set(nodes)
        self._unanswered = set(nodes)
        self._arriving: set[str] = set()
        self._cuts: dict[str, dict[int, Sequence[int]]] = {}
        self._dead: set[str] = set()
        self._live: Counter[bytes] = Counter()
        self._fence = 0
        self._offered: dict[MessageId, Held] = {}
        self._kept: dict[MessageId, Injection] = {}
        # Ids that were given, or are left to the broker; shared by all cutovers of the client here.
        self._settled: dict[MessageId, None] = before._settled if before is not None else {}
        self._unreceived: dict[bytes, list[MessageId]] = before._unreceived if before is not None else {}

    # What becomes known

    def add_cut(self, origin: str, epoch: int, sequences: Sequence[int], *, arrived: bool = True) -> None:
        """A node has heard where the client is: up to these sequences, by lane, it did not know.

        Without `arrived`, what it sent here before may still be on its way, and `arrived` follows.
        """
        self._cuts.setdefault(origin, {})[epoch] = tuple(sequences)
        self._unheard.discard(origin)
        if not arrived:
            self._arriving.add(origin)

    def arrived(self, origin: str) -> None:
        """Everything that the origin sent here before its cut is in this node's hands."""
        self._arriving.discard(origin)

    def dead(self, origin: str) -> None:
        """Nothing will be heard of this node, or nothing more."""
        self._dead.add(origin)
        self._unheard.discard(origin)
        self._unanswered.discard(origin)
        self._arriving.discard(origin)

    def offer(self, held: Iterable[Held]) -> None:
        """From a holder's queue, or published here meanwhile."""
        for one in held:
            known = self._offered.get(one.id)
            if known is None or one.born < known.born:
                self._offered[one.id] = one

    def answered(self, node: str) -> None:
        """The node has given all that it had in the client's queue."""
        self._unanswered.discard(node)

    def live(self, hash: bytes) -> None:
        """The broker delivered this to the client, not as a retained message."""
        self._live[hash] += 1

    def fence(self, tick: int) -> None:
        """What the broker had at this tick, and was to give to the client, it has given."""
        self._fence = max(self._fence, tick)

    # What follows from it

    @property
    def heard(self) -> bool:
        """Whether all nodes were heard of, have answered, and what they sent is here."""
        return not (self._unheard or self._unanswered or self._arriving)

    @property
    def unclear(self) -> bool:
        """Whether more of what the broker does has to be seen."""
        return any(self._judge(held, self._live.copy()) is Verdict.UNCLEAR for held in self._offered.values())

    @property
    def complete(self) -> bool:
        return self.heard and not self.unclear

    def ready(self, now: float) -> list[Held]:
        """What to give to the client, in order, each at the QoS that it is to have. What is not known by
        now is not waited for."""
        mine = [held for held in _ordered(self._offered.values()) if self._decide(held)]
        self._keep_log()
        self._offered.clear()
        self.done = True
        return self._fitted(mine, now)

    def late(self, held: Held, now: float) -> list[Held]:
        """One that came after `ready`: to be given to the client now, or nothing."""
        return self._fitted([held], now) if self._decide(held) else []

    def received(self, hashes: Iterable[bytes]) -> list[MessageId]:
        """The client has these from the broker or from here: which of those that holders still keep."""
        ids = []
        for one in hashes:
            waiting = self._unreceived.get(one)
            if waiting:
                ids.append(waiting.pop(0))
                if not waiting:
                    del self._unreceived[one]
        return ids

    def finished(self, held: Iterable[Held]) -> list[MessageId]:
        """The client has these, from here: which of them was not said by `received`."""
        ids = []
        for one in held:
            waiting = self._unreceived.get(one.hash)
            if waiting and one.id in waiting:
                waiting.remove(one.id)
                ids.append(one.id)
                if not waiting:
                    del self._unreceived[one.hash]
        return ids

    # The judgement

    def _decide(self, held: Held) -> bool:
        """Finally: whether it is to be given from here."""
        if held.id in self._settled:
            return False
        verdict = self._judge(held, self._live, final=True)
        if verdict in (Verdict.FOREIGN, Verdict.LATER):
            return False  # a later SUBSCRIBE may want it; the broker's receipts end it
        self._settled[held.id] = None
        if len(self._settled) > MOST_SETTLED:
            del self._settled[next(iter(self._settled))]
        self._unreceived.setdefault(held.hash, []).append(held.id)
        return verdict is Verdict.MINE

    def _judge(self, held: Held, live: Counter[bytes], final: bool = False) -> Verdict:
        if held.id in self._settled:
            return Verdict.BROKER
        first = self._first(held.publish.topic)
        if first is not self:
            return Verdict.FOREIGN if first is None else first._judge_here(held, first._live, True)
        return self._judge_here(held, live, final)

    def _judge_here(self, held: Held, live: Counter[bytes], final: bool) -> Verdict:
        by_cut = self._judge_by_cut(held.id, final)
        if by_cut is not None:
            return by_cut
        injection = self._kept.get(held.id) if self.done else self._log.find(held.id)
        if injection is None:
            return Verdict.MINE
        if injection.ended is not None and injection.ended < self._subscribed:
            return Verdict.MINE
        if injection.sent is None or injection.sent > self._granted:
            return Verdict.BROKER
        if live[held.hash] > 0:
            live[held.hash] -= 1
            return Verdict.BROKER
        if injection.ended is not None and injection.ended <= self._fence:
            return Verdict.MINE
        if not final:
            return Verdict.UNCLEAR
        self.doubted += 1
        return Verdict.MINE if self._qos(held.publish.topic) else Verdict.BROKER

    def _judge_by_cut(self, identifier: MessageId, final: bool) -> Verdict | None:
        """None: it lies before the cut."""
        origin, epoch, lane, sequence = identifier
        if origin == self._me:
            return None  # the log knows all
        cuts = self._cuts.get(origin, {})
        cut = cuts.get(epoch)
        if cut is not None:
            if lane < len(cut) and sequence > cut[lane]:
                return Verdict.LATER
            return Verdict.WAITING if origin in self._arriving and not final else None
        if origin in self._dead or final or any(known > epoch for known in cuts):
            return None  # of an earlier life of its origin, which did not know
        return Verdict.WAITING

    def _first(self, topic: str) -> Cutover | None:
        """The client's earliest cutover here with a filter that wants the topic."""
        earlier = self._before._first(topic) if self._before is not None else None
        return earlier or (self if any(matches(one, topic) for one in self._filters) else None)

    def _qos(self, topic: str) -> int:
        """The highest that was granted for it, in any of the client's cutovers here."""
        granted = max((qos for one, qos in self._filters.items() if matches(one, topic)), default=0)
        return max(granted, self._before._qos(topic) if self._before is not None else 0)

    def _fitted(self, given: list[Held], now: float) -> list[Held]:
        fitted = []
        for held in given:
            current = aged(held, now)
            if current is not None:
                qos = min(current.publish.qos, self._qos(current.publish.topic))
                publish = replace(current.publish, qos=qos, retain=False)  # [MQTT-3.3.1-9]
                fitted.append(replace(current, publish=publish))
        return fitted

    def _keep_log(self) -> None:
        """What of the log may be asked for later, so that it need not be kept open: what lies before the
        cuts."""
        for identifier, injection in self._log.items():
            if self._judge_by_cut(identifier, final=True) is None:
                self._kept[identifier] = replace(injection)
        self._log.close(self._subscribed)


def _ordered(offered: Iterable[Held]) -> list[Held]:
    """By time of publication, but each origin's lane in the order of its sequences."""
    lanes: dict[tuple[str, int], list[Held]] = {}
    for held in offered:
        lanes.setdefault((held.id.origin, held.id.lane), []).append(held)
    streams: list[list[tuple[float, MessageId, Held]]] = []
    for lane in lanes.values():
        latest = float("-inf")
        stream = []
        for held in sorted(lane, key=lambda one: one.id):
            latest = max(latest, held.born)
            stream.append((latest, held.id, held))
        streams.append(stream)
    return [held for _, _, held in heapq.merge(*streams, key=lambda item: item[:2])]
