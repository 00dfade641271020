"""Nobody gets the will of a client that said good-bye."""

from __future__ import annotations

import pytest

from brokerweave.mqtt.packets import Publish
from tests.unit.sim.users_view.scene import Scene


@pytest.mark.parametrize(("heard", "found"), [(True, 1), (False, 0)])
def test_a_will_comes_only_if_its_node_did_not_hear_a_goodbye(heard: bool, found: int) -> None:
    scene = Scene()
    scene.publisher._connects = 1
    scene.history.made(scene.publisher, b"p!1", "t", 1, False)
    scene.history.said_goodbye(scene.publisher)
    end = scene.publisher.own_end
    assert end is not None
    end.peer.read = 10 if heard else 0
    scene.after(1.0)
    scene.history.delivered(scene.subscriber, Publish("t", b"p!1", 1))
    assert len(scene.judge()[0]) == found
