"""Rule "order": a client gets the messages of a publisher, on a topic, at a QoS, in the order of their
publication.

A message that arrives again has no place in this. Nor has a will. Must not know: what excuses a change of
order (`allowances`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from brokerweave.sim.users_view.history import History, PublishedMessage, Receipt


@dataclass(frozen=True, slots=True)
class OutOfOrder:
    client: str
    publication: PublishedMessage
    receipt: Receipt
    behind: PublishedMessage
    """The latest that had come before it."""
    behind_receipt: Receipt

    def __str__(self) -> str:
        return (
            f"{self.client} got {self.publication.payload!r} on {self.publication.topic} "
            f"after {self.behind.payload!r}"
        )


def find(history: History) -> Iterator[OutOfOrder]:
    for client, receipts in history.got.items():
        last: dict[tuple[str, str, int], tuple[PublishedMessage, Receipt]] = {}
        seen: set[bytes] = set()
        for receipt in receipts:
            publication = history.publications[receipt.payload]
            if publication.is_will or receipt.payload in seen:
                continue
            seen.add(receipt.payload)
            stream = (publication.client, publication.topic, publication.qos)
            if stream in last and last[stream][0].number > publication.number:
                yield OutOfOrder(client, publication, receipt, *last[stream])
            else:
                last[stream] = publication, receipt
