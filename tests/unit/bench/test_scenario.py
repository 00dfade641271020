"""Scenario files: what they say, and what is wrong with them in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.bench.folder import Times
from brokerweave.bench.scenario import ClientGroup, Place, Scenario, from_dict, load_file, times
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
    assert scenario.groups[3] == ClientGroup("b", "t6", 1, 1, latency=True)
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
        (('front = "node"', 'front = "haproxy"'), "without a node"),
        (('front = "node"', 'front = "node"\nway = "pigeon"'), "known: tcp, unix"),
        (('front = "node"', 'broker = "nats"\nfront = "node"\nway = "unix"'), "in front of a mosquitto"),
        (('join = "sf"', 'join = "tree"'), "or none, bridges"),
        (('name = "b"', 'name = "a"'), "two places"),
        (("interval = 0.02", "payload = 8"), "at least 20 bytes"),
        (("[[place]]", "[[place"), "line"),
        (("interval = 0.02", 'interval = "x"'), "interval is a number, not 'x'"),
        (("interval = 0.02", "interval = nan"), "intervals must be above 0"),
        (("interval = 0.02", "interval = 1e-300"), "intervals must be above 0"),
        (("interval = 0.02", "tick = -1"), "tick from 0"),
        (("interval = 0.02", "qos = true"), "qos is a whole number, not True"),
        (("interval = 0.02", "payload = 2_000_000"), "at most 1,000,000"),
        (("interval = 0.02", "workers = 1_000"), "at most 64"),
        (("interval = 0.02", "bandwidth = -1"), "Mbit/s, from 0.01"),
        (("interval = 0.02", "place = 3"), "line"),
        (('times = "paper"', "times = [1, 4, 1]"), "not like 1+4+1"),
        (('times = "paper"', 'times = "nan+1+1"'), "not be below 0"),
        (('times = "paper"', 'times = "1+inf+1"'), "measured time"),
        (('times = "paper"', 'times = {warm_up = "a"}'), "warm_up is a number"),
        (("publishers = 10", "publishers = -10"), "at least 0"),
        (("publishers = 10", "publishers = 1_000_000_000"), "at most 50,000"),
        (("publishers = 10", "publishers = 2.5"), "clients: publishers is a whole number"),
        (('topic = "t2"', 'topic = "t/#"'), "without + and #"),
        (('topic = "t2"', 'topic = ""'), "without + and #"),
        (("quota = 0.1", "quota = 1e-9"), "at least 0.001"),
        (('front = "node"', 'broker = "mosquito"'), "no broker is called 'mosquito'"),
        (('front = "node"', 'address = "127.0.0.1"'), "HOST:PORT"),
        (('front = "node"', 'address = "127.0.0.1:1883"'), "without an address"),
        (('[[clients]]\nplace = "a"', '[[client]]\nplace = "a"'), "did you mean 'clients'?"),
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
        Scenario(
            "x", (Place("a"),), (ClientGroup("a", "t", publishers=1), ClientGroup("a", "u", subscribers=1))
        )


def test_times_may_be_written_as_a_sum() -> None:
    assert times("0.5+2+1") == Times(0.5, 2, 1)
    for wrong in ("1+2", "1+2+x", "short+1"):
        with pytest.raises(ConfigError, match="like 1\\+4\\+1"):
            times(wrong)


@pytest.mark.parametrize("table", ['place = "a"', "place = [1]", '[place]\nname = "a"'])
def test_a_place_that_is_not_a_list_of_tables_is_one_line(tmp_path: Path, table: str) -> None:
    with pytest.raises(ConfigError, match=r"below a line \[\[place\]\]"):
        load_file(written(tmp_path, table))


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match=r"mine\.toml"):
        load_file(path)


def test_only_what_is_started_here_can_be_killed(tmp_path: Path) -> None:
    places = '[[place]]\nname = "a"\n[[place]]\nname = "b"\naddress = "127.0.0.1:1"\n'
    clients = '[[clients]]\nplace = "a"\ntopic = "t"\npublishers = 1\nsubscribers = 1\n'
    qos = "qos = 1\nsubscriber_qos = 1\n"
    with pytest.raises(ConfigError, match="started here"):
        load_file(written(tmp_path, qos + places + clients + '[[kill]]\nplace = "b"\nat = 1\n'))


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nothing\.toml: No such file"):
        load_file(tmp_path / "nothing.toml")
