"""Whom a gateway follows, and the sites that it knows from there.

Owns what is known of each controller, and the list of sites. Invariants: of the controllers that answer, the
one with the lowest id is followed; an address that the gateway was configured with for a site stands,
whatever address the controller's list has. Must not know: datagrams, what is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from brokerweave.placement.messages import SiteEntry, SitePage

Address = tuple[str, int]
SILENT = 16.0
"""Seconds after which a controller that does not answer is not followed any more: three reports and a bit."""


@dataclass(frozen=True, slots=True)
class KnownSite:
    name: str
    clients: Address
    monitor: Address | None = None


class KnownController:
    __slots__ = ("address", "boot", "heard", "held", "id", "pages", "sent", "sent_at")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.id = ""
        self.boot = 0
        self.heard = -inf
        self.held = 0
        """The revision of the list of clients that it has."""
        self.sent = 0
        self.sent_at = -inf
        self.pages: dict[int, SitePage] = {}

    def page(self, page: SitePage) -> list[SiteEntry] | None:
        """One page of its list of sites: all of them, once the last one is there."""
        if any(each.digest != page.digest for each in self.pages.values()):
            self.pages = {}
        self.pages[page.page] = page
        if len(self.pages) < page.pages:
            return None
        pages, self.pages = self.pages, {}
        return [entry for number in range(page.pages) for entry in pages[number].sites]


class Controllers:
    def __init__(self, addresses: Iterable[Address]) -> None:
        self._all = [KnownController(address) for address in addresses]
        self.follows = ""
        """The id of the one that is followed; empty: nobody answers."""

    def __iter__(self) -> Iterator[KnownController]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def at(self, address: Address) -> KnownController | None:
        return next((each for each in self._all if each.address == address), None)

    def choose(self, now: float) -> bool:
        """Whom to follow; whether that is somebody else than before."""
        here = [each.id for each in self._all if now - each.heard < SILENT and each.id]
        before, self.follows = self.follows, min(here, default="")
        return self.follows != before

    def leader(self) -> KnownController | None:
        return next((each for each in self._all if each.id == self.follows), None)


class SiteDirectory:
    def __init__(self, own: Iterable[KnownSite]) -> None:
        """`own`: as configured at the gateway."""
        self._own = {site.name: site for site in own}
        self.known = dict(self._own)
        self.digest = 0
        """Of the controller's list; 0: there was none yet."""

    def told(self, digest: int, entries: Iterable[SiteEntry]) -> dict[str, float | None]:
        """A controller's list. How far each site may be, where the controller guesses that."""
        found = {entry.name: entry for entry in entries}
        self.digest = digest
        self.known = {name: self._own.get(name) or _known(entry) for name, entry in found.items()}
        return {name: entry.guess for name, entry in found.items()}


def _known(entry: SiteEntry) -> KnownSite:
    return KnownSite(entry.name, entry.clients, entry.monitor)
