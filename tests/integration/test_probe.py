"""The probe finds what is known of real brokers, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from brokerweave import lab
from brokerweave.config import Address
from brokerweave.errors import Unavailable
from brokerweave.mqtt.packets import Publish
from brokerweave.runtime.client import Client, ConnectRefused
from brokerweave.runtime.probe import Abilities, probe, probe_essentials, rows
from tests.support.raw import FakeBroker
from tests.support.sites import QUICK, merged, network, start_broker


def probed(name: str) -> Abilities:
    with start_broker(name) as broker:
        return asyncio.run(probe(Address(broker.host, broker.port)))


def test_mosquitto_can_everything() -> None:
    found = probed("mosquitto")
    assert found.versions == (3, 4, 5)
    assert found.essentials.version == 5
    assert found.essentials.max_qos == 2
    assert found.qos2 == "exactly once"
    assert found.retained_exact
    assert found.retained_wildcard
    assert found.wills
    assert found.shared_subscriptions
    assert found.persistent_sessions
    assert found.session_present
    assert found.no_local
    assert found.retain_as_published
    assert found.essentials.topic_alias_maximum > 0
    assert found.essentials.user_properties
    assert found.odd_topics == ()


def test_rabbitmq_3_has_no_qos_2_no_mqtt_5_and_no_retained_for_wildcards() -> None:
    found = probed("rabbitmq")
    assert found.versions == (3, 4)
    assert found.essentials.max_qos == 1
    assert found.max_qos_subscribe == 1
    assert found.retained_exact
    assert not found.retained_wildcard
    assert found.wills
    assert found.persistent_sessions
    assert found.no_local is None
    assert found.essentials.user_properties is None
    assert dict(found.odd_topics)["dot"] == "arrives as /a/b"


def test_nats_closes_on_qos_2_and_on_topics_with_a_space_or_a_dot() -> None:
    found = probed("nats")
    assert found.versions == (4,)
    assert found.essentials.max_qos == 1
    assert found.qos2 == "closes the connection"
    assert dict(found.odd_topics) == {"space": "closes the connection", "dot": "closes the connection"}


def test_amqtt_speaks_one_version_and_forgets_what_anonymous_clients_missed() -> None:
    found = probed("amqtt")
    assert found.versions == (4,)
    assert found.qos2 == "exactly once"
    assert found.retained_wildcard
    assert not found.persistent_sessions


def test_a_declared_maximum_packet_is_believed() -> None:
    with start_broker("mosquitto", config=["max_packet_size 5000"]) as broker:
        essentials = asyncio.run(probe_essentials(Address(broker.host, broker.port)))
        assert essentials.maximum_packet == 5000


def test_an_undeclared_maximum_packet_is_found_by_trying() -> None:
    with start_broker("mosquitto", config=["message_size_limit 100000"]) as broker:
        found = asyncio.run(probe(Address(broker.host, broker.port)))
        assert not found.maximum_packet_declared
        assert found.maximum_packet == 64 * 1024
        assert ("maximum packet", "at least 65,536 bytes") in rows(found)


@pytest.mark.parametrize("name", ["rabbitmq", "nats", "amqtt"])
def test_a_broker_without_mqtt_5_is_not_asked_for_user_properties(name: str) -> None:
    with start_broker(name) as broker:
        found = asyncio.run(probe_essentials(Address(broker.host, broker.port), user_properties=True))
        assert found.user_properties is None


async def test_no_client_of_everything_sees_the_question_about_user_properties() -> None:
    with start_broker("mosquitto") as broker:
        address = Address(broker.host, broker.port)
        async with await Client.connect(address) as client:
            await client.subscribe("#")
            assert (await probe_essentials(address, user_properties=True)).user_properties is True
            await client.publish("the/end")
            message = await client.message()
            assert message is not None
            assert message.topic == "the/end"


async def test_where_no_dollar_topics_may_be_used_another_is_tried(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite brokerweave-probe/#\n")
    with start_broker("mosquitto", config=[f"acl_file {acl}"]) as broker:
        found = await probe_essentials(Address(broker.host, broker.port), user_properties=True, timeout=0.5)
        assert found.user_properties is True


async def test_a_broker_that_delivers_nothing_passes_no_user_properties(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite nothing/else\n")
    with start_broker("mosquitto", config=[f"acl_file {acl}"]) as broker:
        found = await probe_essentials(Address(broker.host, broker.port), user_properties=True, timeout=0.3)
        assert found.user_properties is False


async def test_a_probe_leaves_no_retained_message_and_no_session() -> None:
    with start_broker("mosquitto", config=["sys_interval 1"]) as broker:
        await probe(Address(broker.host, broker.port))
        async with await Client.connect(Address(broker.host, broker.port)) as client:
            await client.subscribe("brokerweave-probe/#", "/brokerweave-probe/#", "$SYS/broker/clients/total")
            seen: list[Publish] = []
            while not seen or seen[-1].payload != b"1":
                message = await client.message()
                assert message is not None, f"sessions remain: {seen}"
                assert message.topic.startswith("$SYS/")
                seen.append(message)


async def test_credentials_are_used_and_their_refusal_is_told() -> None:
    with start_broker("mosquitto", passwords={"ann": "secret"}) as broker:
        essentials = await probe_essentials(
            Address(broker.host, broker.port), username="ann", password=b"secret"
        )
        assert essentials.version == 5
        with pytest.raises(ConnectRefused):
            await probe_essentials(Address(broker.host, broker.port), username="ann", password=b"wrong")


def test_a_password_that_is_no_text_reaches_the_broker_as_it_is(tmp_path: Path) -> None:
    password_file = tmp_path / "password"
    password_file.write_bytes(b"\xff\xfe secret\n")
    own = {"node": {"broker_username": "node", "broker_password_file": str(password_file)}}
    with (
        FakeBroker() as broker,
        network([], alone=["a"], brokers={"a": broker}, settings=merged(QUICK, own)),
    ):
        assert b"\x00\x09\xff\xfe secret" in broker.heard_from("brokerweave-a-0")


async def test_a_port_where_nobody_listens_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot reach a broker"):
        await probe_essentials(Address("127.0.0.1", lab.free_port()))


async def test_a_server_that_never_answers_is_unavailable() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="no ConnAck"):
            await probe_essentials(Address("127.0.0.1", port), timeout=0.1)
