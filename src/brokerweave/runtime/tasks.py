"""Background tasks that do not go quiet.

Owns what happens when one of them raises what it should not: it is reported, then begun anew after a pause
that grows. Invariant: a task ends only by returning or by being cancelled. Must not know: what tasks do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PAUSE_MIN = 0.5
PAUSE_MAX = 30.0
CALM = 60.0
"""Seconds of work after which a failure is taken for a new one, and the pause is short again."""

Failed = Callable[[str, BaseException], None]
"""Hears which task failed, and how."""


async def supervise(name: str, work: Callable[[], Awaitable[None]], failed: Failed) -> None:
    """Do `work` until it returns."""
    clock = asyncio.get_running_loop().time
    pause = PAUSE_MIN
    while True:
        began = clock()
        try:
            await work()
            return
        except Exception as error:
            failed(name, error)
        if clock() - began > CALM:
            pause = PAUSE_MIN
        await asyncio.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX)
