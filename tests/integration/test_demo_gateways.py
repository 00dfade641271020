"""The demo's gateways: a drained site loses its clients, and they lose nothing."""

from __future__ import annotations

import pytest

from brokerweave.demo.gateways import GatewaysDemo, missing, verdict
from brokerweave.demo.regions import NAMES
from tests.support.verdicts import keeps


@pytest.mark.slow
def test_the_demos_clients_leave_a_drained_site_and_come_back_and_miss_nothing() -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    said: list[str] = []
    demo = GatewaysDemo(said.append, seconds=6)
    try:
        found = demo.play()
    finally:
        demo.close()
    keeps(not (found.lost or found.doubled), verdict(found))
    assert found.ok, verdict(found)
    drained, other = NAMES
    clients = sum(demo.places["at first"][drained].values())
    assert demo.places["at first"][drained] == {drained: clients}
    assert demo.places["drained"][drained] == {other: clients}
    assert demo.places["resumed"][drained] == {drained: clients}
    assert found.outcomes == {"done": 2 * clients}
    assert any("it may be stopped" in line for line in said)
