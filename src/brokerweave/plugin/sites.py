"""What a strategy knows of sites that lets its node care for clients which change or lose their site.

Owns the interfaces between such a strategy and `brokerweave.care`: `SiteBook` is what the node asks,
`SiteEvents` what it hears. Invariants: a site's life is another one after each start; a message takes one
hop. Must not know: messages, records of clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from brokerweave.plugin.strategy import Cut


class SiteEvents:
    """What a site book tells the node. Each default does nothing."""

    def joined(self, client: str, since: int) -> None:
        """A client's session is at this site since then, a hybrid time."""

    def wants(self, client: str, filters: Mapping[str, int | None]) -> None:
        """Filters that a client's session here has now (None: no longer)."""

    def left(self, client: str) -> None:
        """A client's session here is over."""

    def down(self, neighbour: str) -> None:
        """A link is down."""

    def told(self, neighbour: str) -> None:
        """A neighbour told what it wants; it is answered when this returns."""

    def forgotten(self, neighbour: str) -> None:
        """A neighbour took this site for dead, and has forgotten what it wants."""

    def heard(self, neighbour: str, version: int, cut: Cut) -> None:
        """A neighbour knows this version of what this site wants. Up to the cut it did not."""

    def lives(self) -> None:
        """Other sites live than before."""

    def died(self, node: str) -> None:
        """A site is not live any more."""


@runtime_checkable
class SiteBook(Protocol):
    """Who lives, what each site wants, and who keeps the records of whose clients."""

    events: SiteEvents
    """Who hears what happens; the node sets it before anything does."""

    @property
    def window(self) -> float:
        """Seconds for which clients without a site are remembered."""

    @property
    def client_bytes(self) -> int: ...

    @property
    def max_bytes(self) -> int: ...

    @property
    def copies(self) -> int:
        """At how many sites a record is."""

    @property
    def patience(self) -> float:
        """Seconds after which nobody waits any longer for a site that lives."""

    @property
    def live(self) -> frozenset[str]:
        """The nodes that live; this one is among them."""

    @property
    def remembered(self) -> frozenset[str]:
        """Those, and who died in the last window: it may come back with what it had, or was to send."""

    @property
    def life(self) -> int:
        """Of this start of this node."""

    @property
    def version(self) -> int:
        """Of what this site wants; grows with each change that is told."""

    def ready(self) -> bool:
        """Whether all that live are known; or nobody waits for that any longer."""

    def linked(self) -> tuple[str, ...]:
        """Neighbours that have told what they want since their links are up."""

    def life_of(self, node: str) -> int:
        """A site's life, as it told; 0: it has not."""

    def holders_of(self, node: str) -> tuple[str, ...]:
        """Who keeps copies of a site's records, as it told last."""

    def rank(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Nodes in the order in which this site would have them keep its records."""

    def want(self, filters: Mapping[str, int | None]) -> None:
        """What records here want beyond what clients with sessions here do (None: no longer)."""

    def hold_at(self, holders: tuple[str, ...]) -> None:
        """Who keeps copies of this site's records: others send there what this site gets."""

    def adopted(self, homes: frozenset[tuple[str, int]]) -> None:
        """Sites' lives that ended, whose clients are this site's now."""

    def announce(self) -> int:
        """Tell all neighbours in this turn, changed or not; the version that they will hear."""

    def flush(self) -> None:
        """Tell now."""
