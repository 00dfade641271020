"""What an injector writes next, and what becomes of it.

Owns: the order of what is written, the handshakes, careful mode, the way to the dead letters. Invariants:
frames are written in the order of submission, a message that may not go yet holds up those behind it; a run
is acknowledged to the outbox when all of its messages came to their end (QoS 0: written; QoS 1: PUBACK; QoS
2: PUBCOMP; or expired, or a dead letter); a message is repeated under its own identifier or, to a broker
that forgot the session, as new. Must not know: connecting, keep-alive.

Careful mode. When a connection dies over what was written, it is unknown which message did it, if any. So
the messages that were in flight are repeated one at a time, each waiting for its answer. QoS 0 messages are
never repeated (those written shortly before the death may be lost: at most once); in their place the next
message on each of their topics goes alone, followed by a PINGREQ whose answer proves that it passed. A
connection that dies with one message alone in flight is an attempt against that message; the second makes
it a dead letter, so that a broker that merely restarts costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.abilities import EXPIRY_SHOWS, BrokerAbilities, fit, fit_whole, remaining_expiry
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.earlier import Earlier
from brokerweave.links.inflight import Inflight, Message, OpenRuns, Stage, read_message
from brokerweave.links.names import Names
from brokerweave.links.outbox import Outbox
from brokerweave.links.progress import HandshakeMark, Progress, Step
from brokerweave.links.run import Run
from brokerweave.links.suspects import Suspects, SuspectVerdict
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import PingReq, PubRel
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import split
from brokerweave.mqtt.stamp import Stamps

ATTEMPTS = 2
"""How often a broker may refuse a message, or die over it alone, before it is a dead letter."""
UNPROVEN = 64
"""QoS 0 writes remembered while nothing proves that the broker read them. At half of it a PINGREQ asks."""
UNPROVEN_BYTES = 4 << 20
"""The same bound in bytes; the last write is always remembered."""
TAKEN_BYTES = 256 << 10
"""Bytes of runs taken from the outbox at a time."""

_PINGREQ = codec.encode(PingReq(), 4)
_REFUSED = 0x80
_UNKNOWN_ID = 0x92


@dataclass(slots=True)
class InjectorCounters:
    """In messages."""

    injected: list[int] = field(default_factory=lambda: [0, 0, 0])
    """By QoS: 0 when written, 1 and 2 when the broker has confirmed."""
    timed: int = 0
    """Of these, those that count for the latency: all but what repairs a broker's retained messages."""
    latency_seconds: float = 0.0
    """Their ages (`Run.born`) at that moment, added up."""
    resent: int = 0
    downgraded_qos: int = 0
    """Sent at a lower QoS than published and wanted, because the broker cannot do better."""
    properties_dropped: int = 0
    retain_dropped: int = 0
    unstamped: int = 0
    """Sent without their stamps, since the broker takes no larger packets."""
    expired: int = 0
    dead_letters: int = 0
    maybe_lost_qos0: int = 0
    """QoS 0 that nothing had proven to be read when the connection, or the node, ended: not repeated."""


