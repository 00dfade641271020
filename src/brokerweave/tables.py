"""Giving back the room of a dict that once held much more.

A dict keeps the table of its best days until it grows again: one that held a million filters and holds ten
now has 40 MB. Must not know: what is in the dict.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Any

SMALL = 16 << 10
"""Bytes that are not worth a look."""
ENTRY = 512
"""Bytes for each entry that are too many: over four times what a dict takes that has just grown, so that
remaking it happens once for many removals."""


def fit(table: dict[Any, Any]) -> None:
    """Call it after removals."""
    size = getsizeof(table)
    if size > SMALL and size > ENTRY * len(table):
        entries = dict(table)
        table.clear()
        table.update(entries)
