"""Bugs to plant, each by name: the simulator must find every one of them.

To add one, write a function that takes pytest's `MonkeyPatch` and breaks one thing in a pure layer, and put
it into `PLANTED`. Nothing of the simulator needs to be known. A bug must break a promise (something lost,
doubled, out of order, never coming to rest, or left behind), not only waste time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from brokerweave.cooperation.sf import Interest, SubscriptionFlooding
from brokerweave.links.hybrid_clock import HybridClock
from brokerweave.links.inflight import Inflight, Message
from brokerweave.links.lane import Lane, Resume
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.node.barrier import Barrier
from brokerweave.node.confirmations import Confirmations
from brokerweave.node.core import NodeCore
from brokerweave.node.retained_sync import RetainedSync
from brokerweave.node.router import Router
from brokerweave.node.sessions import Sessions
from brokerweave.node.wills import Wills
from brokerweave.node.write_ahead_log import WriteAheadLog
from brokerweave.session.pair import Pair
from brokerweave.session.publications import Publications

Plant = Callable[[pytest.MonkeyPatch], None]


def window_accepts_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DuplicateWindow, "accept", lambda self, origin, epoch, first, count: [(0, count)])


def lane_forgets_what_arrived(patch: pytest.MonkeyPatch) -> None:
    """After a reconnect a lane takes repeated runs for new ones; with the window broken, too, they double."""
    window_accepts_everything(patch)

    def received_batch(self: Lane, first: int, runs: list[Run]) -> list[Run]:
        self._arrived = first + len(runs) - 1
        return runs

    patch.setattr(Lane, "received_batch", received_batch)


def outbox_forgets_what_was_in_flight(patch: pytest.MonkeyPatch) -> None:
    real = Outbox.rewind

    def rewind(self: Outbox, acknowledged: int) -> None:
        real(self, max(acknowledged, self._oldest + self._sent - 1))

    patch.setattr(Outbox, "rewind", rewind)


def write_ahead_log_is_not_written(patch: pytest.MonkeyPatch) -> None:
    def write(self: WriteAheadLog, entry: bytes) -> int:
        self._last += 1
        return self._last

    patch.setattr(WriteAheadLog, "_write", write)


def injector_does_not_repeat(patch: pytest.MonkeyPatch) -> None:
    real = Inflight.interrupted

    def interrupted(self: Inflight) -> list[Message]:
        real(self)
        return []

    patch.setattr(Inflight, "interrupted", interrupted)


def routes_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Router, "changed", lambda self, topics=None: None)


def qos2_ids_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publications, "_already_taken", lambda self, packet_id: False)


def a_will_follows_a_good_bye(patch: pytest.MonkeyPatch) -> None:
    real = NodeCore.ended
    patch.setattr(NodeCore, "ended", lambda self, pair, unexpected: real(self, pair, True))


def sf_does_not_ask_for_what_a_withdrawn_filter_covered(patch: pytest.MonkeyPatch) -> None:
    real = SubscriptionFlooding._pass_on

    def pass_on(
        self: SubscriptionFlooding, neighbour: str, changed: list[str], inside: object, wishes: Any
    ) -> None:
        real(self, neighbour, changed, lambda topic_filter: [], wishes)

    patch.setattr(SubscriptionFlooding, "_pass_on", pass_on)


def sf_forgets_a_neighbour_that_is_down(patch: pytest.MonkeyPatch) -> None:
    real = SubscriptionFlooding.neighbour_down

    def neighbour_down(self: SubscriptionFlooding, neighbour: str) -> None:
        real(self, neighbour)
        self._change(neighbour, dict.fromkeys(self._held.get(neighbour, {})))

    patch.setattr(SubscriptionFlooding, "neighbour_down", neighbour_down)


def suback_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Barrier, "when_heard", lambda self, callback, asked_by=None, only=None: True)


def the_first_confirmation_counts_for_all(patch: pytest.MonkeyPatch) -> None:
    real = Confirmations.expect

    def expect(
        self: Confirmations, publication: Any, neighbours: Any, done: Any, came_from: str | None = None
    ) -> bool:
        return real(self, publication, sorted(neighbours)[:1], done, came_from)

    patch.setattr(Confirmations, "expect", expect)


# Written from docs/guarantees.md and the code of the pure layers alone, before reading the simulator.


def a_new_stream_goes_on_where_the_old_one_was(patch: pytest.MonkeyPatch) -> None:
    """What a neighbour sends first after its restart is taken for a repetition."""
    real = Lane.connected

    def connected(self: Lane, peer: Resume | None, epoch: int = 0) -> None:
        self._peer_stream = peer.stream if peer is not None else 0
        real(self, peer, epoch)

    patch.setattr(Lane, "connected", connected)


def outbox_lets_new_runs_overtake_those_on_disk(patch: pytest.MonkeyPatch) -> None:
    real = Outbox.append

    def append(self: Outbox, run: Run, number: int = 0) -> bool:
        if not self._spilled or self._memory_used + run.size > self.memory_bytes:
            return real(self, run, number)
        spilled, self._spilled = self._spilled, 0
        kept = real(self, run, number)
        self._spilled = spilled
        return kept

    patch.setattr(Outbox, "append", append)


def sf_keeps_what_a_full_sync_does_not_name(patch: pytest.MonkeyPatch) -> None:
    real = SubscriptionFlooding._take_subscribe

    def take_subscribe(self: SubscriptionFlooding, neighbour: str, asked: Interest, part: str | None) -> None:
        if part == "whole":
            self._syncing.pop(neighbour, None)
            part = None
        real(self, neighbour, asked, part)

    patch.setattr(SubscriptionFlooding, "_take_subscribe", take_subscribe)


def the_end_of_a_connection_ends_the_session_of_its_heir(patch: pytest.MonkeyPatch) -> None:
    real = Sessions.ended

    def ended(self: Sessions, pair: Pair) -> None:
        record = self.records.get(pair.client.client_id)
        if record is not None:
            record.owner = pair
        real(self, pair)

    patch.setattr(Sessions, "ended", ended)


def a_return_does_not_stop_a_delayed_will(patch: pytest.MonkeyPatch) -> None:
    real = Wills.returned

    def returned(self: Wills, client_id: str, session_present: bool) -> None:
        if not session_present:
            real(self, client_id, session_present)

    patch.setattr(Wills, "returned", returned)


def a_mark_is_answered_before_those_behind_have_heard(patch: pytest.MonkeyPatch) -> None:
    """Right in a row of two nodes only."""
    real = Barrier.when_heard

    def when_heard(
        self: Barrier, callback: Callable[[], None], asked_by: str | None = None, only: str | None = None
    ) -> bool:
        return asked_by is not None or real(self, callback, only=only)

    patch.setattr(Barrier, "when_heard", when_heard)


def qos2_ids_are_not_in_the_write_ahead_log(patch: pytest.MonkeyPatch) -> None:
    """What a client sends again after a crash of its node is forwarded again."""
    real = Publications.forward
    patch.setattr(Publications, "forward", lambda self, routed, qos2_id=0: real(self, routed))


def stamps_do_not_pass_those_of_other_nodes(patch: pytest.MonkeyPatch) -> None:
    """Where clocks differ, a later retained message loses against an earlier one."""
    real = HybridClock.see

    def see(self: HybridClock, stamp: int, now: float) -> bool:
        last = self.last
        believed = real(self, stamp, now)
        self.last = last
        return believed

    patch.setattr(HybridClock, "see", see)


def deletions_are_not_repaired(patch: pytest.MonkeyPatch) -> None:
    """Who was away while a retained message was deleted keeps it."""
    real = RetainedSync._repair_run

    def repair_run(self: RetainedSync, topic: str) -> Run | None:
        entry = self.index.get(topic)
        return None if entry is not None and entry.dead else real(self, topic)

    patch.setattr(RetainedSync, "_repair_run", repair_run)


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        window_accepts_everything,
        lane_forgets_what_arrived,
        outbox_forgets_what_was_in_flight,
        write_ahead_log_is_not_written,
        injector_does_not_repeat,
        routes_are_never_forgotten,
        qos2_ids_are_not_remembered,
        a_will_follows_a_good_bye,
        sf_does_not_ask_for_what_a_withdrawn_filter_covered,
        sf_forgets_a_neighbour_that_is_down,
        suback_does_not_wait,
        the_first_confirmation_counts_for_all,
        a_new_stream_goes_on_where_the_old_one_was,
        outbox_lets_new_runs_overtake_those_on_disk,
        sf_keeps_what_a_full_sync_does_not_name,
        the_end_of_a_connection_ends_the_session_of_its_heir,
        a_return_does_not_stop_a_delayed_will,
        a_mark_is_answered_before_those_behind_have_heard,
        qos2_ids_are_not_in_the_write_ahead_log,
        stamps_do_not_pass_those_of_other_nodes,
        deletions_are_not_repaired,
    )
}