class Sender:
    def __init__(
        self,
        outbox: Outbox,
        dead_letters: DeadLetters,
        limits: BrokerAbilities,
        progress: Progress | None = None,
    ) -> None:
        self.limits = limits
        self.names: Names | None = None
        self.stamps = Stamps()
        self._progress = progress
        self.counters = InjectorCounters()
        self._outbox = outbox
        self._dead_letters = dead_letters
        self._runs: deque[tuple[int, Run]] = deque()
        self._queue: deque[Message] = deque()
        self._inflight = Inflight()
        self._open_runs = OpenRuns()
        self._suspects = Suspects()
        self._alone: Message | None = None
        self._mark = 0
        self._unproven: deque[tuple[int, bytes]] = deque()
        self._unproven_bytes = 0
        self._pings: deque[tuple[int, float]] = deque()
        self._earlier = Earlier()
        if progress is not None and progress.session:
            self._restore(progress.marks())

    def _restore(self, marks: list[HandshakeMark]) -> None:
        """Take from the outbox what was in flight when the node was killed, each under its identifier."""
        # A disk that failed before the kill may have kept no mark of identifiers that the broker still holds.
        # So each start has a place of its own to begin at, and hardly ever meets them.
        self._inflight.begin_after(self._outbox.stream_id)
        last = self._earlier.recall([mark for mark in marks if mark.record <= self._outbox.inherited])
        oldest, reached = self._outbox.inherited + 1, 0
        while reached < last:
            first, runs = self._outbox.take(TAKEN_BYTES)
            if not runs:
                break  # a disk that fails gives them later: `next` takes them then
            oldest = min(oldest, self._outbox.record_of(first))
            for sequence, run in enumerate(runs, first):
                reached = self._outbox.record_of(sequence)
                if reached <= last:
                    self._open_runs.opened(sequence, run.count)
                    self._take_apart(sequence, run)
                else:
                    self._runs.append((sequence, run))
        if reached >= last:
            self._earlier.marks.clear()
        for mark in marks:
            # What is older is over. What should be here and is not: the broker may know its identifier.
            lost = mark.record >= oldest and mark.step is not Step.DONE
            if mark.step is Step.BURNT or (lost and self._inflight.get(mark.packet_id) is None):
                self._inflight.burn(mark.packet_id)

    def stamp_with(self, names: Names | None, stamps: Stamps) -> None:
        """From now on; what was in flight before a restart gets the stamp that it had."""
        self.names, self.stamps = names, stamps
        runs = dict(enumerate(self._outbox.kept(), self._outbox.oldest))
        for message in (*self._queue, *self._inflight):
            if names is not None and message.published_qos and message.sequence in runs:
                message.stamp = names.name_of(runs[message.sequence], message.offset)

    @property
    def unanswered(self) -> int:
        return self._inflight.unanswered

    @property
    def oldest_ping(self) -> float | None:
        """When the oldest PINGREQ without an answer was sent."""
        return self._pings[0][1] if self._pings else None

    @property
    def careful(self) -> bool:
        return self._alone is not None or any(m.suspect for m in self._queue)

    def oldest_move(self) -> float | None:
        """When the handshake that stands still longest last went on; None if none is going on."""
        return min((m.moved for m in self._inflight if m.stage is not Stage.WAITING), default=None)

    def forget_old_suspects(self, now: float) -> None:
        self._suspects.forget_old(now)

    # What is written next

    def next(self, now: float) -> bytes | None:
        """The next bytes; empty if a message ended without being written; None if nothing may go now."""
        if self._alone is not None:
            return None
        if self._queue:
            return self._next_message(self._queue[0], now)
        if not self._runs:
            first, runs = self._outbox.take(TAKEN_BYTES)
            self._runs.extend(enumerate(runs, first))
            if not self._runs:
                return None
        sequence, run = self._runs.popleft()
        self._open_runs.opened(sequence, run.count)
        blob = None if run.max_qos or self._suspects else fit_whole(run, self.limits, now)
        if blob is None:
            return self._repeat(self._take_apart(sequence, run), now)
        if len(run.blob) - len(blob) > run.count:  # more than the empty properties' lengths went
            self.counters.properties_dropped += sum(
                bool(publish_head(frame, run.version).properties) for frame in split(run.blob)
            )
        self._count_injected(0, run.count, run.repair, now - run.born)
        self._end(sequence, run.count)
        return self._written_qos0(blob, now)

    def ping(self, now: float) -> bytes:
        """A PINGREQ. Its answer proves that all QoS 0 written up to now was read."""
        self._pings.append((self._mark, now))
        return _PINGREQ

    def _take_apart(self, sequence: int, run: Run) -> list[Message]:
        """Queue a run's messages; given are those that were in flight before a crash."""
        record = self._outbox.record_of(sequence)
        again: list[Message] = []
        try:
            frames = split(run.blob)
            if len(frames) != run.count:
                raise RemoteProtocolError(f"a run of {run.count} messages holds {len(frames)}")
        except RemoteProtocolError as error:
            self._bury(run.born, b"", run.max_qos, run.version, str(error), run.blob)
            self._end(sequence, run.count)
            return again
        ended = 0
        for offset, frame in enumerate(frames):
            mark = self._earlier.marks.pop((record, offset), None)
            try:
                message = read_message(frame, run.version, run.cap, run.born, sequence, record, offset)
            except RemoteProtocolError as error:
                self._bury(run.born, b"", frame[0] >> 1 & 3, run.version, str(error), frame)
                ended += 1
                continue
            message.repair = run.repair
            if self.names is not None and self.limits.user_properties and message.published_qos:
                message.stamp = self.names.name_of(run, offset)
            inherited = 0 < record <= self._outbox.inherited
            if mark is not None and mark.step is Step.DONE:
                self._inflight.hold(mark.packet_id, sequence)
                ended += 1
            elif inherited and not message.published_qos:
                self.counters.maybe_lost_qos0 += 1  # an earlier start may have written it: at most once
                ended += 1
            elif mark is None or self._inflight.get(mark.packet_id) is not None:
                self._queue.append(message)
            else:
                message.qos = mark.qos
                self._inflight.restore(message, mark.packet_id, mark.step is Step.RECEIVED)
                again.append(message)
                if mark.step is not Step.RECEIVED:
                    self._queue.append(message)
        if ended:
            self._end(sequence, ended)
        return again

    def _repeat(self, messages: Iterable[Message], now: float) -> bytes:
        """The broker knows their session: PUBREL for those it has, DUP for the rest."""
        released = self._inflight.resumed(messages, now)
        return b"".join(codec.encode(PubRel(m.packet_id), self.limits.version) for m in released)

    def _next_message(self, message: Message, now: float) -> bytes | None:
        verdict = self._suspects.verdict(message.topic, now) if self._suspects else SuspectVerdict.TRUSTED
        if verdict is SuspectVerdict.QUARANTINED:
            return self._give_up(message, "the broker keeps closing the connection over this topic")
        if not message.dup:
            left = remaining_expiry(message, now)
            if left is not None and left <= 0 and now - message.born >= EXPIRY_SHOWS:
                self.counters.expired += 1
                return self._leave(message)
            message.qos = min(message.published_qos, message.cap, self.limits.max_qos)
        alone = message.suspect or verdict is SuspectVerdict.ALONE
        if alone and (self._inflight.unanswered or self._unproven):
            return self._quieten(now)
        if message.qos and self._inflight.unanswered >= self.limits.receive_maximum:  # [MQTT-3.3.4-7]
            return None
        if message.qos and not message.packet_id:
            if self._inflight.full:
                return None
            self._inflight.admit(message)
        frame = fit(message, self.limits, now)
        if self.limits.maximum_packet is not None and len(frame) > self.limits.maximum_packet:
            # [MQTT-3.2.2-15]
            return self._give_up(
                message, f"{len(frame)} bytes; the broker takes {self.limits.maximum_packet}"
            )
        if message.stamp and self.limits.user_properties:
            frame = self._stamped(message, frame)
        self._queue.popleft()
        self._count(message)
        return self._write(message, frame, alone, now)

    def _stamped(self, message: Message, frame: bytes) -> bytes:
        stamped = self.stamps.stamp(frame, message.stamp)
        if self.limits.maximum_packet is not None and len(stamped) > self.limits.maximum_packet:
            self.counters.unstamped += message.writes == 0
            return frame
        return stamped

    def _write(self, message: Message, frame: bytes, alone: bool, now: float) -> bytes:
        if alone:
            self._alone = message
        if message.qos:
            if not message.dup:
                self._keep(message, Step.SENT)
            self._inflight.sent(message, now)
            message.mark = self._mark
            return frame
        frame = self._written_qos0(frame, now)
        message.mark = self._mark
        self._count_injected(0, 1, message.repair, now - message.born)
        self._end(message.sequence)
        return frame + self.ping(now) if alone else frame

    def _written_qos0(self, blob: bytes, now: float) -> bytes:
        """Remember what was written until something proves that the broker read it."""
        self._mark += 1
        self._unproven.append((self._mark, blob))
        self._unproven_bytes += len(blob)
        while len(self._unproven) > UNPROVEN or (
            self._unproven_bytes > UNPROVEN_BYTES and len(self._unproven) > 1
        ):
            self._prove(self._unproven[0][0])
        if len(self._unproven) >= UNPROVEN // 2 and not self._pings:
            return blob + self.ping(now)
        return blob

    def _quieten(self, now: float) -> bytes | None:
        """Before a message goes alone, nothing else may be on the way: ask for a proof if none is coming."""
        if self._unproven and not (self._pings and self._pings[-1][0] == self._mark):
            return self.ping(now)
        return None

    def _count(self, message: Message) -> None:
        message.writes += 1
        if message.writes > 1:
            self.counters.resent += 1
            return
        self.counters.downgraded_qos += message.qos < min(message.published_qos, message.cap)
        self.counters.properties_dropped += message.has_properties and self.limits.version != 5
        self.counters.retain_dropped += message.retain and not self.limits.retain

    def _count_injected(self, qos: int, messages: int, repair: bool, age: float) -> None:
        self.counters.injected[qos] += messages
        if not repair:
            self.counters.timed += messages
            self.counters.latency_seconds += messages * max(age, 0.0)

    # What the broker answers

    def puback(self, packet_id: int, reason: int, now: float) -> None:
        message = self._answered(packet_id, 1)
        if message is not None:
            self._accepted(message, reason, now)

    def pubrec(self, packet_id: int, reason: int, version: int, now: float) -> bytes:
        """What to answer: PUBREL, also to what is not known (any more), so that the broker can end it."""
        known = self._inflight.get(packet_id)
        if known is not None and known.qos == 2 and known.stage is Stage.WAITING:
            # Some brokers repeat PUBREC by themselves in a session that goes on: the message need not.
            self._queue.remove(known)
            self._inflight.sent(known, now)
        message = self._answered(packet_id, 2)
        if message is None:
            return codec.encode(PubRel(packet_id, 0 if known or version < 5 else _UNKNOWN_ID), version)
        if reason >= _REFUSED:  # ends the handshake [MQTT-4.3.3-4]
            self._accepted(message, reason, now)
            return b""
        message.stage = Stage.RELEASED
        message.moved = now
        self._keep(message, Step.RECEIVED)
        return codec.encode(PubRel(packet_id), version)

    def pubcomp(self, packet_id: int, now: float) -> None:
        message = self._inflight.get(packet_id)
        if message is not None and message.stage is Stage.RELEASED:
            self._accepted(message, 0, now)

    def pong(self) -> None:
        if self._pings:
            self._prove(self._pings.popleft()[0])

    def _answered(self, packet_id: int, qos: int) -> Message | None:
        """The message that waits for this answer. None: a late answer to what is over."""
        message = self._inflight.get(packet_id)
        if message is None or message.stage is not Stage.SENT:
            return None
        if message.qos != qos:
            raise RemoteProtocolError(
                f"the broker answers a QoS {message.qos} message as if it were QoS {qos}"
            )
        self._prove(message.mark)
        return message

    def _accepted(self, message: Message, reason: int, now: float) -> None:
        """The broker's last word on a message."""
        packet_id = message.packet_id
        if reason >= _REFUSED:
            self._keep(message, Step.FREE)
        self._inflight.finish(message)
        if message is self._alone:
            self._alone = None
            self._suspects.clear(message.topic)
        message.suspect = False
        if reason < _REFUSED:
            self._count_injected(message.qos, 1, message.repair, now - message.born)
            self._done(message, packet_id)
            return
        message.tried += 1
        if message.tried < ATTEMPTS:
            self._queue.appendleft(message)
        else:
            self._dead(message, f"the broker refused it: reason 0x{reason:02x}")

    def _prove(self, mark: int) -> None:
        """The broker has read the QoS 0 writes up to `mark`."""
        while self._unproven and self._unproven[0][0] <= mark:
            self._unproven_bytes -= len(self._unproven.popleft()[1])
        alone = self._alone
        if alone is not None and alone.qos == 0 and alone.mark <= mark:
            self._alone = None
            self._suspects.clear(alone.topic)

    # What becomes of a connection

    def interrupted(self, now: float, reason: str | None) -> None:
        """The connection ended; `reason` is None where no message can be the cause."""
        alone, self._alone = self._alone, None
        if reason is not None and alone is not None:
            self._blame(alone, now, reason)
        elif reason is not None:
            self._suspect_all(now)
        self.counters.maybe_lost_qos0 += sum(len(split(blob)) for _, blob in self._unproven)
        self._queue.extendleft(reversed(self._inflight.interrupted()))
        self._unproven.clear()
        self._unproven_bytes = 0
        self._pings.clear()

    def resume(self, session_present: bool, now: float) -> bytes:
        """The broker accepted a new connection: what goes out before everything else.

        Without a session, what had got PUBREC is over: the broker has taken it, and to send it again could
        double it. (One that lost its memory before passing it on has lost it: nothing can tell.)
        """
        if self._progress is not None:
            self._progress.session_established()
        if session_present:
            return self._repeat(self._inflight, now)
        identifiers = {message: message.packet_id for message in self._inflight}
        for message in identifiers:
            self._keep(message, Step.FREE)
        for message in self._inflight.forgotten():
            self._count_injected(message.qos, 1, message.repair, now - message.born)
            self._done(message, identifiers[message])
        self._earlier.session_lost()
        return b""

    def _suspect_all(self, now: float) -> None:
        for message in self._inflight:
            message.suspect = message.suspect or message.stage is Stage.SENT
        for _, blob in self._unproven:
            for frame in split(blob):
                self._suspects.suspect(publish_head(frame, self.limits.version).topic, now)

    def _blame(self, message: Message, now: float, reason: str) -> None:
        if message.stage is Stage.RELEASED:
            return
        deaths = self._suspects.blame(message.topic, now)
        message.suspect = True
        message.tried += 1
        if message.qos == 0:
            if deaths >= ATTEMPTS:  # the first one of its topic is only lost: the broker may have restarted
                self._bury_message(message, reason)
        elif message.tried >= ATTEMPTS:
            self._finish(message, burn=message.qos == 2)
            self._dead(message, reason)

    # What becomes of a message

    def _give_up(self, message: Message, reason: str) -> bytes:
        """The message at the head of the queue is a dead letter without being sent (again)."""
        self._bury_message(message, reason)
        return self._leave(message)

    def _leave(self, message: Message) -> bytes:
        """The message at the head of the queue is over."""
        self._queue.popleft()
        if message.packet_id:
            self._finish(message, burn=message.qos == 2 and message.dup)
        self._end(message.sequence)
        return b""

    def _finish(self, message: Message, burn: bool) -> None:
        self._keep(message, Step.BURNT if burn else Step.FREE)
        self._inflight.finish(message, burn)

    def _keep(self, message: Message, step: Step) -> None:
        """Find it again after a crash, if its run is found again."""
        if self._progress is not None and message.record:
            self._progress.put(message.packet_id, message.record, message.offset, step, message.qos)

    def _done(self, message: Message, packet_id: int) -> None:
        """The broker has it. If its run goes on, that must be kept: the run would come again."""
        if self._end(message.sequence) or self._progress is None or not message.record:
            return
        self._inflight.hold(packet_id, message.sequence)
        self._progress.put(packet_id, message.record, message.offset, Step.DONE)

    def _dead(self, message: Message, reason: str) -> None:
        self._bury_message(message, reason)
        self._end(message.sequence)

    def _end(self, sequence: int, count: int = 1) -> bool:
        """Whether the run is acknowledged by that, with all before it."""
        complete = self._open_runs.ended(sequence, count)
        if complete is None:
            return False
        self._outbox.acknowledge(complete)
        self._inflight.unhold(complete)
        return complete >= sequence

    def _bury_message(self, message: Message, reason: str) -> None:
        self._bury(message.born, message.topic, message.published_qos, message.version, reason, message.frame)

    def _bury(self, when: float, topic: bytes, qos: int, version: int, reason: str, frame: bytes) -> None:
        self.counters.dead_letters += 1
        self._dead_letters.add(when, topic.decode(errors="replace"), qos, version, reason, frame)
