"""Who does not answer: probes in a random round, repeated and asked of others before anyone is accused (SWIM
3.1, 4.3).

Owns probes under way, this node's own and those it makes for others. Invariants: a probe ends within one
(scaled) probe interval, with an answer or an accusation; whoever asked for a probe hears of it either way
(Lifeguard's nack). Must not know: what an accusation leads to, bytes, how datagrams are sealed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from brokerweave.membership.agenda import Agenda, Due
from brokerweave.membership.health import LocalHealth
from brokerweave.membership.members import Address, MemberRecord, Members
from brokerweave.membership.presets import Preset
from brokerweave.membership.wire import MOST_NUMBER, Body, MessageKind, Ping, Request


class Send(Protocol):
    def __call__(self, kind: MessageKind, boot: int, address: Address, body: Body) -> None: ...


class _Probe:
    __slots__ = ("asked", "boot", "due", "ends", "nacks", "record", "repeated", "seq", "started")

    def __init__(self, record: MemberRecord, seq: int, started: float, ends: float) -> None:
        self.record = record
        self.boot = record.claim.boot
        self.seq = seq
        self.started = started
        self.ends = ends
        self.repeated = False
        self.asked = 0
        self.nacks = 0
        self.due: Due | None = None


class _Favour:
    """A probe that somebody else asked for."""

    __slots__ = ("address", "boot", "due", "seq")

    def __init__(self, boot: int, address: Address, seq: int) -> None:
        self.boot = boot
        self.address = address
        self.seq = seq
        self.due: Due | None = None


class Detector:
    def __init__(
        self,
        members: Members,
        agenda: Agenda,
        health: LocalHealth,
        preset: Preset,
        send: Send,
        accuse: Callable[[MemberRecord, float], None],
    ) -> None:
        self._members = members
        self._agenda = agenda
        self._health = health
        self._preset = preset
        self._send = send
        self._accuse = accuse
        self._seq = 0
        self._probes: dict[int, _Probe] = {}
        self._favours: dict[int, _Favour] = {}

    def turn(self, now: float) -> None:
        """Probe whoever is next, and come again after an interval."""
        record = self._members.next_target()
        if record is not None:
            self._start(record, now)
        self._agenda.at(now + self._health.scaled(self._preset.probe_interval), self.turn)

    def check(self, record: MemberRecord, now: float) -> None:
        """Probe this one out of turn: something else makes its death likely."""
        if all(probe.record is not record for probe in self._probes.values()):
            self._start(record, now)

    def answered(self, seq: int, boot: int, now: float) -> None:
        """An ack, of the probed member itself or through somebody who was asked."""
        probe = self._probes.pop(seq, None)
        if probe is not None:
            _cancel(probe.due)
            self._health.change(-1)
            if probe.boot == boot and not probe.repeated:
                probe.record.heard_after(now - probe.started)
            return
        favour = self._favours.pop(seq, None)
        if favour is not None:
            _cancel(favour.due)
            self._send(MessageKind.ACK, favour.boot, favour.address, favour.seq)

    def denied(self, seq: int) -> None:
        """A nack: who was asked lives, though it had no answer either."""
        probe = self._probes.get(seq)
        if probe is not None:
            probe.nacks += 1

    def asked(self, boot: int, address: Address, request: Request, now: float) -> None:
        record = self._members.get(request.target)
        if record is None:
            return
        seq = self._next_seq()
        favour = self._favours[seq] = _Favour(boot, address, request.seq)
        self._ping(record, seq)
        favour.due = self._agenda.at(
            now + self._health.scaled(self._preset.probe_timeout), partial(self._in_vain, seq)
        )

    def _in_vain(self, seq: int, now: float) -> None:
        favour = self._favours[seq]
        self._send(MessageKind.NACK, favour.boot, favour.address, favour.seq)
        favour.due = self._agenda.at(now + self._preset.probe_interval, partial(self._given_up, seq))

    def _given_up(self, seq: int, now: float) -> None:
        self._favours.pop(seq, None)

    def _start(self, record: MemberRecord, now: float) -> None:
        seq, scaled, preset = self._next_seq(), self._health.scaled, self._preset
        probe = _Probe(record, seq, now, now + scaled(preset.probe_interval))
        self._probes[seq] = probe
        self._ping(record, seq)
        probe.due = self._agenda.at(now + scaled(preset.probe_timeout), partial(self._repeat, probe))

    def _repeat(self, probe: _Probe, now: float) -> None:
        """The datagram may have been lost. Most are that, and asking others costs six times as much."""
        probe.repeated = True
        self._ping(probe.record, probe.seq)
        wait = self._health.scaled(self._preset.probe_timeout)
        probe.due = self._agenda.at(min(now + wait, probe.ends), partial(self._ask_others, probe))

    def _ask_others(self, probe: _Probe, now: float) -> None:
        """Or only the way between the two is broken."""
        target = probe.record.claim.id
        self._ping(probe.record, probe.seq)
        for other in self._members.choose(self._preset.relays, (target,)):
            probe.asked += 1
            self._send(MessageKind.REQUEST, other.claim.boot, other.claim.address, Request(probe.seq, target))
        probe.due = self._agenda.at(max(probe.ends, now), partial(self._failed, probe))

    def _failed(self, probe: _Probe, now: float) -> None:
        self._probes.pop(probe.seq, None)
        # Others that were asked answer even in vain. If they did not, the fault may be here.
        self._health.change(probe.asked - probe.nacks if probe.asked else 1)
        record = probe.record
        if record.state.here and record.claim.boot == probe.boot:
            self._accuse(record, now)

    def _ping(self, record: MemberRecord, seq: int) -> None:
        claim = record.claim
        body = Ping(seq, record.incarnation, claim.meta_version, record.state)
        self._send(MessageKind.PING, claim.boot, claim.address, body)

    def _next_seq(self) -> int:
        self._seq = self._seq % MOST_NUMBER + 1
        return self._seq


def _cancel(due: Due | None) -> None:
    if due is not None:
        due.cancel()
