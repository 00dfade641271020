"""What the C library does with memory that batches needed, in a process that makes many of them.

Must not know: batches.
"""

from __future__ import annotations

import contextlib
import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""As glibc's `mallopt` names them."""
_KEPT_BYTES = 32 << 20


@cache
def keep_memory() -> None:
    """Keep what batches needed for the next ones: else the kernel clears fresh pages for each of them."""
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
