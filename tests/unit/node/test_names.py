"""Who decides that a publication gets a name, and under which key its stamp is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.config import load
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, PubAck, Publish
from brokerweave.node.core import NodeCore
from brokerweave.runtime.node import Node
from brokerweave.session.pair import Pair
from tests.unit.care.mesh_sites import mesh_of
from tests.unit.node.network import Network

PUBLISH = Publish("t", b"1", 1, packet_id=7)
PASSES = BrokerAbilities(version=5, user_properties=True)


def opened(core: NodeCore) -> Pair:
    pair = core.new_pair()
    pair.from_client(codec.encode(Connect("c", 5), 5))
    pair.from_broker(codec.encode(ConnAck(), 5))
    return pair


def sent(pair: Pair) -> bytes:
    return pair.from_client(codec.encode(PUBLISH, 5))


@pytest.mark.parametrize("abilities", [PASSES, BrokerAbilities(version=5)])
def test_a_name_is_given_only_if_the_broker_passes_user_properties(
    monkeypatch: pytest.MonkeyPatch, abilities: BrokerAbilities
) -> None:
    core = mesh_of("ab").nodes["a"].core
    core.injectors[0].learn(abilities)
    monkeypatch.setattr(core.care, "publication_name", lambda pair, publish: b"its name")
    plain = codec.encode(PUBLISH, 5)
    stamped = core.stamps.stamp(plain, b"its name")
    assert sent(opened(core)) == (stamped if abilities is PASSES else plain)


def test_in_a_mesh_each_publication_has_a_name_of_its_own() -> None:
    core = mesh_of("ab").nodes["a"].core
    core.injectors[0].learn(PASSES)
    pair, names = opened(core), set()
    for _ in range(3):
        plain, name = core.stamps.take_off(sent(pair))
        assert plain == codec.encode(PUBLISH, 5)
        assert pair.from_broker(codec.encode(PubAck(7), 5)) == codec.encode(PubAck(7), 5)
        names.add(name)
    assert len(names) == 3
    assert None not in names


def test_without_a_site_book_a_stamp_is_nobodys_business() -> None:
    network = Network()
    network.add("a")
    core = network.nodes["a"].core
    core.injectors[0].learn(PASSES)
    pair = opened(core)
    assert sent(pair) == codec.encode(PUBLISH, 5)
    stamped = core.stamps.stamp(codec.encode(PUBLISH, 5), b"its name")
    assert pair.from_broker(stamped) is stamped


def test_nodes_of_one_key_know_each_others_stamps_and_nobody_elses(tmp_path: Path) -> None:
    keys = []
    for number, key in enumerate(["one key of all nodes", "one key of all nodes", "the key of others"]):
        file = tmp_path / str(number)
        file.write_text(key)
        own = {"node.id": f"n{number}", "node.listen": "127.0.0.1:1883", "node.broker": "127.0.0.1:1884"}
        keys.append(Node(load(None, own | {"node.key_file": str(file)}))._stamp_key())
    assert keys[0] == keys[1] != keys[2]
    assert b"one key of all nodes" not in keys
    without = load(None, {"node.id": "n", "node.listen": "127.0.0.1:1883", "node.broker": "127.0.0.1:1884"})
    assert Node(without)._stamp_key() == b""
