"""Bugs to plant, each by name: the simulator must find every one of them.

To add one, write a function that takes pytest's `MonkeyPatch` and breaks one thing in a pure layer, and put
it into `PLANTED`. Nothing of the simulator needs to be known. A bug must break a promise (something lost,
doubled, out of order, never coming to rest, or left behind), not only waste time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.links.inflight import Inflight, Message
from brokerweave.links.lane import Lane
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.node.barrier import Barrier
from brokerweave.node.confirmations import Confirmations
from brokerweave.node.core import NodeCore
from brokerweave.node.daybook import Daybook
from brokerweave.node.router import Router
from brokerweave.session.pair import Pair

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


def daybook_is_not_written(patch: pytest.MonkeyPatch) -> None:
    def write(self: Daybook, entry: bytes) -> int:
        self._last += 1
        return self._last

    patch.setattr(Daybook, "_write", write)


def injector_does_not_repeat(patch: pytest.MonkeyPatch) -> None:
    real = Inflight.interrupted

    def interrupted(self: Inflight) -> list[Message]:
        real(self)
        return []

    patch.setattr(Inflight, "interrupted", interrupted)


def routes_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Router, "changed", lambda self: None)


def qos2_ids_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pair, "_already_taken", lambda self, packet_id: False)


def a_will_follows_a_good_bye(patch: pytest.MonkeyPatch) -> None:
    real = NodeCore.ended
    patch.setattr(NodeCore, "ended", lambda self, pair, unexpected: real(self, pair, True))


def sf_does_not_ask_for_what_a_withdrawn_filter_covered(patch: pytest.MonkeyPatch) -> None:
    real = SubscriptionFlooding._pass_on

    def pass_on(self: SubscriptionFlooding, neighbour: str, changed: list[str], inside: object) -> None:
        real(self, neighbour, changed, lambda topic_filter: [])

    patch.setattr(SubscriptionFlooding, "_pass_on", pass_on)


def sf_forgets_a_neighbour_that_is_down(patch: pytest.MonkeyPatch) -> None:
    real = SubscriptionFlooding.neighbour_down

    def neighbour_down(self: SubscriptionFlooding, neighbour: str) -> None:
        real(self, neighbour)
        self._change(neighbour, dict.fromkeys(self._held.get(neighbour, {})))

    patch.setattr(SubscriptionFlooding, "neighbour_down", neighbour_down)


def suback_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Barrier, "when_heard", lambda self, callback, asked_by=None: True)


def the_first_confirmation_counts_for_all(patch: pytest.MonkeyPatch) -> None:
    real = Confirmations.expect

    def expect(self: Confirmations, publication: object, neighbours: object, done: object) -> bool:
        return real(self, publication, list(neighbours)[:1], done)  # type: ignore[arg-type, call-overload]

    patch.setattr(Confirmations, "expect", expect)


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        window_accepts_everything,
        lane_forgets_what_arrived,
        outbox_forgets_what_was_in_flight,
        daybook_is_not_written,
        injector_does_not_repeat,
        routes_are_never_forgotten,
        qos2_ids_are_not_remembered,
        a_will_follows_a_good_bye,
        sf_does_not_ask_for_what_a_withdrawn_filter_covered,
        sf_forgets_a_neighbour_that_is_down,
        suback_does_not_wait,
        the_first_confirmation_counts_for_all,
    )
}
