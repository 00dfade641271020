"""One node's membership: datagrams and time in, datagrams and events out.

Owns what joins the parts: sealing, the timers of gossip, exchanges and reconnecting, joining and leaving.
Invariants: a datagram that the seal refuses changes nothing; whatever a node says goes out in datagrams of at
most `MOST_DATAGRAM` bytes; time in which this node was paused counts against no member.
Must not know: sockets, clocks, where randomness comes from, what an application keeps in its metadata.

After A. Das, I. Gupta, A. Motivala: SWIM (2002), and A. Dadgar, J. Phillips, J. Currey: Lifeguard (2018).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from brokerweave.errors import LocalProtocolError
from brokerweave.membership import wire
from brokerweave.membership.agenda import Agenda, Due
from brokerweave.membership.detector import Detector
from brokerweave.membership.events import MembershipEvent, SwimHost
from brokerweave.membership.exchange import Exchange
from brokerweave.membership.gossip import Gossip, Subject
from brokerweave.membership.health import LocalHealth
from brokerweave.membership.members import Address, Claim, Member, MemberRecord, Members, MemberState
from brokerweave.membership.presets import MOST_DATAGRAM, MOST_META, Preset
from brokerweave.membership.rules import Me, Rules, accusation
from brokerweave.membership.seal import MAC, Seal

LEARN_SECONDS = 1.0
"""At most one exchange in so long because of a member that is not known in full."""
_ROOM = MOST_DATAGRAM - wire.HEADER.size - MAC


class Swim:
    """Call `tick(now)` at `next_due()`, which may change with every other call. Implements `rules.Voice`."""

    def __init__(
        self, claim: Claim, key: bytes, preset: Preset, random: Random, host: SwimHost, now: float
    ) -> None:
        """`claim.boot` is drawn at random by each process: see `seal`."""
        _check_meta(claim.meta)
        self.preset = preset
        self.key = key
        self._random = random
        self._host = host
        self._me = Me(claim, 0)
        self._seal = Seal(key, claim.boot)
        self._agenda = Agenda()
        self._gossip = Gossip()
        self._health = LocalHealth(preset.health_max)
        self._members = Members(random)
        self.rules = Rules(
            self._me, self._members, self._gossip, self._agenda, self._health, preset, voice=self
        )
        self._detector = Detector(self._members, self._agenda, self._health, preset, self._send, self._accuse)
        self._seeds: tuple[Address, ...] = ()
        self._gossip_due: Due | None = None
        self._gossiped = self._learned = float("-inf")
        self.stalls = 0
        """Times that this node came late to its own timers."""
        self.exchanges = 0
        self._agenda.at(now + random.random() * preset.probe_interval, self._detector.turn)
        self._agenda.at(now + random.random() * self._push_pull_every, self._push_pull)
        self._agenda.at(now + (0.5 + random.random()) * preset.reconnect_interval, self._reconnect)

    # What is known

    @property
    def me(self) -> Member:
        return self._me.member()

    @property
    def health(self) -> int:
        """Lifeguard's score: 0 is well; probes take (1 + health) times as long."""
        return self._health.score

    @property
    def refused(self) -> dict[str, int]:
        """Datagrams, and exchanges, that were not acted upon, by cause."""
        return self._seal.refused

    def members(self) -> list[Member]:
        """All that are known, this node first, dead and departed ones too."""
        return [self.me, *(record.member() for record in self._members.all())]

    def member(self, node_id: str) -> Member | None:
        if node_id == self._me.claim.id:
            return self.me
        record = self._members.get(node_id)
        return record.member() if record else None

    @property
    def here(self) -> int:
        """Members that live or are only suspected, with this node."""
        return self._members.here + (not self._me.leaving)

    # What the node does

    def join(self, addresses: Iterable[Address], now: float) -> None:
        """Get to know the cluster through any of these members; they are called again until one answers, and
        now and then when one of them is no member."""
        self._seeds = tuple(address for address in addresses if address != self._me.claim.address)
        for address in self._seeds:
            self._host.exchange(address)

    def leave(self, now: float) -> None:
        """Say good-bye. Go on with `tick` until `departed`, or as long as there is patience."""
        if not self._me.leaving:
            self._agenda.clear()
            self._gossip_due = None
            self.rules.leave(now)

    @property
    def departed(self) -> bool:
        """Whether the good-bye went out often enough."""
        told = Subject(self._me.claim.id, False) not in self._gossip
        return self._me.leaving and (told or not self._members.here)

    def set_meta(self, meta: bytes, now: float) -> None:
        """Tell all members something else about this one: at most `MOST_META` bytes."""
        _check_meta(meta)
        if meta != self._me.claim.meta:
            self.rules.set_meta(meta, now)

    def check(self, node_id: str, now: float) -> None:
        """Something else than a probe says that this member may be dead (a connection broke): probe it
        now."""
        record = self._members.get(node_id)
        if record is not None and record.state.here and not self._me.leaving:
            self._detector.check(record, now)

    # Time

    def next_due(self) -> float:
        return self._agenda.next_due()

    def tick(self, now: float) -> None:
        late = now - self._agenda.next_due()
        if late > self.preset.probe_timeout:
            self._was_paused(late)
        self._agenda.run(now)

    def _was_paused(self, late: float) -> None:
        """Answers may wait unread: nobody's time runs out before they are read."""
        self.stalls += 1
        self._health.change(1)
        self._agenda.shift(late)
        for record in self._members.all():
            if record.suspicion is not None:
                record.suspicion.postpone(late)

    # Datagrams

    def handle(self, data: bytes, source: Address, now: float) -> None:
        opened = self._seal.open(data)
        if opened is None:
            return
        number, boot, content = opened
        try:
            kind, body, updates = wire.decode_datagram(number, content)
        except wire.MalformedMessage:
            self._seal.refuse("malformed")
            return
        record = self._members.of_boot(boot)
        address = source if record is None else record.claim.address
        for update in updates:
            self.rules.apply(update, address, now)
        if isinstance(body, wire.Ping):
            self._pinged(body, boot, address, now)
        elif isinstance(body, wire.Request):
            self._detector.asked(boot, address, body, now)
        elif isinstance(body, int):
            if kind is wire.MessageKind.ACK:
                self._detector.answered(body, boot, now)
            else:
                self._detector.denied(body)

    def _pinged(self, ping: wire.Ping, boot: int, address: Address, now: float) -> None:
        """Answer; and set right what the prober knows of this node, or this node of the prober (Lifeguard's
        buddy: a suspect hears of it with the first probe)."""
        me = self._me
        corrections: list[wire.Update] = []
        if ping.state != MemberState.ALIVE:
            self.rules.accused(ping.incarnation, now)
        if me.leaving:
            corrections.append(wire.Gone(me.claim.id, me.incarnation))
        elif ping.incarnation < me.incarnation or ping.meta_version < me.claim.meta_version:
            corrections.append(wire.Alive(me.claim, me.incarnation))
        prober = self._members.of_boot(boot)
        if prober is None:
            self.learn(address, now)  # news of it passed this node by: the next whole table may be far off
        elif prober.state is not MemberState.ALIVE:
            corrections.append(accusation(prober, me.claim.id))
        self._send(wire.MessageKind.ACK, boot, address, ping.seq, *corrections)

    def _send(
        self, kind: wire.MessageKind, boot: int, address: Address, body: wire.Body, *updates: wire.Update
    ) -> None:
        content = wire.encode_body(kind, body)
        for update in updates:
            content += wire.encode_update(update)
        if self._gossip:
            times = self.preset.transmissions(self._members.here + 1)
            content += self._gossip.take(_ROOM - len(content), times)
        self._host.send(self._seal.close(kind, boot, content), address)

    def _accuse(self, record: MemberRecord, now: float) -> None:
        if not self._me.leaving:
            self.rules.suspect(wire.Suspect(record.claim.id, record.incarnation, self._me.claim.id), now)

    # Voice

    def happened(self, event: MembershipEvent) -> None:
        self._host.happened(event)

    def news(self, now: float) -> None:
        if self._gossip_due is None:
            at = max(now, self._gossiped + self.preset.gossip_interval)
            self._gossip_due = self._agenda.at(at, self._gossip_turn)

    def tell(self, boot: int, address: Address, update: wire.Update) -> None:
        self._send(wire.MessageKind.GOSSIP, boot, address, None, update)

    def learn(self, address: Address, now: float) -> None:
        if now - self._learned >= LEARN_SECONDS:
            self._learned = now
            self._host.exchange(address)

    # Timers

    def _gossip_turn(self, now: float) -> None:
        self._gossip_due, self._gossiped = None, now
        if not self._members.here:
            self._gossip.clear()  # who comes gets everything in an exchange
        for record in self._members.choose(self.preset.gossip_fanout):
            if self._gossip:
                self._send(wire.MessageKind.GOSSIP, record.claim.boot, record.claim.address, None)
        if self._gossip:
            self.news(now)

    @property
    def _push_pull_every(self) -> float:
        return self.preset.push_pull_every(self._members.here + 1)

    def _push_pull(self, now: float) -> None:
        for record in self._members.choose(1):
            self._host.exchange(record.claim.address)
        self._agenda.at(now + self._push_pull_every, self._push_pull)

    def _reconnect(self, now: float) -> None:
        """A split heals, and who restarted alone is found: about one of the living calls each of the dead."""
        random, living = self._random.random, self._members.here + 1
        dead = self._members.dead
        if dead and random() < len(dead) / living:
            self._host.exchange(dead[int(random() * len(dead))].claim.address)
        if self._seeds and random() < 1 / living:
            here = {record.claim.address for record in self._members.all() if record.state.here}
            for address in self._seeds:
                if address not in here:
                    self._host.exchange(address)
        self._agenda.at(now + self.preset.reconnect_interval, self._reconnect)

    # Whole tables

    def exchange(self, dials: bool, random_bytes: Callable[[int], bytes]) -> Exchange:
        """One conversation over a stream, whoever began it."""
        return Exchange(self, dials, random_bytes)

    def table(self) -> list[wire.TableEntry]:
        me = self._me
        mine = wire.TableEntry(me.state, me.incarnation, me.claim)
        return [mine, *(wire.TableEntry(r.state, r.incarnation, r.claim) for r in self._members.all())]

    def merge(self, entries: Iterable[wire.TableEntry], peer: str, now: float) -> None:
        self.exchanges += 1
        if not self._me.leaving:
            self.rules.merge(entries, peer, now)

    def refuse(self, cause: str) -> None:
        self._seal.refuse(cause)


def _check_meta(meta: bytes) -> None:
    if len(meta) > MOST_META:
        raise LocalProtocolError(f"metadata of {len(meta)} bytes: at most {MOST_META} travel with a member")
