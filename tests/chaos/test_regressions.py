"""Schedules that once found a bug, cut down to what it took; each must hold now."""

from __future__ import annotations

import pytest

from brokerweave.sim.run import Options, run
from brokerweave.sim.schedule import Action

CASES: dict[str, tuple[int, Options, list[Action]]] = {
    "an outbox made while the disk failed stayed without one for good": (
        11415,
        Options("pf", 3),
        [
            Action(0.264, "arrive", ("a-1",)),
            Action(8.741, "move", ("a", 2.42, 0.126)),
            Action(8.866, "disk", ("a", 7.5)),
            Action(17.22, "publish", ("a-1", "a/c", 2, False)),
            Action(17.258, "kill", ("a", 0, 1.04, False)),
        ],
    ),
    "a spilled outbox whose disk failed waited for the next message for ever": (
        108,
        Options("sf", 3, wiring="tree"),
        [
            Action(0.0, "queues", ("b", 600, 4000)),
            Action(0.06, "arrive", ("c-1",)),
            Action(0.079, "arrive", ("a-1",)),
            Action(0.225, "arrive", ("b-1",)),
            Action(0.388, "arrive", ("b-2",)),
            Action(0.582, "subscribe", ("a-1", "+", 1)),
            Action(7.437, "partition", ("a", 8.4)),
            Action(10.075, "publish", ("c-1", "a", 1, False)),
            Action(10.389, "publish", ("b-2", "a", 1, True)),
            Action(17.245, "publish", ("b-1", "a", 1, False)),
            Action(17.842, "disk", ("b", 3.33)),
        ],
    ),
    "a neighbour's question about retained messages was dropped at first contact": (
        168,
        Options("pf", 3, wiring="tree"),
        [
            Action(0.485, "arrive", ("a-2",)),
            Action(4.805, "publish", ("a-2", "b", 0, True)),
            Action(10.635, "move", ("a", 2.43, 0.424)),
            Action(10.659, "publish", ("a-2", "a/b", 2, True)),
            Action(11.716, "kill", ("c", 0, 3.98, True)),
        ],
    ),
    "what changed while the disk failed was not made up for when it answered again": (
        606,
        Options("pf", 3, wiring="tree"),
        [
            Action(7.495, "disk", ("b", 5.93)),
            Action(10.376, "move", ("b", 3.06, 0.614)),
            Action(15.066, "kill", ("b", 2, 2.55, False)),
        ],
    ),
    "what an outbox had dropped for want of room came back after a kill, behind later messages": (
        2,
        Options("pf", 2),
        [
            Action(0.0, "queues", ("a", 600, 0)),
            Action(0.1, "arrive", ("a-1",)),
            Action(0.1, "arrive", ("b-1",)),
            Action(0.5, "subscribe", ("b-1", "a", 1)),
            Action(4.0, "partition", ("b", 4.0)),
            *[Action(5.0, "publish", ("a-1", "a", 1, False))] * 12,
            Action(14.0, "publish", ("a-1", "a", 1, False)),
            Action(14.03, "kill", ("a", 0, 1.0, False)),
        ],
    ),
    "a client that left before the broker's acknowledgement left a message retained at its own site only": (
        186,
        Options("sf", 3),
        [
            Action(0.071, "arrive", ("b-1",)),
            Action(18.212, "freeze", ("b", 2.92)),
            Action(18.358, "publish", ("b-1", "b", 2, True)),
            Action(19.344, "leave", ("b-1",)),
        ],
    ),
    "a neighbour that came back with another disk was sent a QoS 0 message again": (
        114,
        Options("sf", 3),
        [
            Action(0.0815, "arrive", ("b-2",)),
            Action(0.1179, "arrive", ("c-2",)),
            Action(0.4493, "subscribe", ("b-2", "a/#", 2)),
            Action(0.477, "arrive", ("c-1",)),
            Action(5.7286, "publish", ("c-2", "a/b", 1, False)),
            Action(5.7889, "publish", ("c-1", "a/b", 0, False)),
            Action(5.8509, "kill", ("b", 0, 1.7054, True)),
        ],
    ),
    "two connections at once with a neighbour that had lost its disk changed the numbers of what was sent": (
        10039,
        Options("pf", 4),
        [
            Action(0.226, "arrive", ("b-2",)),
            Action(0.444, "arrive", ("c-1",)),
            Action(14.786, "broker", ("a", True, 0.858)),
            Action(15.572, "kill", ("b", 0, 1.132, True)),
            Action(15.966, "publish", ("c-1", "b/c", 0, False)),
            Action(16.412, "publish", ("b-2", "a", 2, False)),
        ],
    ),
    "a repair of the retained index was taken for the message that had been dropped before it": (
        233,
        Options("pf", 3),
        [
            Action(0.0, "queues", ("c", 600, 0)),
            Action(0.004, "arrive", ("c-2",)),
            Action(0.037, "arrive", ("a-2",)),
            Action(0.493, "arrive", ("a-1",)),
            Action(1.479, "subscribe", ("a-1", "a/b/c", 2)),
            Action(6.473, "partition", ("a", 7.57)),
            *[Action(8.071, "publish", ("c-2", "a/b/c", 2, True))] * 3,
            Action(16.063, "publish", ("a-2", "a/b/c", 1, True)),
        ],
    ),
    "a slow answer to a client's earlier connection took the session from its later one": (
        5,
        Options("sf", 2),
        [
            Action(0.1, "arrive", ("a-1",)),
            Action(1.0, "subscribe", ("a-1", "b", 1)),
            Action(4.0, "delay", ("a", "a/broker", 0.5, 0.0, 0.0, 3.75)),
            Action(5.9, "drop", ("a-1",)),
            Action(7.0, "roam", ("a-1",)),
        ],
    ),
    "a disk that answered only after the start made what was in flight to the broker new messages": (
        12039,
        Options("pf", 3),
        [
            Action(0.005, "arrive", ("b-2",)),
            Action(5.212, "delay", ("c", "c/broker", 0.31, 0.0, 0.0, 3.0)),
            Action(6.003, "publish", ("b-2", "b/c", 2, False)),
            Action(6.664, "stop", ("c", 2.06)),
            Action(8.021, "disk", ("c", 4.39)),
        ],
    ),
    "the same for a message that was over but for its PUBCOMP, at the third start": (
        10760,
        Options("pf", 3),
        [
            Action(0.47, "arrive", ("a-2",)),
            Action(5.466, "delay", ("b", "b/broker", 0.234, 0.0, 0.0, 3.0)),
            Action(5.838, "publish", ("a-2", "b/c", 2, False)),
            Action(6.707, "kill", ("b", 0, 3.8, False)),
            Action(6.816, "broker", ("b", True, 4.18)),
            Action(10.889, "stop", ("b", 3.79)),
            Action(12.017, "disk", ("b", 4.87)),
        ],
    ),
    "a restart may double each of the copies that a publisher made of a QoS 1 message, not only one": (
        10259,
        Options("pf", 3),
        [
            Action(0.493, "arrive", ("b-2",)),
            Action(5.569, "delay", ("b", "b/broker", 0.233, 0.0, 0.0, 3.0)),
            Action(6.084, "kill", ("a", 0, 1.19, True)),
            Action(7.093, "publish", ("b-2", "a", 1, False)),
            Action(7.255, "kill", ("b", 0, 1.79, False)),
            Action(8.666, "freeze", ("a", 1.64)),
            Action(9.713, "delay", ("a", "a/broker", 0.486, 0.0, 0.0, 3.0)),
            Action(11.004, "kill", ("a", 0, 3.92, False)),
        ],
    ),
    "a node without its disk read how far it had got, as it was before the disk failed, and doubled QoS 0": (
        12065,
        Options("pf", 3),
        [
            Action(0.434, "arrive", ("c-1",)),
            Action(2.066, "publish", ("c-2", "a/c", 1, False)),
            Action(3.656, "stop", ("b", 0.994)),
            Action(3.677, "arrive", ("c-2",)),
            Action(5.844, "delay", ("b", "c", 0.132, 0.0775, 2_000.0, 6.87)),
            Action(8.591, "publish", ("c-2", "a", 2, False)),
            Action(8.754, "publish", ("c-1", "a/c", 0, False)),
            Action(8.905, "disk", ("b", 7.71)),
            Action(9.194, "kill", ("b", 0, 0.228, False)),
            Action(11.76, "kill", ("a", 0, 0.242, False)),
        ],
    ),
    "what was moved away from a lane while its neighbour called was missed as a gap": (
        3,
        Options("sf", 4, wiring="ring"),
        [
            Action(0.062, "subscribe", ("a-1", "#", 2)),
            Action(0.083, "arrive", ("d-1",)),
            Action(0.352, "arrive", ("a-1",)),
            Action(0.425, "arrive", ("b-1",)),
            Action(0.669, "subscribe", ("d-1", "a/+", 2)),
            Action(5.557, "kill", ("b", 0, 2.010927524378967, False)),
            Action(5.683, "publish", ("b-1", "a/c", 1, False)),
            Action(6.888, "publish", ("a-1", "b/c", 2, False)),
            Action(7.135, "delay", ("c", "b", 0.02188847947340138, 0.09968952431016316, 2000.0, 2.1656)),
            Action(15.163, "stop", ("a", 2.9697264050368566)),
            Action(15.494, "drop", ("d-1",)),
        ],
    ),
    "what an outbox had on disk only did not go another way when the tree changed and its link returned": (
        320,
        Options("sf", 4, wiring="ring"),
        [
            Action(0.0, "queues", ("d", 1500, 1000)),
            Action(0.199, "arrive", ("b-1",)),
            Action(0.403, "arrive", ("d-1",)),
            Action(0.47, "arrive", ("a-2",)),
            Action(0.475, "arrive", ("c-2",)),
            Action(1.32, "subscribe", ("b-1", "a/#", 1)),
            Action(1.409, "subscribe", ("c-2", "+/c", 2)),
            Action(4.631, "freeze", ("c", 3.25)),
            *[Action(5.435, "publish", ("a-2", "b/c", 1, False))] * 3,
            Action(7.187, "delay", ("b", "c", 0.646, 0.637, 20000.0, 3.09)),
            *[Action(7.233, "publish", ("d-1", "a/b/c", 2, False))] * 3,
        ],
    ),
    "what a node killed before its index was written had seen was missing in the index for good": (
        15516,
        Options("sf", 3),
        [
            Action(0.171, "arrive", ("b-2",)),
            Action(8.45, "broker", ("b", True, 3.143)),
            *[Action(9.585, "publish", ("b-2", "b", 1, True))] * 2,
            Action(10.204, "kill", ("a", 2, 1.622, False)),
            Action(13.762, "partition", ("b", 3.829)),
            Action(17.302, "kill", ("b", 0, 2.285, True)),
        ],
    ),
    "what was told of nodes after a long cut was forgotten before it was told how they are reached": (
        46,
        Options("sf", 5, cycles=True),
        [
            Action(17.025, "kill", ("a", 0, 2.818, False)),
            Action(18.649, "partition", ("d", 4.58)),
            Action(18.79, "skew", ("d", 701.2, 0.914)),
        ],
    ),
    "two nodes compared what they retain before either would pass on to the other what came after that": (
        111,
        Options("sf", 4, cycles=True),
        [
            Action(0.357, "arrive", ("c-1",)),
            Action(15.104, "move", ("c", 3.7975, 0.8866)),
            Action(15.698, "publish", ("c-1", "b", 2, True)),
            Action(17.057, "stop", ("a", 2.1455)),
        ],
    ),
    "a repair of the retained index was taken for what comes once more, and kept from a link that joined": (
        111,
        Options("sf", 4, cycles=True),
        [
            Action(0.357, "arrive", ("c-1",)),
            Action(15.104, "move", ("c", 3.7975, 0.8866)),
            Action(15.698, "publish", ("c-1", "b", 2, True)),
            Action(17.057, "stop", ("a", 2.1455)),
            Action(17.832, "freeze", ("c", 1.355)),
        ],
    ),
    "what waited for a link that returned went to everybody, behind later messages": (
        106,
        Options("sf", 3, cycles=True),
        [
            Action(14.888, "publish", ("a-2", "a/b", 1, False)),
            Action(14.936, "kill", ("b", 0, 2.3, True)),
            Action(16.026, "subscribe", ("c-2", "#", 1)),
            Action(17.262, "delay", ("a", "b", 0.437, 0.739, 0.0, 3.17)),
            Action(19.516, "publish", ("a-2", "a/b", 1, True)),
        ],
    ),
    "a link was counted on by what its other end had said before it failed": (
        106,
        Options("sf", 3, cycles=True),
        [
            Action(0.114, "arrive", ("a-1",)),
            Action(0.276, "arrive", ("c-2",)),
            Action(0.331, "arrive", ("b-2",)),
            Action(7.702, "subscribe", ("b-2", "+/c", 2)),
            Action(8.261, "stop", ("c", 3.069)),
            Action(11.151, "kill", ("a", 0, 3.527, False)),
            Action(14.52, "publish", ("a-1", "b/c", 1, False)),
            Action(14.936, "kill", ("b", 0, 2.299, True)),
            Action(16.026, "subscribe", ("c-2", "#", 1)),
            Action(16.235, "publish", ("a-1", "b/c", 1, False)),
        ],
    ),
    "what came by another way from a node started twice since was refused for its age": (
        10001,
        Options("sf", 4, wiring="any", cycles=True),
        [
            Action(0.008, "arrive", ("b-2",)),
            Action(0.025, "arrive", ("a-2",)),
            Action(1.029, "subscribe", ("b-2", "b/c", 2)),
            Action(11.301, "freeze", ("b", 3.045)),
            Action(13.308, "move", ("a", 3.941, 0.0393)),
            Action(13.313, "publish", ("a-1", "a/b/c", 2, True)),
            Action(13.627, "publish", ("a-2", "b/c", 1, False)),
            Action(13.899, "link", ("b", "c", 5.343)),
            Action(15.406, "kill", ("a", 0, 2.152, False)),
            Action(16.474, "publish", ("a-2", "b/c", 2, False)),
            Action(18.288, "stop", ("a", 0.6836)),
        ],
    ),
    "a node waited for the acknowledgement of what its outbox had dropped, and the tree never settled": (
        10412,
        Options("pf", 4, wiring="any"),
        [
            Action(0.356, "arrive", ("b-1",)),
            Action(0.379, "arrive", ("b-2",)),
            Action(0.424, "arrive", ("d-2",)),
            Action(0.435, "arrive", ("a-2",)),
            Action(4.001, "kill", ("d", 0, 0.84, False)),
            Action(4.741, "kill", ("a", 0, 0.461, True)),
            Action(5.163, "publish", ("b-1", "a", 2, False)),
            Action(10.385, "publish", ("a-2", "b", 2, True)),
            Action(11.047, "publish", ("a-2", "a", 2, False)),
            Action(11.173, "publish", ("b-1", "b/c", 1, False)),
            Action(11.494, "publish", ("d-2", "a/c", 0, True)),
            Action(11.914, "publish", ("b-2", "a/b", 0, True)),
            Action(13.665, "publish", ("b-2", "b/c", 2, False)),
            Action(17.341, "cut", ("b", "links", True)),
            Action(17.772, "publish", ("b-1", "b/c", 0, False)),
        ],
    ),
    "a retained QoS 0 message that came as a flood came itself, too, when a newer one had taken its place": (
        10691,
        Options("pf", 4, wiring="any"),
        [
            Action(0.06, "arrive", ("d-1",)),
            Action(17.585, "freeze", ("a", 5.481)),
            *[Action(18.547, "publish", ("d-1", "a/b/c", 0, True))] * 2,
            Action(18.791, "kill", ("b", 0, 0.873, True)),
        ],
    ),
    "the same for one that a node had passed on without the retain flag": (
        10794,
        Options("sf", 4, wiring="any"),
        [
            Action(4.721, "subscribe", ("b-1", "#", 2)),
            Action(5.506, "stop", ("d", 2.91)),
            Action(5.921, "stop", ("a", 3.51)),
            Action(9.828, "arrive", ("c-2",)),
            Action(10.917, "partition", ("d", 6.62)),
            Action(14.537, "publish", ("c-2", "a", 0, True)),
            Action(15.743, "kill", ("b", 0, 1.74, True)),
            Action(18.256, "cut", ("c", "links", False)),
            Action(18.59, "delete", ("a-2", "a", 1)),
        ],
    ),
    "what a link that joined was given was taken for what others had got while it stood by": (
        10831,
        Options("pf", 4, wiring="any"),
        [
            Action(0.11, "arrive", ("a-2",)),
            Action(0.171, "arrive", ("b-2",)),
            Action(0.317, "subscribe", ("d-1", "+/c", 2)),
            Action(0.377, "arrive", ("d-1",)),
            Action(2.266, "publish", ("a-2", "a/b/c", 1, True)),
            Action(4.762, "freeze", ("d", 2.413)),
            Action(5.13, "publish", ("b-2", "a/c", 2, False)),
            Action(8.898, "partition", ("a", 3.083)),
            Action(14.776, "partition", ("c", 2.584)),
            Action(15.328, "stop", ("c", 3.061)),
            *[Action(15.434, "publish", ("a-2", "a/c", 2, True))] * 2,
        ],
    ),
}

