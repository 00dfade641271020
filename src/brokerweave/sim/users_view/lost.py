"""Rule "lost": what was acknowledged to its publisher arrives at everyone who wanted it all the time.

Must not know: what excuses a loss (`allowances`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from brokerweave.sim.users_view.history import History, PublishedMessage, Want


@dataclass(frozen=True, slots=True)
class Lost:
    client: str
    publication: PublishedMessage
    want: Want

    def __str__(self) -> str:
        return (
            f"{self.publication.payload!r} ({self.publication.topic}) never reached {self.client} "
            f"({self.want.topic_filter}, since it subscribed at {self.want.site})"
        )


def find(history: History) -> Iterator[Lost]:
    for client, publication, want in history.promised():
        if not history.receipts[client, publication.payload]:
            yield Lost(client, publication, want)
