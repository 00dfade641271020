"""Wills: who may send one, and when.

Owns row "will" of docs/guarantees.md as far as it says who publishes: the node of the client, unless the
client disconnected or came back in time; in a mesh also a holder, if the site is out of reach. Must not know:
what a broker does with a will of its own client.
"""

from __future__ import annotations

from brokerweave.sim.facts import Facts
from brokerweave.sim.promises import Broken


class WillRules:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._goodbyes: set[bytes] = set()
        self._cancelled: set[bytes] = set()

    def said_goodbye(self, payload: bytes) -> None:
        self._goodbyes.add(payload)

    def cancelled(self, payload: bytes) -> None:
        """Unless it was sent before, and waits only until its node knows where to."""
        if not any((node, payload) in self._facts.waiting for node in self._facts.barriers):
            self._cancelled.add(payload)

    def check_sent(self, node: str, payload: bytes) -> None:
        if payload in self._goodbyes:
            raise Broken(f"{node} sends the will {payload!r} of a client that said good-bye")
        if payload in self._cancelled:
            raise Broken(f"{node} sends the delayed will {payload!r} of a client that had come back")
