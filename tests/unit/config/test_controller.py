"""What a controller is told, and what it says of what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.config import Address
from brokerweave.config.controller import load
from brokerweave.config.controller_reference import controller_reference
from brokerweave.errors import ConfigError
from tests.unit.test_layers import ROOT

SITES = '[[site]]\nname = "a"\nclients = "h:1883"\nmonitor = "h:7910"\nweight = 2\n'
OPEN = "[controller]\nsealed = false\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "controller.toml"
    file.write_text(text)
    return file


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    file = write(
        tmp_path, f'[controller]\nid = "c1"\nkey_file = "key"\nround = 5\n[policy]\ntheta = 0.2\n{SITES}'
    )
    config = load(file, {"controller.id": "c9", "policy.name": "emma", "policy.hold": None})
    assert (config.controller.id, config.controller.round, config.policy.name) == ("c9", 5.0, "emma")
    assert (config.policy.theta, config.policy.hold) == (0.2, 30.0)
    assert config.controller.key_file == tmp_path / "key"
    (site,) = config.sites
    assert (site.name, site.clients, site.monitor, site.weight) == (
        "a",
        Address("h", 1883),
        Address("h", 7910),
        2,
    )
    assert config.sources["controller.id"] == "--id"
    assert config.sources["policy.theta"] == str(file)


def test_sites_may_be_flags_and_replace_those_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, OPEN + SITES)
    config = load(file, {"site": ["a=x:1", "b=[::1]:2,[::1]:3"]})
    assert [(site.name, site.clients, site.monitor) for site in config.sites] == [
        ("a", Address("x", 1), None),
        ("b", Address("::1", 2), Address("::1", 3)),
    ]


def test_who_joins_without_a_bind_is_probed_beside_its_port_for_gateways(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    flags = {"controller.key_file": str(tmp_path / "key"), "membership.join": ["h:7946"]}
    assert load(None, flags).membership.bind == Address("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no site is known", "--site", "--join"]),
        (SITES, ["needs a 'key_file'", "sealed = false"]),
        ("[controler]\n", ["unknown section [controler]", "did you mean [controller]?"]),
        ("[controller]\nlisen = 1\n", ["unknown key 'lisen'", "did you mean 'listen'?"]),
        ("round = 5\n", ["'round' in", "write it under [controller]"]),
        ("controller = 5\n", ["should be a section"]),
        ("site = 5\n", ["should be a list of tables"]),
        ("[[site]]\nnam = 5\n", ["unknown key 'nam' in [[site]]", "did you mean 'name'?"]),
        ("[[site]]\nweight = 5\n", ["a [[site]] of", "has no 'name'"]),
        (OPEN + SITES + SITES, ["site 'a' is twice"]),
        (OPEN + '[[site]]\nname = "a"\n', ["site 'a' has no 'clients'"]),
        (OPEN + "[policy]\nmargin = nan\n" + SITES, ["'margin' in [policy]", "a number from 0 to 10"]),
        (OPEN + '[policy]\nload = "weight"\n' + SITES, ['"connections", "messages", "cpu"']),
        (OPEN + 'listen = "0.0.0.0:7900"\n' + SITES, ["listen on 127.0.0.1"]),
        (OPEN + 'api = "0.0.0.0:7901"\n' + SITES, ["needs an 'api_token_file'"]),
        (OPEN + 'api_token_file = "none"\n' + SITES, ["cannot be read"]),
        (OPEN + '[membership]\njoin = ["h:1"]\n', ["[membership] needs a 'key_file'"]),
    ],
)
def test_what_cannot_be_is_one_clear_line(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {})
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("text", ["a", "a=", "a=h", "=h:1", "a=h:1,", "a=h:1,x", "a b=h:1"])
def test_a_site_that_is_not_written_as_it_should_be_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="--site should be"):
        load(None, {"site": [text]})


def test_the_reference_page_is_what_the_keys_say() -> None:
    assert (ROOT / "docs" / "controller.md").read_text() == controller_reference(), "run: make docs"
