"""The demo's mesh, as a user with HAProxy sees it."""

from __future__ import annotations

import pytest

from brokerweave.demo.mesh import SUBSCRIBERS, MeshDemo, missing
from tests.support.verdicts import keeps


def test_the_demos_mesh_loses_a_site_and_nothing_else() -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    said: list[str] = []
    sites = MeshDemo()
    try:
        tally = sites.play(said.append)
    finally:
        sites.close()
    keeps(tally.ok, tally)
    keeps(tally.delivered == tally.published * SUBSCRIBERS, tally)
    assert any(f"site {tally.killed} killed" in line for line in said)
