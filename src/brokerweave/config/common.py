"""Keys that several processes have, with the same words.

Must not know: the processes.
"""

from __future__ import annotations

from brokerweave.config.values import REMOTE, about, choice, pattern

HERE = ("127.0.0.1", "::1", "localhost")
"""Hosts that nobody reaches from elsewhere."""
LOG_LEVEL = about(choice("debug", "info", "warning", "error"), "The least important thing that is logged.")
LOG_FORMAT = about(choice("text", "json"), "How a line of the log looks; `json` has one object a line.")
OWN_TOPIC = pattern(
    r"[^$#+\x00-\x1f\x7f][^#+\x00-\x1f\x7f]*", "a topic without wildcards and without $ first"
)
SITE_MONITOR = about(REMOTE, "Where it answers pings (UDP): the node's `[monitoring] listen`.")
