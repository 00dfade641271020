"""The clients of one worker: opening them all, sending one publisher's messages, taking in what a subscriber gets.

Invariants: a full socket never holds the schedule up: what it does not take waits here. A message's time of sending is
when its publisher handed it over, so a slow broker cannot hide in a full socket. Must not know: the schedule, logs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import batched  # type: ignore[attr-defined,unused-ignore]

from brokerweave.bench.folder import HEADER
