"""`brokerweave demo`: several sites, different brokers, sensors, a crash, a summary."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from brokerweave.errors import Unavailable
from brokerweave.plugin import registry

SECONDS = 20.0


def run(
    seconds: float = SECONDS,
    *,
    plain: bool = False,
    brokers: Sequence[str] | None = None,
    strategy: str = registry.DEFAULT,
    pipeline: bool = True,
    lake: Path | None = None,
    mesh: bool = True,
) -> int:
    """Show it: sensors publish for `seconds`; 0 if nothing was lost or doubled, else 1.

    `plain` prints lines instead of a live picture. `brokers` are the lab's names, one for each site; by
    default as many different ones as this machine has. `strategy`: what their nodes run.
    `pipeline`: bring what was sent to a lake, in `lake` or in the user's caches. `mesh`: show four more
    sites behind HAProxy, one of them killed. Raises `BrokerweaveError` if it cannot start.
    """
    _need_clients()
    from brokerweave.demo.lake import default_folder
    from brokerweave.demo.story import tell

    place = (lake or default_folder()) if pipeline else None
    with _one_folder():
        return tell(seconds, plain=plain, brokers=brokers, strategy=strategy, lake=place, mesh=mesh)


def run_gateways(seconds: float = SECONDS) -> int:
    """Show clients that are moved between two regions while they publish, for `seconds` at least; 0 if
    nothing was lost or doubled and no connection ended, else 1. Raises `BrokerweaveError` if it cannot
    start."""
    _need_clients()
    from brokerweave.demo.story import tell_gateways

    with _one_folder():
        return tell_gateways(seconds)


def _need_clients() -> None:
    if find_spec("paho") is None:
        raise Unavailable("the demo's clients need paho-mqtt: pip install 'brokerweave[demo]'")


@contextmanager
def _one_folder() -> Iterator[None]:
    """For everything, so that nothing stays behind at whatever moment the demo is stopped."""
    with tempfile.TemporaryDirectory(prefix="brokerweave-demo-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = None
