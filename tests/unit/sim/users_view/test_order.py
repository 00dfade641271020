"""The messages of a publisher come in order, but for who comes while one is on its way."""

from __future__ import annotations

from tests.unit.sim.users_view.scene import Scene


def test_what_comes_behind_a_later_one_is_out_of_order() -> None:
    scene = Scene()
    first, second = scene.publish(1), scene.publish(2)
    scene.deliver(second)
    scene.deliver(first)
    assert scene.judge()[0] == ["s got b'p:1' on t after b'p:2'"]


def test_what_comes_again_has_no_place_in_it() -> None:
    scene = Scene()
    first, second = scene.publish(1), scene.publish(2)
    scene.deliver(first, answer_read=False)
    scene.disconnect()
    scene.connect(scene.subscriber, "b", resumed=True)
    scene.deliver(second)
    scene.deliver(first)
    assert scene.judge() == ([], {})


def test_what_was_kept_out_of_reach_of_who_came_may_come_late() -> None:
    scene = Scene()
    scene.link("a", "c", False)
    first = scene.publish(1)
    scene.site_dies("b")
    scene.disconnect()
    scene.connect(scene.subscriber, "c")
    scene.subscribe()
    second = scene.publish(2)
    scene.deliver(second)
    scene.deliver(first)
    broken, allowed = scene.judge()
    assert not broken
    assert list(allowed) == ["order: kept where its subscriber's site was out of reach"]


def test_not_for_who_was_there_all_the_time() -> None:
    scene = Scene()
    scene.link("a", "b", False)
    first, second = scene.publish(1), scene.publish(2)
    scene.deliver(second)
    scene.deliver(first)
    assert len(scene.judge()[0]) == 1
