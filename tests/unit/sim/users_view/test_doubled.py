"""A client gets a message again only if its answer may not have been heard."""

from __future__ import annotations

import pytest

from tests.unit.sim.users_view.scene import Scene


def again(scene: Scene, site: str, payload: bytes) -> None:
    scene.disconnect()
    scene.connect(scene.subscriber, site)
    scene.subscribe()
    scene.deliver(payload)


def test_what_comes_twice_on_one_connection_is_doubled() -> None:
    scene = Scene()
    payload = scene.publish(1)
    scene.deliver(payload)
    scene.after(1.0)
    scene.deliver(payload)
    assert scene.judge()[0] == ["s got b'p:1' again at b"]


@pytest.mark.parametrize(("read", "found"), [(False, 0), (True, 1)])
def test_what_was_in_flight_when_a_connection_ended_may_come_once_more(read: bool, found: int) -> None:
    scene = Scene()
    payload = scene.publish(1)
    scene.deliver(payload, answer_read=read)
    again(scene, "b", payload)
    broken, allowed = scene.judge()
    assert len(broken) == found
    assert not allowed


def test_what_was_in_flight_may_come_twice_and_not_three_times() -> None:
    scene = Scene()
    payload = scene.publish(1)
    scene.deliver(payload, answer_read=False)
    again(scene, "b", payload)
    scene.after(1.0)
    scene.deliver(payload)
    assert len(scene.judge()[0]) == 1


@pytest.mark.parametrize(("lived", "found"), [(0.05, 0), (2.0, 1)])
def test_an_answer_that_its_site_had_no_time_to_tell_is_excused(lived: float, found: int) -> None:
    scene = Scene()
    payload = scene.publish(1)
    scene.deliver(payload)
    scene.after(lived)
    scene.site_dies("b")
    again(scene, "c", payload)
    assert len(scene.judge()[0]) == found


def test_so_is_one_that_a_site_out_of_reach_did_not_hear() -> None:
    scene = Scene()
    payload = scene.publish(1)
    scene.link("b", "c", False)
    scene.deliver(payload)
    scene.after(4.0)
    scene.site_dies("b")
    again(scene, "a", payload)
    broken, allowed = scene.judge()
    assert not broken
    assert list(allowed) == ["doubled: its site died before others heard of the answer"]
