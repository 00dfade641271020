"""Scenario files: what they say, and what is wrong with them in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.bench.folder import Times
from brokerweave.bench.scenario import Group, Place, Scenario, from_dict, load_file, times
from brokerweave.errors import ConfigError

TEXT = """
interval = 0.02
times = "paper"
join = "sf"
[[place]]
name = "a"
quota = 0.1
front = "node"
[[place]]
name = "b"
address = "127.0.0.1:1883"
[[clients]]
place = "a"
topic = "t1"
publishers = 10
subscribers = 8
[[clients]]
place = "b"
topic = "t1"
subscribers = 2
[[clients]]
place = "b"
topic = "t2"
publishers = 30
subscribers = 1
[[clients]]
place = "b"
topic = "t6"
publishers = 1
subscribers = 1
latency = true
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_file_says_everything_and_is_called_after_itself(tmp_path: Path) -> None:
    scenario = load_file(written(tmp_path, TEXT))
    assert scenario.name == "mine"
    assert scenario.times == Times(10, 60, 10)
    assert scenario.places[0] == Place("a", quota=0.1, front="node")
    assert scenario.groups[3] == Group("b", "t6", 1, 1, latency=True)
    assert scenario.rate == pytest.approx(2000)


def test_the_sp_ratio_weighs_topics_by_their_publishers_and_leaves_latency_out(tmp_path: Path) -> None:
    scenario = load_file(written(tmp_path, TEXT))
    assert scenario.sp_ratio == pytest.approx((10 * 10 + 30 * 1) / 40)


def test_a_scenario_survives_being_written_down(tmp_path: Path) -> None:
    scenario = load_file(written(tmp_path, TEXT))
    assert from_dict(scenario.to_dict()) == scenario


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("interval =", "intervall ="), "did you mean 'interval'?"),
        (('times = "paper"', 'times = "papers"'), "known: short, paper"),
        (('place = "b"', 'place = "c"'), "no place is called 'c'"),
        (('topic = "t6"', 'topic = "t1"'), "throughput and for latency"),
        (("interval = 0.02", "interval = 0"), "above 0"),
        (("quota = 0.1", "quota = -1"), "quota"),
        (('front = "node"', 'front = "nodes"'), "known: none, node, haproxy"),
        (('front = "node"', 'front = "node"\nway = "pigeon"'), "known: tcp, unix"),
        (('front = "node"', 'broker = "nats"\nfront = "node"\nway = "unix"'), "in front of a mosquitto"),
        (('join = "sf"', 'join = "tree"'), "known: none, pf"),
        (('name = "b"', 'name = "a"'), "two places"),
        (("interval = 0.02", "payload = 8"), "at least 20 bytes"),
        (("[[place]]", "[[place"), "line"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_files_name(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = written(tmp_path, TEXT.replace(*change))
    with pytest.raises(ConfigError) as caught:
        load_file(path)
    assert said in str(caught.value)
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_load_without_anybody_to_hear_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="subscriber"):
        Scenario("x", (Place("a"),), (Group("a", "t", publishers=1), Group("a", "u", subscribers=1)))


def test_times_may_be_written_as_a_sum() -> None:
    assert times("0.5+2+1") == Times(0.5, 2, 1)
    for wrong in ("1+2", "1+2+x", "short+1"):
        with pytest.raises(ConfigError, match="like 1\\+4\\+1"):
            times(wrong)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nothing\.toml: No such file"):
        load_file(tmp_path / "nothing.toml")
