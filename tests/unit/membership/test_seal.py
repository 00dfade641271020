from __future__ import annotations

import hmac

import pytest

from brokerweave.membership import seal
from brokerweave.membership.presets import MOST_DATAGRAM
from brokerweave.membership.seal import CAUSES, MAC, WINDOW, Seal

KEY = b"secret"


def counted(receiver: Seal) -> dict[str, int]:
    return {cause: count for cause, count in receiver.refused.items() if count}


def test_what_a_holder_of_the_key_sends_to_this_process_is_opened() -> None:
    receiver = Seal(KEY, 2)
    assert receiver.open(Seal(KEY, 1).close(5, 2, b"content")) == (5, 1, b"content")
    assert counted(receiver) == {}


def test_an_unauthenticated_datagram_is_refused() -> None:
    receiver = Seal(KEY, 2)
    assert receiver.open(Seal(b"other", 1).close(5, 2, b"content")) is None
    assert counted(receiver) == {"unauthentic": 1}


def test_a_datagram_that_was_changed_in_any_byte_is_refused() -> None:
    receiver = Seal(KEY, 2)
    data = Seal(KEY, 1).close(5, 2, b"content")
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert receiver.open(changed) is None
    assert counted(receiver) == {"version": 1, "unauthentic": len(data) - 1}
    assert receiver.open(data) is not None


def test_a_datagram_is_opened_once() -> None:
    receiver, data = Seal(KEY, 2), Seal(KEY, 1).close(5, 2, b"content")
    assert receiver.open(data) is not None
    assert receiver.open(data) is None
    assert counted(receiver) == {"replayed": 1}


def test_a_recording_from_before_a_restart_is_refused_after_it() -> None:
    data = Seal(KEY, 1).close(5, 2, b"content")
    restarted = Seal(KEY, 3)
    assert restarted.open(data) is None
    assert counted(restarted) == {"misdirected": 1}


def test_datagrams_may_overtake_each_other_within_the_window() -> None:
    sender, receiver = Seal(KEY, 1), Seal(KEY, 2)
    sent = [sender.close(5, 2, b"%d" % number) for number in range(WINDOW)]
    assert all(receiver.open(data) for data in reversed(sent))
    assert not any(receiver.open(data) for data in sent)


def test_what_is_older_than_the_window_is_refused_though_it_never_came() -> None:
    sender, receiver = Seal(KEY, 1), Seal(KEY, 2)
    sent = [sender.close(5, 2, b"") for _ in range(WINDOW + 1)]
    assert receiver.open(sent[-1]) is not None
    assert receiver.open(sent[1]) is not None
    assert receiver.open(sent[0]) is None


@pytest.mark.parametrize("data", [b"", b"hello", bytes(41), b"\x01" * 42, b"\xff" * 200])
def test_garbage_is_refused_and_counted_under_one_cause(data: bytes) -> None:
    receiver = Seal(KEY, 2)
    assert receiver.open(data) is None
    assert sum(counted(receiver).values()) == 1


def test_what_is_longer_than_any_datagram_of_ours_is_refused() -> None:
    receiver = Seal(KEY, 2)
    assert receiver.open(Seal(KEY, 1).close(5, 2, bytes(MOST_DATAGRAM))) is None
    assert counted(receiver) == {"too_long": 1}


def test_windows_of_senders_are_bounded_and_the_ones_in_use_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "MOST_SENDERS", 3)
    receiver, steady = Seal(KEY, 2), Seal(KEY, 1)
    first = steady.close(5, 2, b"")
    assert receiver.open(first) is not None
    for boot in range(10, 30):
        assert receiver.open(Seal(KEY, boot).close(5, 2, b"")) is not None
        assert receiver.open(steady.close(5, 2, b"")) is not None
    assert receiver.open(first) is None
    assert len(receiver._windows) == 3


@pytest.mark.parametrize("key", [b"k", b"k" * 64, b"k" * 65, bytes(range(200))])
def test_the_mac_is_the_beginning_of_hmac_sha256(key: bytes) -> None:
    data = Seal(key, 1).close(5, 2, b"content")
    assert data[-MAC:] == hmac.digest(key, data[:-MAC], "sha256")[:MAC]


def test_every_cause_is_there_from_the_beginning() -> None:
    assert tuple(Seal(KEY, 1).refused) == CAUSES
    assert MAC == 16
