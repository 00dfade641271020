"""What an operator of a gateway should hear of: no controller answers, no site takes clients.

Invariant: each is said once, until it was over in between. Must not know: how either is found out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerweave.config import Address
from brokerweave.placement.followed import SILENT
from brokerweave.runtime.problems import Problems


class GatewayWatch:
    def __init__(self, controllers: Sequence[Address], problems: Problems, now: float) -> None:
        self._controllers = controllers
        self._problems = problems
        self._followed_at = now
        self._said_alone = self._said_no_site = False

    def look(self, follows: str, now: float) -> None:
        """Now and then. `follows`: the controller that is followed, if any."""
        if follows or not self._controllers:
            self._followed_at, self._said_alone = now, False
        elif now - self._followed_at > SILENT and not self._said_alone:
            self._said_alone = True
            where = ", ".join(str(each) for each in self._controllers)
            self._problems.warn(
                f"no controller answers at {where}: does one run there, with the same key_file?"
            )

    def refused(self, reasons: Mapping[str, str]) -> None:
        """A client was refused, for no site takes it. `reasons`: of each site that could not be reached."""
        if not self._said_no_site:
            self._said_no_site = True
            each = "; ".join(f"{site}: {why}" for site, why in sorted(reasons.items()))
            self._problems.warn(f"no site takes clients: {each or 'none is known'}")

    def served(self) -> None:
        """A site took a client."""
        self._said_no_site = False
