"""The admin socket's commands for dead letters, on a core whose injector takes them again."""

from __future__ import annotations

from typing import Any

import pytest

from brokerweave.errors import BrokerweaveError, ConfigError, LocalProtocolError
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.node.core import NodeCore
from brokerweave.runtime.dead_letter_commands import PREVIEW_BYTES, commands, preview
from tests.unit.node.network import Network, Node


class Site:
    """A node with some letters."""

    def __init__(self, *payloads: bytes, max_bytes: int = 1 << 20) -> None:
        network = Network()
        network.add("a")
        self.node: Node = network.nodes["a"]
        self.dead_letters = DeadLetters(max_bytes=max_bytes)
        for number, payload in enumerate(payloads, 1):
            frame = codec.encode(Publish(f"t/{number}", payload, 1, retain=True, packet_id=7), 4)
            self.dead_letters.add(5.0, f"t/{number}", 1, 4, "refused", frame)

    @property
    def core(self) -> NodeCore:
        return self.node.core

    def do(self, command: str, **request: object) -> Any:
        return commands(self)[command](request)

    @property
    def ids(self) -> list[int]:
        return [letter["id"] for letter in self.do("dead_letters")["letters"]]


def test_the_list_says_what_was_refused_and_why_but_not_the_payload() -> None:
    (letter,) = Site(b"x" * 100).do("dead_letters")["letters"]
    assert letter == {"id": 1, "when": 5.0, "topic": "t/1", "qos": 1, "size": 109, "reason": "refused"}


def test_a_letter_is_shown_with_the_beginning_of_its_payload() -> None:
    shown = Site(b"x" * 5000).do("show_dead_letter", id=1)
    assert (shown["topic"], shown["retain"], shown["payload_size"]) == ("t/1", True, 5000)
    assert shown["payload"] == {"text": "x" * PREVIEW_BYTES}


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"", {"text": ""}),
        ("a\nü".encode(), {"text": "a\nü"}),
        (b"\xff\x00", {"hex": "ff00"}),
        (b"\x1b[2J", {"hex": "1b5b324a"}),
        (b"a\xc3", {"hex": "61c3"}),
        ("€".encode() * 400, {"text": "€" * 341}),  # the bound falls inside a character
        (b"\xff" * 2000, {"hex": "ff" * PREVIEW_BYTES}),
    ],
)
def test_a_payload_is_text_where_it_can_be_and_never_more_than_the_bound(
    payload: bytes, shown: dict[str, str]
) -> None:
    assert preview(payload) == shown


def test_a_retried_letter_waits_for_the_broker_and_is_off_the_list() -> None:
    site = Site(b"one", b"two", b"three")
    assert site.do("retry_dead_letters", id=2) == {"retried": 1, "kept": []}
    assert site.ids == [1, 3]
    assert site.do("retry_dead_letters", id="all") == {"retried": 2, "kept": []}
    assert site.ids == []
    assert site.node.injected() == ["t/2", "t/1", "t/3"]
    assert site.core.counters["dead_letters_retried"] == 3


def test_a_retried_letter_is_as_durable_as_it_was_published() -> None:
    site = Site(b"one")
    site.do("retry_dead_letters", id=1)
    _, (run,) = site.core.injectors[0].outbox.take(1 << 20)
    assert (run.origin, run.count, run.max_qos, run.durable) == ("a", 1, 1, True)


def test_a_letter_that_was_too_large_to_keep_stays_and_says_so() -> None:
    site = Site(b"x" * 100, b"small", max_bytes=50)
    assert site.do("show_dead_letter", id=1)["payload"] is None
    with pytest.raises(LocalProtocolError, match="too large"):
        site.do("retry_dead_letters", id=1)
    assert site.do("retry_dead_letters", id="all") == {"retried": 1, "kept": [1]}
    assert site.ids == [1]


def test_a_letter_stays_when_the_injector_cannot_take_it() -> None:
    site = Site(b"one", b"two")
    site.core.injectors[0].outbox.memory_bytes = 0
    with pytest.raises(BrokerweaveError, match="outbox is full"):
        site.do("retry_dead_letters", id="all")
    assert site.ids == [1, 2]


def test_letters_are_dropped_one_by_one_or_all() -> None:
    site = Site(b"one", b"two", b"three")
    assert site.do("drop_dead_letters", id=1) == {"dropped": 1}
    assert site.do("drop_dead_letters", id="all") == {"dropped": 2}
    assert site.ids == []
    assert site.node.injected() == []
    assert site.core.counters["dead_letters_dropped"] == 3


@pytest.mark.parametrize("command", ["show_dead_letter", "retry_dead_letters", "drop_dead_letters"])
def test_a_letter_that_is_not_there_is_named(command: str) -> None:
    with pytest.raises(ConfigError, match="no dead letter 9"):
        Site(b"one").do(command, id=9)
