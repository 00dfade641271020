"""What a gateway is told, and what it says of what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.config import Address
from brokerweave.config.gateway import load
from brokerweave.config.gateway_reference import gateway_reference
from brokerweave.errors import ConfigError
from tests.unit.test_layers import ROOT

SITES = '[[site]]\nname = "a"\nclients = "h:1883"\nmonitor = "h:7910"\nbare = true\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "gateway.toml"
    file.write_text(text)
    return file


def test_flags_win_over_the_file_and_sites_replace_those_of_the_same_name(tmp_path: Path) -> None:
    file = write(tmp_path, f'[gateway]\nid = "g1"\n[moves]\ntimeout = 3\n[limits]\ndrain = 1\n{SITES}')
    config = load(file, {"gateway.id": "g9", "site": ["b=x:1,x:2"], "moves.procedure": "emma"})
    assert (config.gateway.id, config.moves.timeout, config.moves.procedure) == ("g9", 3.0, "emma")
    assert config.limits.drain == 1
    assert [(site.name, site.clients, site.monitor, site.bare) for site in config.sites] == [
        ("a", Address("h", 1883), Address("h", 7910), True),
        ("b", Address("x", 1), Address("x", 2), False),
    ]
    assert config.sources["gateway.id"] == "--id"
    assert config.admin_socket.name == "g9.gateway"


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        ("", {}, "no site is known"),
        ("", {"gateway.controller": ["h:7900"]}, "needs the 'key_file'"),
        ("", {"site": ["a"]}, "--site should be NAME=HOST:PORT"),
        ("", {"site": ["a=h:1", "a=h:2"]}, "--site gives 'a' twice"),
        ("", {"site": ["a=h:1"], "gateway.key_file": "/nowhere"}, "cannot be read"),
        (SITES + SITES, {}, "twice"),
        ("[gateway]\nlisten_on = 1\n", {}, "unknown key 'listen_on'"),
        ("[moves]\nprocedure = 'fast'\n", {}, '"planned", "emma"'),
        ('[[site]]\nname = "a"\n', {}, "has no 'clients'"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    tmp_path: Path, text: str, flags: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(write(tmp_path, text), flags)
    assert "\n" not in str(caught.value)


def test_the_reference_page_is_what_the_keys_say() -> None:
    assert (ROOT / "docs" / "gateway.md").read_text() == gateway_reference(), "run: make docs"