FALSE_ALARMS: dict[str, tuple[int, Options, list[Action]]] = {
    "an operator gave up removing a link when the first of its nodes was killed at it": (
        10148,
        Options("pf", 3),
        [
            Action(17.059, "partition", ("b", 9.79)),
            Action(17.635, "kill", ("c", 5, 3.02, False)),
            Action(18.182, "move", ("c", 0.509, 0.301)),
        ],
    ),
    "a QoS 2 message read before there was a link was promised when its publisher sent it again": (
        10402,
        Options("pf", 3),
        [
            Action(0.064, "arrive", ("c-1",)),
            Action(0.315, "arrive", ("b-2",)),
            Action(1.057, "subscribe", ("c-1", "+/c", 2)),
            Action(8.295, "freeze", ("b", 4.867)),
            Action(9.528, "move", ("a", 3.524, 0.483)),
            Action(11.916, "broker", ("b", True, 0.681)),
            Action(12.14, "publish", ("b-2", "b/c", 2, False)),
        ],
    ),
    "a message sent again to a node without its disk stayed promised, in cluster delivery": (
        10772,
        Options("pf", 3),
        [
            Action(0.253, "arrive", ("c-1",)),
            Action(0.343, "arrive", ("a-2",)),
            Action(2.676, "subscribe", ("c-1", "a/b", 2)),
            Action(9.414, "move", ("b", 2.01, 0.832)),
            Action(16.241, "kill", ("a", 1, 3.53, False)),
            Action(16.271, "publish", ("a-2", "a/b", 2, False)),
            Action(16.917, "kill", ("a", 0, 1.134, True)),
        ],
    ),
    "a message doubled by a failing disk was late for a client that was not there the first time": (
        11777,
        Options("pf", 3),
        [
            Action(0.214, "arrive", ("a-1",)),
            Action(0.262, "arrive", ("b-1",)),
            Action(1.177, "subscribe", ("b-1", "+", 2)),
            Action(3.216, "broker", ("b", False, 4.356)),
            Action(4.549, "publish", ("a-1", "b", 2, False)),
            Action(7.425, "disk", ("b", 5.545)),
            Action(8.98, "publish", ("a-1", "b", 2, False)),
            Action(11.881, "stop", ("b", 1.849)),
        ],
    ),
    "a node killed before it wrote down a message that came again was taken to have written it": (
        15045,
        Options("pf", 5),
        [
            Action(0.354, "arrive", ("e-2",)),
            Action(0.398, "arrive", ("e-1",)),
            Action(0.411, "arrive", ("d-1",)),
            Action(10.658, "delay", ("d", "d/broker", 0.564, 0.0, 0.0, 3.0)),
            Action(11.752, "publish", ("d-1", "a/b/c", 1, False)),
            Action(12.453, "kill", ("d", 0, 2.942, False)),
            Action(12.583, "publish", ("e-1", "a", 2, False)),
            Action(13.15, "publish", ("e-1", "b/c", 1, False)),
            *[Action(13.53, "publish", ("e-2", "b/c", 2, False))] * 3,
            Action(13.568, "kill", ("b", 11, 2.826, False)),
        ],
    ),
    "two operators moved their nodes at once and left a third one alone, where cycles are taken care of": (
        102,
        Options("pf", 4, cycles=True),
        [
            Action(11.466, "move", ("a", 2.89, 0.1545)),
            Action(13.612, "move", ("b", 4.619, 0.8925)),
        ],
    ),
    "a QoS 2 message that its broker had before was promised to who subscribed there later": (
        10226,
        Options("sf", 4),
        [
            Action(0.239, "arrive", ("a-1",)),
            Action(0.27, "arrive", ("c-2",)),
            Action(0.279, "arrive", ("a-2",)),
            Action(0.496, "subscribe", ("c-2", "a/#", 2)),
            Action(0.916, "subscribe", ("a-2", "+/c", 1)),
            Action(13.581, "delay", ("a", "a/broker", 0.5495, 0.0, 0.0, 3.0)),
            Action(14.298, "publish", ("a-1", "a/c", 2, False)),
            Action(15.07, "kill", ("a", 0, 0.897, False)),
        ],
    ),
    "a session that its node had lost with its disk was promised what another client there asked for": (
        10588,
        Options("sf", 3),
        [
            Action(0.087, "subscribe", ("b-2", "+/c", 2)),
            Action(0.178, "arrive", ("a-1",)),
            Action(0.252, "arrive", ("b-1",)),
            Action(0.348, "arrive", ("b-2",)),
            Action(0.525, "subscribe", ("b-1", "+/c", 1)),
            Action(0.831, "subscribe", ("a-1", "+/c", 0)),
            Action(10.744, "leave", ("b-1",)),
            Action(11.641, "kill", ("b", 0, 0.246, True)),
            Action(12.749, "publish", ("c-2", "a/c", 2, False)),
            Action(12.835, "leave", ("b-2",)),
        ],
    ),
}
"""What once was taken for a broken promise, and was none."""


@pytest.mark.parametrize("name", CASES)
def test_a_bug_once_found_does_not_return(name: str) -> None:
    seed, options, actions = CASES[name]
    assert run(seed, options, actions).problem == ""


@pytest.mark.parametrize("name", FALSE_ALARMS)
def test_what_breaks_no_promise_is_not_said_to(name: str) -> None:
    seed, options, actions = FALSE_ALARMS[name]
    assert run(seed, options, actions).problem == ""
