"""Bugs to plant in gateways and in orders, each by name: the simulator must find every one of them.

`IN_MOVES` are looked for where gateways move clients and all sites live, `IN_DEATHS` where something dies in
the middle of moves.
"""

from __future__ import annotations

from collections import deque

import pytest

from brokerweave.gateway.left_sessions import LeftSessions
from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.orders import MoveTask, MoveTasks
from brokerweave.gateway.replay import Replay
from brokerweave.gateway.transitions import ClientWay, MoveStep
from brokerweave.gateway.tunnel import _STEPS, Tunnel
from brokerweave.mqtt.packets import PacketType
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import Frame, split
from brokerweave.placement.gateway_records import OrderBook
from brokerweave.session.pair import Pair
from tests.chaos.planted_bugs import Plant


def a_publication_that_has_its_pubrec_goes_again(patch: pytest.MonkeyPatch) -> None:
    up, forget = Tunnel._up, Tunnel._forget_old
    sent: dict[tuple[str, int], bytes] = {}

    def note(self: Tunnel, data: bytes) -> None:
        for frame in split(data):
            if frame[0] >> 4 == PacketType.PUBLISH and frame[0] & 6:
                assert self.connect is not None
                sent[self.connect.client_id, publish_head(frame, self.version).packet_id] = frame
        up(self, data)

    def forget_old(self: Tunnel) -> None:
        link = self.link
        assert link is not None
        assert self.connect is not None
        again = [sent[self.connect.client_id, number] for number in link.ledger.received]
        forget(self)
        self._unanswered += again

    patch.setattr(Tunnel, "_up", note)
    patch.setitem(_STEPS, MoveStep.FORGET_OLD, forget_old)


def what_waited_is_dropped_at_a_switch(patch: pytest.MonkeyPatch) -> None:
    real = Tunnel._switch

    def switch(self: Tunnel) -> None:
        self._waiting, self.waiting_bytes = deque(), 0
        real(self)

    patch.setitem(_STEPS, MoveStep.SWITCH, switch)


def publications_without_an_answer_are_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    real = Tunnel._forget_old

    def forget_old(self: Tunnel) -> None:
        real(self)
        self._unanswered = []

    patch.setitem(_STEPS, MoveStep.FORGET_OLD, forget_old)


def retained_messages_pass_again_at_a_replay(patch: pytest.MonkeyPatch) -> None:
    """As if all were MQTT 5 that is asked not to send them."""
    real = Replay.heard

    def heard(self: Replay, link: SiteLink, frame: Frame) -> bytes | None:
        return None if frame.type == PacketType.PUBLISH else real(self, link, frame)

    patch.setattr(Replay, "heard", heard)


def a_ping_ends_the_replay(patch: pytest.MonkeyPatch) -> None:
    """The first answer to come does: a node may hold the stream for longer."""
    real = Replay.heard

    def heard(self: Replay, link: SiteLink, frame: Frame) -> bytes | None:
        answer = real(self, link, frame)
        if frame.type == PacketType.SUBACK and answer is not None and self._asked_round:
            self.ids.clear()
            self._asked_round = False
        return answer

    patch.setattr(Replay, "heard", heard)


def an_old_session_leaves_its_will(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pair, "close_moved", lambda self: self.close_taken_over(session_ends=True))


def deliveries_are_answered_to_the_wrong_site(patch: pytest.MonkeyPatch) -> None:
    """To that where the client is now, whoever sent them."""

    def answer(self: Tunnel, frame: Frame) -> None:
        link = self.other if self.other is not None and self.other.connack is not None else self.link
        if link is not None:
            self._host.to_site(link, frame.data)

    patch.setattr(Tunnel, "_answer", answer)


def a_doubled_order_is_carried_out_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OrderBook, "__contains__", lambda self, order: False)


def an_order_that_is_refused_late_has_no_result(patch: pytest.MonkeyPatch) -> None:
    real = MoveTasks.settled

    def settled(self: MoveTasks, client: object, step: MoveStep, why: str) -> None:  # type: ignore[type-arg]
        if step is MoveStep.FAIL:
            self._under_way.pop(client, None)
        real(self, client, step, why)

    patch.setattr(MoveTasks, "settled", settled)


def an_order_has_two_results(patch: pytest.MonkeyPatch) -> None:
    real = MoveTasks.settled

    def settled(self: MoveTasks, client: object, step: MoveStep, why: str) -> None:  # type: ignore[type-arg]
        task: MoveTask | None = self._under_way.get(client)  # type: ignore[type-arg]
        if task is not None:
            self._ended(task, step, why)
        real(self, client, step, why)

    patch.setattr(MoveTasks, "settled", settled)


def a_client_comes_back_to_any_site(patch: pytest.MonkeyPatch) -> None:
    """Its session stays where it was."""
    patch.setattr(LeftSessions, "at_first", lambda self, client, sites, at: sites)


def a_client_that_leaves_does_not_wait_for_an_answer(patch: pytest.MonkeyPatch) -> None:
    def client_gone(self: Tunnel) -> None:
        if self.way is not ClientWay.ENDED:
            self.end()

    patch.setattr(Tunnel, "client_gone", client_gone)


def subscriptions_are_not_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replay, "begin", lambda self, packets, avoid, version: b"")


def _named(*plants: Plant) -> dict[str, Plant]:
    return {plant.__name__: plant for plant in plants}


IN_MOVES = _named(
    what_waited_is_dropped_at_a_switch,
    retained_messages_pass_again_at_a_replay,
    a_ping_ends_the_replay,
    an_old_session_leaves_its_will,
    deliveries_are_answered_to_the_wrong_site,
    a_doubled_order_is_carried_out_twice,
    an_order_that_is_refused_late_has_no_result,
    an_order_has_two_results,
    a_client_comes_back_to_any_site,
    a_client_that_leaves_does_not_wait_for_an_answer,
    subscriptions_are_not_asked_for_again,
)
IN_DEATHS = _named(
    a_publication_that_has_its_pubrec_goes_again,
    publications_without_an_answer_are_not_sent_again,
)
