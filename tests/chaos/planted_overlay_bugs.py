"""Bugs to plant in the overlay and in the node's part of it, each by name: the simulator must find every one.

`IN_LISTS` break how nodes learn who wants what, and are looked for with `direct`; `WITHOUT_SHADOWS` does so,
too, where no shadow puts right what a coordinator says; `IN_PLANS` break how messages are passed on, and are
looked for with `guided` and two copies a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from brokerweave.cooperation.overlay.dispatch import Share
from brokerweave.cooperation.overlay.guided import Guided
from brokerweave.cooperation.overlay.keeper import Keeper
from brokerweave.cooperation.overlay.lists import SubscriberLists, _List
from brokerweave.cooperation.overlay.registrar import Registrar
from brokerweave.cooperation.overlay.strategy import Overlay
from brokerweave.cooperation.overlay.wire import Entry, ListChanged, Noted, Settled
from brokerweave.plugin import Hop, Route
from tests.chaos.planted_bugs import Plant

# Who wants what


def nobody_is_taken_from_a_coordinator_that_was_not_warm(patch: pytest.MonkeyPatch) -> None:
    real = Keeper._answer

    def answer(self: Keeper, node: str, key: str, warm: bool) -> None:
        real(self, node, key, warm or not self._entries.get(key))

    patch.setattr(Keeper, "_answer", answer)


def the_first_answer_is_enough_and_may_be_cold(patch: pytest.MonkeyPatch) -> None:
    """As in the thesis. A cold answer alone is put right by the other keepers, who are waited for."""
    real = Keeper._answer

    def complete(self: SubscriberLists, key: str, each: _List) -> bool:
        if each.complete or not any(each.asked.values()):
            return False
        each.complete = True
        self._incomplete.discard(key)
        self._host.lists_changed(each.topics)
        return True

    patch.setattr(Keeper, "_answer", lambda self, node, key, warm: real(self, node, key, True))
    patch.setattr(SubscriberLists, "_complete", complete)


def nobody_registers_again_where_keepers_change(patch: pytest.MonkeyPatch) -> None:
    real = Registrar.members_changed

    def members_changed(self: Registrar, joined: Iterable[str], gone: Iterable[str]) -> None:
        wanted, self._wanted = self._wanted, {}
        real(self, joined, gone)
        self._wanted = wanted

    patch.setattr(Registrar, "members_changed", members_changed)


def a_claim_is_answered_with_nothing_but_that_this_was_all(patch: pytest.MonkeyPatch) -> None:
    def tell_all(self: Registrar, keeper: str, start: int, length: int) -> None:
        since = self._counter
        self._host.tell(keeper, Settled(self.life, start, length, since, self._next()))

    patch.setattr(Registrar, "_tell_all", tell_all)


def a_holder_notes_a_change_and_does_not_apply_it(patch: pytest.MonkeyPatch) -> None:
    def changed(self: SubscriberLists, keeper: str, message: ListChanged) -> None:
        self._host.tell(keeper, Noted(message.number))

    patch.setattr(SubscriberLists, "changed", changed)


def the_answer_that_came_last_counts(patch: pytest.MonkeyPatch) -> None:
    """Not the one with the higher version."""

    def merge(self: SubscriberLists, each: _List, entries: Iterable[Entry]) -> list[Entry]:
        news = []
        for entry in entries:
            before = each.entries.get((entry.node, entry.topic_filter))
            each.entries[entry.node, entry.topic_filter] = entry
            if entry.qos != (before.qos if before is not None else -1):
                news.append(entry)
        return news

    patch.setattr(SubscriberLists, "_merge", merge)


def what_sites_want_is_forgotten_when_they_go(patch: pytest.MonkeyPatch) -> None:
    real = Keeper.members_changed

    def members_changed(self: Keeper, joined: Iterable[str], gone: Iterable[str]) -> None:
        gone = tuple(gone)
        real(self, joined, gone)
        for node in gone:
            self.forget(node)

    patch.setattr(Keeper, "members_changed", members_changed)


def what_was_on_a_link_that_failed_is_not_registered_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Registrar, "link_lost", lambda self, keeper: None)


def a_filter_that_is_not_wanted_any_more_stays_registered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Registrar, "unwant", lambda self, filters: None)


def new_keepers_get_no_retained_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Overlay, "_hand_some", lambda self: None)


# Who passes what on


def those_behind_a_dead_relay_are_not_served(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guided, "bypass", lambda self, topic, relay, plan: Route())


def the_last_of_a_next_list_is_left_out(patch: pytest.MonkeyPatch) -> None:
    real = Guided._hops

    def hops(self: Guided, cut: Iterable[Share], subscribers: Any, fan_out: int) -> list[Hop]:
        return real(self, [Share(child, rest[:-1]) for child, rest in cut], subscribers, fan_out)

    patch.setattr(Guided, "_hops", hops)


IN_LISTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        the_first_answer_is_enough_and_may_be_cold,
        nobody_registers_again_where_keepers_change,
        a_claim_is_answered_with_nothing_but_that_this_was_all,
        a_holder_notes_a_change_and_does_not_apply_it,
        the_answer_that_came_last_counts,
        what_sites_want_is_forgotten_when_they_go,
        what_was_on_a_link_that_failed_is_not_registered_again,
        a_filter_that_is_not_wanted_any_more_stays_registered,
        new_keepers_get_no_retained_messages,
    )
}
WITHOUT_SHADOWS: dict[str, Plant] = {
    plant.__name__: plant for plant in (nobody_is_taken_from_a_coordinator_that_was_not_warm,)
}
IN_PLANS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        those_behind_a_dead_relay_are_not_served,
        the_last_of_a_next_list_is_left_out,
    )
}
