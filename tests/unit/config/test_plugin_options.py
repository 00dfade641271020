"""Options of plug-ins in files and flags: complete, checked, with errors that name the nearest known word."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from brokerweave.config import explain, load
from brokerweave.errors import ConfigError
from brokerweave.plugin import Hop, Listener, Route, Strategy, option

NODE = '[node]\nid = "a"\nlisten = "127.0.0.1:1883"\nbroker = "127.0.0.1:1884"\n'
STAR = f'strategy = "{__name__}:Star"\n'


class Star(Strategy):
    name: ClassVar[str] = "star"
    centre = option("hub", "Which node is in the middle.")
    pause = option(0.5, "How long to wait.", unit="seconds", minimum=0)

    def route(self, topic: str, came_from: str | None) -> Route:
        return Route((Hop(self.centre),))


class Links(Star):
    name: ClassVar[str] = "links"


class Watcher(Listener):
    name: ClassVar[str] = "watcher"
    limit = option(10, "How many.", minimum=1)


class Twin(Listener):
    name: ClassVar[str] = "star"


def test_options_are_complete_and_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    listeners = f'listeners = ["{__name__}:Watcher"]\n'
    file.write_text(f'{NODE}{STAR}{listeners}[star]\ncentre = "b"\npause = 2\n')
    config = load(file, {"set": ["star.centre=c", "watcher.limit = 3"]})
    assert config.options == {"star": {"centre": "c", "pause": 2.0}, "watcher": {"limit": 3}}
    rows = {key: (value, source) for key, value, source in explain(config)}
    assert rows["star.centre"] == ("c", "--set")
    assert rows["star.pause"] == ("2", str(file))
    assert rows["watcher.limit"] == ("3", "--set")


def test_what_is_not_set_has_the_declared_default(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(NODE + STAR)
    config = load(file)
    assert config.options == {"star": {"centre": "hub", "pause": 0.5}}
    assert ("star.pause", "0.5", "default") in list(explain(config))


def test_the_section_of_an_installed_strategy_may_stay_while_another_is_used(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(NODE + "[mesh]\ncopies = 3\n")
    assert load(file).options == {"sf": {}}
    file.write_text(NODE + "[mesh]\ncopies = 0\n")
    with pytest.raises(ConfigError, match=r"'mesh.copies' in .* should be a whole number from 1 to 16"):
        load(file)


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        (STAR + "[star]\ncenter = 1\n", [], r"unknown key 'center' in \[star\] .*did you mean 'centre'"),
        (STAR + "[star]\npause = -1\n", [], r"'star.pause' in \[star\] .* should be a number from 0; not -1"),
        (STAR + "[stra]\npause = 1\n", [], r"unknown section \[stra\] .*did you mean \[star\]"),
        (STAR, ["star.centre"], "--set should be NAME.KEY=VALUE"),
        (STAR, ["centre=b"], "--set should be NAME.KEY=VALUE"),
        (STAR, ["star.pause=soon"], "'star.pause' in --set should be a number from 0; not 'soon'"),
        (STAR, ["star.center=b"], "unknown key 'center' in --set; did you mean 'centre'"),
        (STAR, ["stra.centre=b"], "no strategy or listener is called 'stra'; did you mean 'star'"),
        (STAR, ["links.qos=1"], r"\[links\] has flags of its own"),
        ("", ["sf.window=1"], "unknown key 'window' in --set; sf has no options"),
        (f'strategy = "{__name__}:Links"\n', [], "strategy 'links' is called as a section of the node is"),
        (STAR + f'listeners = ["{__name__}:Twin"]\n', [], "two plug-ins are called 'star'"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_write(
    tmp_path: Path, text: str, settings: list[str], words: str
) -> None:
    file = tmp_path / "a.toml"
    file.write_text(NODE + text)
    with pytest.raises(ConfigError, match=words):
        load(file, {"set": settings or None})
