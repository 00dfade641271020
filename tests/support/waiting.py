"""Waiting for a condition, with a limit: nothing in these tests waits a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT = 120.0
"""Seconds. Reached only by a test that fails, however busy the machine."""


def wait_until(condition: Callable[[], bool], what: str = "the condition", seconds: float = LIMIT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {seconds:g} s")
        time.sleep(0.01)
