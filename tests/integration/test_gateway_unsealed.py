"""A gateway and a controller that speak EMMA's own packets: a site is evacuated, and all clients follow."""

from __future__ import annotations

from contextlib import ExitStack

from brokerweave.lab.broker import HOST
from brokerweave.lab.controller import LabController
from brokerweave.lab.gateway import LabGateway
from tests.support.clients import MqttClient
from tests.support.sites import start_all, start_broker
from tests.support.waiting import wait_until

CLIENTS = ("one", "two", "three")


def test_all_clients_of_a_gateway_follow_its_controllers_packets() -> None:
    with ExitStack() as stack:
        brokers = {name: start_broker("mosquitto") for name in "xy"}
        for each in brokers.values():
            stack.callback(each.close)
        sites = tuple({"name": name, "clients": f"{HOST}:{each.port}"} for name, each in brokers.items())
        controller = LabController(
            "c1",
            settings={
                "controller": {"sealed": False},
                "policy": {"name": "brokerweave.placement.emma:EmmaPolicy"},
            },
            sites=sites,
        )
        own = {"sealed": False, "controller": [f"{HOST}:{controller.port}"], "monitor": f"{HOST}:0"}
        gateway = LabGateway("g", settings={"gateway": own}, sites=sites)
        for process in (controller, gateway):
            stack.callback(process.close)
            start_all([process.start])
        wait_until(lambda: gateway.status()["gateway"]["follows"] == f"{HOST}:{controller.port}", "a place")
        clients = [MqttClient(gateway.port, name) for name in CLIENTS]

        def places() -> set[str]:
            return {str(row["site"]) for row in gateway.ask("clients")["clients"]}

        (first,) = places()
        for client in clients:
            client.subscribe("news", 1)
        controller.ask("evacuate", site=first)
        wait_until(lambda: places() == set(brokers) - {first}, "the other site")
        (other,) = places()
        wait_until(lambda: controller.ask("moves")["moves"][0]["outcome"] == "done", "the outcome")
        outside = MqttClient(brokers[other].port, "outside")
        outside.publish("news", b"here", 1)
        for client in clients:
            client.wait_for_payload(b"here")
            assert not client.ended.is_set()
        for client in (*clients, outside):
            client.close()
        assert "Traceback" not in gateway.log_tail(1000)
