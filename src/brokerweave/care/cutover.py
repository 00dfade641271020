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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from brokerweave.care.held import Held, aged
from brokerweave.care.ids import MessageId
from brokerweave.care.injections import InjectionLog, InjectionRecord
from brokerweave.mqtt.topics import matches

MOST_SETTLED = 100_000
"""Ids remembered so that nothing is given twice; beyond, the oldest goes."""


class CutoverVerdict(enum.Enum):
    MINE = "to be given from the queue"
    BROKER = "the broker gives it, or gave it"
    LATER = "its origin routed it knowing that the client is here"
    UNCLEAR = "the broker may or may not give it"
    WAITING = "its origin has not been heard of yet"
    FOREIGN = "the client did not ask for it"


class Cutover:
    """`nodes`: all others that are to answer, with a cut and with a queue. `me` is this node, an origin too.

    `subscribed` and `granted` are the ticks of SUBSCRIBE and SUBACK; the log stays open from the first on
    as long as something may come late. `filters` are those of that SUBSCRIBE with the QoS that was granted.
    `before` is the cutover of the client's previous SUBSCRIBE here, if any: what matches a filter of both is
    judged by the first.
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
        self.doubtful: list[bytes] = []
        """Of those that are given, the content of what nothing equals that was offered."""
        self.done = False
        """`ready` was called."""
        self.older = False
        """Set it if the session is older than this node's knowledge of it: the broker may have granted the
        filters before, and have all of it for the client."""
        self.later: list[MessageId] = []
        """After `ready`: what of the offered its origin routed knowing that the client is here."""
        self.known: list[MessageId] = []
        """After `ready`: what of the offered the client has."""
        self._already: Counter[bytes] = Counter()
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
        self._own: dict[int, Sequence[int]] = {}
        self._unsure: dict[MessageId, str] = {}
        self._came: set[tuple[str, str, int]] = set()
        self._alike: Counter[bytes] = Counter()
        self._dead: set[str] = set()
        self._live: Counter[bytes] = Counter()
        self._offered: dict[MessageId, Held] = {}
        self._decided = 0
        # Ids that were given, or are left to the broker; shared by all cutovers of the client here.
        self._settled: dict[MessageId, None] = before._settled if before is not None else {}
        self._unreceived: dict[bytes, list[MessageId]] = before._unreceived if before is not None else {}
        self._overtaken: set[MessageId] = before._overtaken if before is not None else set()
        # Given from here, and not known to be received.
        self._given: dict[MessageId, bytes] = before._given if before is not None else {}
        # What the client has from the broker that was none of what it is owed, as far as was known then.
        self._others: Counter[bytes] = before._others if before is not None else Counter()

    # What becomes known

    def published(self, held: Held, publisher: str) -> None:
        """The broker acknowledged what a client here published before SUBACK came: it may have had it before
        the subscription, whenever this node gave it its number."""
        self._unsure[held.id] = publisher
        self.offer((held,))

    def had_before(self, held: Held) -> None:
        """The broker acknowledged what a client here sent again: it may have had it before the subscription,
        and has then delivered it to others only."""
        first = self._first(held.publish.topic)
        if first is not None:
            first._unsure.setdefault(held.id, "")
            if not first.done:
                first.offer((held,))

    def is_judged(self, topic: str) -> bool:
        """Whether `ready` was called of the SUBSCRIBE by which it is judged what the client lacks of a topic:
        then what its broker delivers by now is not looked at any more."""
        first = self._first(topic)
        return first is None or first.done

    def add_cut(self, origin: str, epoch: int, sequences: Sequence[int], *, arrived: bool = True) -> None:
        """A node has heard where the client is: up to these sequences, by lane, it did not know.

        Without `arrived`, what it sent here before may still be on its way, and `arrived` follows.
        """
        self._cuts.setdefault(origin, {})[epoch] = tuple(sequences)
        self._unheard.discard(origin)
        if not arrived:
            self._arriving.add(origin)

    def reborn(self, origin: str, epoch: int, sequences: Sequence[int]) -> None:
        """A node whose link or life is new has heard where the client is, in the end."""
        for one in self._chain():
            known = one._own if origin == one._me else one._cuts.setdefault(origin, {})
            known.setdefault(epoch, tuple(sequences))

    def arriving(self, origin: str) -> None:
        """Wait for `arrived` of this node: of our own name while the broker has not acknowledged all that was
        published here before SUBACK."""
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
        """From a holder's queue."""
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

    def already(self, hashes: Iterable[bytes]) -> None:
        """The broker delivered these before SUBACK, or as the session went on: the client has them of it."""
        self._already.update(hashes)

    # What follows from it

    @property
    def heard(self) -> bool:
        """Whether all nodes were heard of, have answered, and what they sent is here; and all that goes by an
        earlier SUBSCRIBE is judged."""
        in_turn = self._before is None or self._before.done
        return in_turn and not (self._unheard or self._unanswered or self._arriving)

    @property
    def unclear(self) -> bool:
        """Whether the broker may or may not give something of what was offered: more deliveries will tell."""
        live = self._credible()
        return any(self._judge(held, live) is CutoverVerdict.UNCLEAR for held in self._offered.values())

    @property
    def unacknowledged(self) -> bool:
        """Whether the broker has yet to acknowledge something that it may give: it is no use to doubt yet."""
        offered = (self._log.find(identifier) for identifier in self._offered)
        return any(one is not None and self._in_between(one) and one.ended is None for one in offered)

    @property
    def complete(self) -> bool:
        return self.heard and not self.unclear

    def ready(self, now: float) -> list[Held]:
        """What to give to the client, in order, each at the QoS that it is to have. What is not known by
        now is not waited for."""
        self._live = self._credible()
        self._alike.update(held.hash for held in self._offered.values())
        self.later = [held.id for held in self._offered.values() if self.routed_here(held)]
        mine = [held for held in in_order(self._offered.values()) if self._decide(held)]
        self.known = [held.id for held in self._offered.values() if self.has(held)]
        self._decided = self._log.tick()
        self._offered.clear()
        self.done = True
        return self._fitted(mine, now)

    def late(self, held: Held, now: float) -> list[Held]:
        """One that came after `ready`: to be given to the client now, or nothing."""
        return self._fitted([held], now) if self._decide(held) else []

    def overtaken(self, identifier: MessageId, topic: str, hash: bytes) -> None:
        """The broker is about to get this, after `ready`. Where its origin did not know that the client is
        here somebody may keep it for the client, too, and is told once the client has it."""
        first = self._first(topic) if self.done and identifier not in self._settled else None
        if first is not None and first._judge_by_cut(identifier, final=True) is None:
            self._settle(identifier, hash)
            self._overtaken.add(identifier)

    def had(self, ids: Iterable[MessageId]) -> None:
        """The client had these before this node was restarted."""
        self._settled.update(dict.fromkeys(ids))

    def known_again(self, hash: bytes) -> None:
        """This node's own holders have it as well, under another name."""
        self._overtaken.update(self._unreceived.get(hash, ()))

    def held_for_here(self, identifier: MessageId) -> bool:
        """Whether this node's own holders may have it, too, beside those who kept something from before: it
        was published here, or its origin, just started, knew the client of old."""
        return identifier.origin == self._me or identifier in self._overtaken

    def came_here(self, held: Held) -> bool:
        """Whether the client got one like this here, which nobody asked for yet. Asked once of each."""
        known = self._others[held.hash] > 0
        self._others[held.hash] -= known
        return known

    def routed_here(self, held: Held) -> bool:
        """Whether its origin sent it here knowing that the client is here: then this node's own holders have
        it, and no others need."""
        first = self._first(held.publish.topic)
        return first is not None and first._judge_by_cut(held.id, final=True) is CutoverVerdict.LATER

    def has(self, held: Held) -> bool:
        """Whether the client is known to have it: it was given, from here or by the broker, and answered."""
        return held.id in self._settled and held.id not in self._unreceived.get(held.hash, ())

    def knows(self, held: Held) -> bool:
        """The same, also of one that nobody had asked for when the client got it from the broker."""
        asked = held.id in self._settled or not self._others[held.hash]
        if not asked and self._judge(held, self._live, final=True) is CutoverVerdict.BROKER:
            self._others[held.hash] -= 1
            self._settled[held.id] = None
        return self.has(held)

    def received(self, hashes: Iterable[bytes]) -> list[MessageId]:
        """The client has these from the broker or from here: which they are of what it was owed from
        before. Of one that is none of those, this node's own holders are to be told."""
        ids = []
        for one in hashes:
            waiting = self._unreceived.get(one)
            if waiting:
                ids.append(waiting.pop(0))
                self._given.pop(ids[-1], None)
                if not waiting:
                    del self._unreceived[one]
            elif len(self._others) < MOST_SETTLED:
                self._others[one] += 1
        return ids

    def finished(self, held: Iterable[Held]) -> list[MessageId]:
        """The client has these, from here: which of them was not said by `received`."""
        ids = []
        for one in held:
            waiting = self._unreceived.get(one.hash)
            if waiting and one.id in waiting:
                waiting.remove(one.id)
                self._given.pop(one.id, None)
                ids.append(one.id)
                if not waiting:
                    del self._unreceived[one.hash]
        return ids

    @property
    def cuts(self) -> dict[str, tuple[int, list[int]]]:
        """Of each node's latest life: up to where it did not know that the client is here."""
        every = self._cuts | {self._me: self._own}
        return {node: (max(cuts), list(cuts[max(cuts)])) for node, cuts in every.items() if cuts}

    @property
    def has_pending(self) -> bool:
        """Whether something that was given from here is not known to be received."""
        return bool(self._given)

    def interrupted(self) -> None:
        """The client's connection ended: what was given to it from here, and it did not answer, it is owed
        still. Offered again it is given again."""
        for identifier, hash in self._given.items():
            waiting = self._unreceived.get(hash, [])
            if identifier in waiting:
                waiting.remove(identifier)
                self._settled.pop(identifier, None)
                if not waiting:
                    del self._unreceived[hash]
        self._given.clear()

    # The judgement

    def _decide(self, held: Held) -> bool:
        """Finally: whether it is to be given from here."""
        if held.id in self._settled:
            return False
        verdict = self._judge(held, self._live, final=True)
        if verdict in (CutoverVerdict.FOREIGN, CutoverVerdict.LATER):
            return False  # a later SUBSCRIBE may want it; the broker's receipts end it
        if verdict is CutoverVerdict.BROKER and self._others[held.hash] > 0:
            self._others[held.hash] -= 1
            self._settled[held.id] = None  # it has it already
        else:
            self._settle(held.id, held.hash)
        return verdict is CutoverVerdict.MINE

    def _settle(self, identifier: MessageId, hash: bytes) -> None:
        self._settled[identifier] = None
        if len(self._settled) > MOST_SETTLED:
            del self._settled[next(iter(self._settled))]
        self._unreceived.setdefault(hash, []).append(identifier)

    def _judge(self, held: Held, live: Counter[bytes], final: bool = False) -> CutoverVerdict:
        if held.id in self._settled:
            return CutoverVerdict.BROKER
        first = self._first(held.publish.topic)
        if first is not self:
            return CutoverVerdict.FOREIGN if first is None else first._judge_here(held, first._live, True)
        return self._judge_here(held, live, final)

    def _judge_here(self, held: Held, live: Counter[bytes], final: bool) -> CutoverVerdict:
        by_cut = self._judge_by_cut(held.id, final)
        if by_cut is not None:
            return by_cut
        if self._already[held.hash] > 0:
            self._already[held.hash] -= final
            return CutoverVerdict.BROKER
        injection = self._log.find(held.id)
        came_later = injection is not None and self.done and injection.queued >= self._decided
        if came_later and held.id not in self._unsure:
            return CutoverVerdict.BROKER  # it came here after SUBACK
        before = injection is None or (injection.ended and injection.ended < self._subscribed)
        if before and not self.older:
            return CutoverVerdict.MINE
        if injection is not None and not before and not self._in_between(injection):
            return CutoverVerdict.BROKER
        if live[held.hash] > 0:
            live[held.hash] -= 1
            if final and self._alike[held.hash] == 1:  # else it may have been another one
                self._came.add(self._stream(held))
            return CutoverVerdict.BROKER
        handed = injection is not None or held.id.origin == self._me
        if handed and self._stream(held) in self._came:
            return CutoverVerdict.BROKER  # it comes when the client has let go of some
        if self._others[held.hash] > self._written_since(held.hash):
            return CutoverVerdict.BROKER  # which gave it after `ready`
        if not final:
            return CutoverVerdict.UNCLEAR
        self.doubted += 1
        if not self._qos(held.publish.topic):
            return CutoverVerdict.BROKER
        if self._alike[held.hash] == 1:
            self.doubtful.append(held.hash)
        return CutoverVerdict.MINE

    def _stream(self, held: Held) -> tuple[str, str, int]:
        """What the broker gives one of, it gives all that follow it of: they came over one connection, and
        each publisher here has its own; or to a filter that it had granted long before."""
        publisher = self._unsure.get(held.id, "")
        if held.id.origin == self._me and not publisher:
            return held.publish.topic if self.older else str(held.id), "", 0
        return publisher, held.id.origin, held.id.lane

    def _in_between(self, injection: InjectionRecord) -> bool:
        """Whether the broker got it neither before the subscription nor after it, as far as is known."""
        if injection.sent is None or injection.sent > self._granted:
            return False
        return injection.ended is None or injection.ended > self._subscribed

    def _credible(self) -> Counter[bytes]:
        """The broker's deliveries, without those that equal ones written after SUBACK may account for."""
        live = self._live.copy()
        injections = list(self._log.since(self._subscribed)) if live else []
        if not any(map(self._in_between, injections)):
            return live  # nobody will ask
        for injection in injections:
            hash = injection.hash if (injection.sent or 0) > self._granted else None
            if hash is not None and hash in live:
                live[hash] -= 1
        return live

    def _written_since(self, hash: bytes) -> int:
        """How many equal ones were written to the broker after SUBACK."""
        since = (one for one in self._log.since(self._granted) if (one.sent or 0) > self._granted)
        return sum(one.hash == hash for one in since) if self._others[hash] else 0

    def _judge_by_cut(self, identifier: MessageId, final: bool) -> CutoverVerdict | None:
        """None: it lies before the cut."""
        origin, epoch, lane, sequence = identifier
        if origin == self._me:
            own = self._own.get(epoch)
            if own is None:
                return CutoverVerdict.LATER if any(known < epoch for known in self._own) else None
            later = sequence > own[lane] and identifier not in self._unsure
            return CutoverVerdict.LATER if later else None
        cuts = self._cuts.get(origin, {})
        cut = cuts.get(epoch)
        if cut is not None:
            if lane < len(cut) and sequence > cut[lane]:
                return CutoverVerdict.LATER
            return CutoverVerdict.WAITING if origin in self._arriving and not final else None
        if origin in self._dead or final or any(known > epoch for known in cuts):
            return None  # of an earlier life of its origin, which did not know
        return CutoverVerdict.WAITING

    def _first(self, topic: str) -> Cutover | None:
        """The client's earliest cutover here with a filter that wants the topic."""
        found = None
        for one in self._chain():
            if any(matches(wanted, topic) for wanted in one._filters):
                found = one
        return found

    def _qos(self, topic: str) -> int:
        """The highest that was granted for it, in any of the client's cutovers here."""
        filters = (granted for one in self._chain() for granted in one._filters.items())
        return max((qos for wanted, qos in filters if matches(wanted, topic)), default=0)

    def _chain(self) -> Iterator[Cutover]:
        """This one and those before it, which may be many: a client subscribes as often as it likes."""
        one: Cutover | None = self
        while one is not None:
            yield one
            one = one._before

    def _fitted(self, given: list[Held], now: float) -> list[Held]:
        fitted = []
        for held in given:
            current = aged(held, now)
            if current is not None:
                qos = min(current.publish.qos, self._qos(current.publish.topic))
                publish = replace(current.publish, qos=qos, retain=False)  # [MQTT-3.3.1-9]
                if qos:
                    self._given[held.id] = held.hash
                fitted.append(replace(current, publish=publish))
        return fitted


def in_order(offered: Iterable[Held]) -> list[Held]:
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
