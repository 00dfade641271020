"""Packet ids of deliveries: a client that changed its site may know an id from the old one still.

Owns the ids that the old site left open at the client, and which id stands for which at the client.
Invariants: no two deliveries have the same id at the client at the same time; what the old site left open is
brought to its end here, and its answers go nowhere. Must not know: how packets travel.
"""

from __future__ import annotations

from collections.abc import Mapping

from brokerweave.errors import LocalProtocolError
from brokerweave.gateway.ledger import PUBREC, TO_ACKNOWLEDGE, TO_COMPLETE, TO_RELEASE

MOST_IDS = 0xFFFF


class DeliveryIds:
    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        """Of old sites, without the client's last answer: what comes next."""
        self._at_client: dict[int, int] = {}
        """The site's id: the client's, where the two differ."""
        self._at_site: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether ids have to be looked at."""
        return bool(self._left or self._at_client)

    def leave(self, open_: Mapping[int, int]) -> list[int]:
        """A site ended with these open. Which of them are to be released at the client (PUBREL)."""
        for number, following in open_.items():
            own = self._at_client.get(number, number)
            self._left[own] = following
        self._at_client.clear()
        self._at_site.clear()
        return [number for number, following in self._left.items() if following == TO_RELEASE]

    def release(self) -> list[int]:
        """The client came back: which ids are to be released at it (PUBREL), whatever it had answered. At
        QoS 1 it remembers none."""
        self._left = {number: TO_COMPLETE for number, next_ in self._left.items() if next_ != TO_ACKNOWLEDGE}
        return list(self._left)

    def delivered(self, number: int, open_: Mapping[int, int]) -> int:
        """The id under which the client gets a delivery. `open_`: the other deliveries of the site."""
        known = self._at_client.get(number)
        if known is not None:
            return known
        if number not in self._left and number not in self._at_site:
            return number
        taken = self._left.keys() | self._at_site.keys() | open_.keys()
        free = next((each for each in range(MOST_IDS, 0, -1) if each not in taken), None)
        if free is None:
            raise LocalProtocolError("no packet id is free")
        self._at_client[number], self._at_site[free] = free, number
        return free

    def at_client(self, number: int) -> int:
        return self._at_client.get(number, number)

    def answered(self, kind: int, number: int, last: bool) -> tuple[int, bool]:
        """An answer of the client: the site's id, or 0 if no site waits for it; and whether the client is to
        be sent a PUBREL. `last`: it ends the delivery."""
        if number in self._left:
            if last:
                del self._left[number]
            return 0, kind == PUBREC and not last
        own = self._at_site.get(number)
        if own is None:
            return number, False
        if last:
            del self._at_site[number], self._at_client[own]
        return own, False
