"""What a node's clients received a moment ago, for who begins to hold after that."""

from __future__ import annotations

import pytest

from brokerweave.care import recent as module
from brokerweave.care.recent import SECONDS, Recent


def test_what_was_received_is_known_for_some_seconds() -> None:
    recent = Recent()
    recent.note("c", [b"1", b"2"], now=0.0)
    recent.note("d", [b"1"], now=SECONDS - 1)
    assert recent.has("c", b"1")
    assert not recent.has("d", b"2")
    recent.note("d", [b"3"], now=SECONDS)
    assert not recent.has("c", b"1")
    assert recent.latest() == {"d": [b"3", b"1"]}


def test_a_clock_that_is_set_back_makes_nothing_last_longer() -> None:
    recent = Recent()
    recent.note("c", [b"1"], now=1000.0)
    recent.note("c", [b"2"], now=10.0)
    assert not recent.has("c", b"1")


def test_the_oldest_go_for_want_of_room_and_are_counted() -> None:
    recent = Recent(most=2)
    recent.note("c", [b"1", b"2", b"3"], now=0.0)
    assert (recent.has("c", b"1"), recent.dropped) == (False, 1)


def test_only_so_many_are_told_the_latest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATEST", 2)
    recent = Recent()
    recent.note("c", [b"1", b"2", b"3"], now=0.0)
    assert recent.latest() == {"c": [b"3", b"2"]}
