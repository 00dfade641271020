"""How many files a process may open: each client of a node or a gateway takes two.

Must not know: what they are opened for.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("brokerweave.node")


def raise_file_limit(connections: int) -> None:
    """Ask for what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 2 * connections + 100:
        log.warning(
            "max_connections = %d needs more files than the %d this process may open", connections, hard
        )
