"""Rule "doubled": a client gets a message once, and once more for each connection that ended before its
answer was read.

Invariant: what was in flight when a connection ended explains one repetition. Must not know: what else
excuses one (`allowances`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from brokerweave.sim.users_view.history import History, PublishedMessage, Receipt


@dataclass(frozen=True, slots=True)
class Doubled:
    client: str
    publication: PublishedMessage
    before: tuple[Receipt, ...]
    """Those that are still to explain a repetition."""
    again: Receipt

    def __str__(self) -> str:
        return f"{self.client} got {self.publication.payload!r} again at {self.again.connection.site}"


def find(history: History) -> Iterator[Doubled]:
    for (client, payload), receipts in history.receipts.items():
        publication, before = history.publications[payload], receipts[:1]
        for again in receipts[1:]:
            in_flight = next((each for each in before if _in_flight(each, again)), None)
            if in_flight is not None:
                before.remove(in_flight)
            else:
                yield Doubled(client, publication, tuple(before), again)
            before.append(again)


def _in_flight(first: Receipt, again: Receipt) -> bool:
    connection = first.connection
    return first.payload in connection.unread and connection.over <= again.at
