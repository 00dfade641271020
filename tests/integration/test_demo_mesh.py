"""The demo's mesh, as a user with HAProxy sees it."""

from __future__ import annotations

import pytest

from brokerweave.demo.mesh import SUBSCRIBERS, MeshDemo, missing


def test_the_demos_mesh_loses_a_site_and_nothing_else() -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    said: list[str] = []
    sites = MeshDemo()
    try:
        tally = sites.play(said.append)
    finally:
        sites.close()
    assert tally.ok, tally
    assert tally.delivered == tally.published * SUBSCRIBERS
    assert any(f"site {tally.killed} killed" in line for line in said)
