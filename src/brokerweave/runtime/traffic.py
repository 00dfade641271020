"""How much clients sent and got, in messages and bytes, since the node started.

The frame scanners count; here the counts are only added up, when somebody asks. Must not know: what was sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from brokerweave.session.pair import Pair

_NAMES = ("messages_in", "bytes_in", "messages_out", "bytes_out")


class Traffic:
    def __init__(self) -> None:
        self._ended = (0, 0, 0, 0)
        """Of connections that are over."""

    def ended(self, pair: Pair) -> None:
        a, b, c, d = pair.traffic
        e, f, g, h = self._ended
        self._ended = a + e, b + f, c + g, d + h

    def totals(self, pairs: Iterable[Pair]) -> dict[str, int]:
        """`pairs` are those that are open."""
        columns = zip(self._ended, *(pair.traffic for pair in pairs), strict=True)
        return dict(zip(_NAMES, map(sum, columns), strict=True))
