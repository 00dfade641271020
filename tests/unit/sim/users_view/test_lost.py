"""What was acknowledged arrives, at who wanted it all the time."""

from __future__ import annotations

from tests.unit.sim.users_view.scene import Scene


def test_what_a_subscriber_never_got_is_lost() -> None:
    scene = Scene()
    scene.publish(1)
    scene.after(10.0)
    broken, _ = scene.judge()
    assert broken == ["b'p:1' (t) never reached s (t, since it subscribed at b)"]


def test_what_was_not_acknowledged_is_not() -> None:
    scene = Scene()
    scene.history.made(scene.publisher, b"p:1", "t", 1, False)
    scene.history.sent(scene.publisher, b"p:1")
    assert scene.judge() == ([], {})


def test_what_a_subscriber_withdrew_is_not() -> None:
    scene = Scene()
    scene.publish(1)
    scene.history.unsubscribing(scene.subscriber, "t")
    assert scene.judge() == ([], {})


def test_what_was_for_a_clean_session_is_not_if_that_ended_by_itself() -> None:
    scene = Scene(persistent=False)
    scene.publish(1)
    scene.disconnect()
    assert scene.judge() == ([], {})


def test_what_was_for_a_clean_session_is_lost_if_that_ended_with_its_site() -> None:
    scene = Scene(persistent=False)
    scene.site_dies("b")
    scene.disconnect()
    scene.after(4.0)
    scene.publish(1)
    scene.after(4.0)
    scene.connect(scene.subscriber, "c")
    scene.subscribe()
    scene.after(10.0)
    assert len(scene.judge()[0]) == 1


def test_one_death_excuses_nothing_and_two_at_once_do() -> None:
    for deaths, found in (("a", 1), ("ab", 0)):
        scene = Scene()
        scene.publish(1)
        scene.after(0.01)
        for site in deaths:
            scene.site_dies(site)
        scene.after(10.0)
        broken, allowed = scene.judge()
        assert len(broken) == found
        assert sum(allowed.values()) == 1 - found


def test_deaths_after_it_should_have_come_excuse_nothing() -> None:
    scene = Scene()
    scene.publish(1)
    scene.after(2.0)
    for site in "ab":
        scene.site_dies(site)
    assert len(scene.judge()[0]) == 1


def test_a_full_queue_excuses_what_should_have_passed_just_then() -> None:
    for before, found in ((0.0, 0), (1.0, 1)):
        scene = Scene()
        scene.faults.queue_full("a", "b")
        scene.after(before)
        scene.publish(1)
        assert len(scene.judge()[0]) == found
