"""What the admin socket can do with dead letters: list, show, retry, drop.

Owns the shape of the answers, which scripts rely on. Invariants: an answer is bounded, however large the
letters are; a letter leaves the list only when it was dropped, or when an injector has it again. Must not
know: how answers are displayed, why a broker refused.
"""

from __future__ import annotations

from typing import Any, Protocol

from brokerweave.errors import BrokerweaveError, ConfigError, LocalProtocolError
from brokerweave.links.dead_letters import DeadLetter, DeadLetters
from brokerweave.mqtt.publish import publish_head
from brokerweave.node.core import NodeCore
from brokerweave.runtime.admin import Command

PREVIEW_BYTES = 1024
TOPIC_CHARACTERS = 200
"""Of a topic in the list; `show` has all of it."""


class LettersHost(Protocol):
    @property
    def core(self) -> NodeCore: ...

    @property
    def dead_letters(self) -> DeadLetters: ...


def commands(host: LettersHost) -> dict[str, Command]:
    """Each command by its name on the admin socket; `id` in a request is a number, or "all"."""
    return {
        "dead_letters": lambda request: _listed(host),
        "show_dead_letter": lambda request: _shown(_one(host, request)),
        "retry_dead_letters": lambda request: _retried(host, request),
        "drop_dead_letters": lambda request: _dropped(host, request),
    }


def _listed(host: LettersHost) -> dict[str, Any]:
    letters = host.dead_letters
    return {
        "letters": [
            {
                "id": letter.id,
                "when": letter.when,
                "topic": letter.topic[:TOPIC_CHARACTERS],
                "qos": letter.qos,
                "size": letter.size,
                "reason": letter.reason,
            }
            for letter in letters.entries()
        ],
        "total": letters.total,
        "evicted": letters.evicted,
    }


def _shown(letter: DeadLetter) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": letter.id,
        "when": letter.when,
        "topic": letter.topic,
        "qos": letter.qos,
        "version": letter.version,
        "size": letter.size,
        "reason": letter.reason,
        "retain": None,
        "payload_size": None,
        "payload": None,
    }
    if letter.frame:
        head = publish_head(letter.frame, letter.version)
        shown |= {
            "retain": head.retain,
            "payload_size": len(letter.frame) - head.payload_start,
            "payload": preview(letter.frame[head.payload_start : head.payload_start + PREVIEW_BYTES + 4]),
        }
    return shown


def preview(payload: bytes) -> dict[str, str]:
    """The beginning of a payload: `text` where it is one, else `hex`."""
    head = payload[:PREVIEW_BYTES]
    for cut in range(4):  # the bound may have cut a character of up to four bytes
        try:
            text = head[: len(head) - cut].decode()
        except UnicodeDecodeError:
            if len(payload) <= PREVIEW_BYTES:
                break
            continue
        if all(character.isprintable() or character in "\t\n\r" for character in text):
            return {"text": text}
        break
    return {"hex": head.hex()}


def _retried(host: LettersHost, request: dict[str, object]) -> dict[str, Any]:
    retried, kept = 0, []
    letters = _chosen(host, request)
    for letter in letters:
        try:
            taken = host.core.publisher.retry(letter)
        except LocalProtocolError:
            if len(letters) == 1:
                raise
            kept.append(letter.id)
            continue
        if not taken:
            raise BrokerweaveError(
                f"the injector's outbox is full: {retried} were retried, letter {letter.id} and later stay"
            )
        host.dead_letters.pop(letter.id)
        retried += 1
    return {"retried": retried, "kept": kept}


def _dropped(host: LettersHost, request: dict[str, object]) -> dict[str, Any]:
    letters = _chosen(host, request)
    for letter in letters:
        host.dead_letters.pop(letter.id)
    host.core.count("dead_letters_dropped", len(letters))
    return {"dropped": len(letters)}


def _chosen(host: LettersHost, request: dict[str, object]) -> list[DeadLetter]:
    return list(host.dead_letters.entries()) if request.get("id") == "all" else [_one(host, request)]


def _one(host: LettersHost, request: dict[str, object]) -> DeadLetter:
    wanted = request.get("id")
    for letter in host.dead_letters.entries():
        if letter.id == wanted:
            return letter
    raise ConfigError(f"there is no dead letter {wanted}; brokerweave dead-letters ls shows those there are")
