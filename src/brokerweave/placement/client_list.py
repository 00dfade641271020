"""A gateway's list of clients, and a controller's copy of it, kept equal by what changed.

Owns revisions: each change has one, and a page carries all changes after one revision up to another.
Invariants: a copy that says "up to r" equals the list as it was at r; a controller that knows nothing
(revision 0), or that is so far behind that departures were forgotten, gets the whole list, which begins with
a page after 0. Must not know: how pages travel; one that was lost is made again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from brokerweave.placement.messages import ROOM, ClientEntry, ClientPage, client_size

MOST_DEPARTED = 5000
"""Departures that are remembered for controllers that did not hear of them yet."""
RATE_STEP = 1.25
"""A client's rate is told again when it changed by this factor."""


class ClientList:
    """The gateway's own."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self.revision = 0
        self._forgotten = 0
        """Departures up to this revision are not remembered."""
        self._entries: OrderedDict[str, tuple[int, ClientEntry]] = OrderedDict()
        """In the order of their revisions."""
        self._departed = 0

    def at(self, client: str, site: str, rate: float = 0.0) -> None:
        known = self._entries.get(client)
        if known is not None:
            entry = known[1]
            low, high = sorted((entry.rate, rate))
            if entry.site == site and high <= max(low * RATE_STEP, 0.1):
                return
            self._departed -= not entry.site
        self._change(ClientEntry(client, site, rate))

    def gone(self, client: str) -> None:
        known = self._entries.get(client)
        if known is None or not known[1].site:
            return
        self._departed += 1
        self._change(ClientEntry(client, "", 0.0))
        if self._departed > MOST_DEPARTED:
            self._forget()

    def site_of(self, client: str) -> str | None:
        known = self._entries.get(client)
        return known[1].site or None if known is not None else None

    def sites(self) -> set[str]:
        return {entry.site for _, entry in self._entries.values() if entry.site}

    def __len__(self) -> int:
        return len(self._entries) - self._departed

    def pages(self, held: int, most: int) -> list[ClientPage]:
        """What a copy that has everything up to `held` lacks, as many pages as `most`."""
        if held > self.revision or 0 < held < self._forgotten:
            held = 0
        newest = reversed(self._entries.values())
        changed = list(takewhile(lambda known: known[0] > held, newest))[::-1]
        if held == 0:
            changed = [known for known in changed if known[1].site]
        pages: list[ClientPage] = []
        for upto, entries in self._cut(changed):
            pages.append(ClientPage(self._gateway, held, upto, tuple(entries)))
            held = upto
            if len(pages) == most:
                return pages
        if held < self.revision:  # only departures that nobody has to hear of
            last = pages.pop() if pages else ClientPage(self._gateway, held, held, ())
            pages.append(last._replace(upto=self.revision))
        return pages

    def _cut(self, changed: list[tuple[int, ClientEntry]]) -> Iterator[tuple[int, list[ClientEntry]]]:
        room = ROOM - len(self._gateway.encode()) - 16
        page: list[ClientEntry] = []
        size = upto = 0
        for revision, entry in changed:
            if page and size + client_size(entry) > room:
                yield upto, page
                page, size = [], 0
            page.append(entry)
            size += client_size(entry)
            upto = revision
        if page:
            yield upto, page

    def _change(self, entry: ClientEntry) -> None:
        self.revision += 1
        self._entries[entry.client] = (self.revision, entry)
        self._entries.move_to_end(entry.client)

    def _forget(self) -> None:
        """All departures. Who stays gets a new revision, so that the whole list is newer than any copy."""
        self._forgotten = self.revision
        here = [entry for _, entry in self._entries.values() if entry.site]
        self._entries.clear()
        self._departed = 0
        for entry in here:
            self._change(entry)


class ClientListCopy:
    """A controller's, of one gateway's process."""

    def __init__(self) -> None:
        self.held = 0
        self.clients: dict[str, ClientEntry] = {}

    def take(self, page: ClientPage) -> list[ClientEntry]:
        """What it changes; nothing if it is not the next page. Where the whole list comes anew in several
        pages, who is not on the first one is gone until their page is taken."""
        if page.after != self.held and page.after != 0:
            return []
        if page.after == 0 and self.held:
            if page.upto <= self.held:
                return []  # an old page that comes again
            told = {entry.client for entry in page.clients}
            gone = [ClientEntry(name, "", 0.0) for name in self.clients if name not in told]
        else:
            gone = []
        self.held = page.upto
        changes = [*gone, *page.clients]
        for entry in changes:
            if entry.site:
                self.clients[entry.client] = entry
            else:
                self.clients.pop(entry.client, None)
        return changes
