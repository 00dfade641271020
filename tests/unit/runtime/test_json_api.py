"""The API's token; the other refusals are tested with a real controller."""

from __future__ import annotations

import asyncio

import pytest

from brokerweave.config import Address
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.runtime import api_client
from brokerweave.runtime.json_api import JsonApi

TOKEN = b"a token of some length"


async def served(token: bytes | None) -> JsonApi:
    def fail(request: object) -> object:
        raise Unavailable("not now")

    api = JsonApi({"/asked": lambda request: {"got": dict(request)}, "/fails": fail}, {"/told": dict}, token)
    await api.start(Address("127.0.0.1", 0))
    return api


async def test_what_is_asked_and_told_is_answered() -> None:
    api = await served(None)
    assert await asyncio.to_thread(api_client.ask, api.address, "/asked?x=1&y") == {
        "got": {"x": "1", "y": ""}
    }
    assert await asyncio.to_thread(api_client.ask, api.address, "/told", {"z": 2}) == {"z": 2}
    with pytest.raises(BrokerweaveError, match="not now"):
        await asyncio.to_thread(api_client.ask, api.address, "/fails")
    api.close()


async def test_with_a_token_nothing_is_answered_without_it() -> None:
    api = await served(TOKEN)
    for wrong in (None, b"another", TOKEN[:-1]):
        with pytest.raises(ConfigError, match="the token is missing or wrong"):
            await asyncio.to_thread(api_client.ask, api.address, "/asked", None, wrong)
    assert await asyncio.to_thread(api_client.ask, api.address, "/asked", None, TOKEN) == {"got": {}}
    api.close()


async def test_what_does_not_answer_or_is_something_else_is_said() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    address = Address(*server.sockets[0].getsockname())
    with pytest.raises(Unavailable, match="no brokerweave controller"):
        await asyncio.to_thread(api_client.ask, address, "/asked")
    server.close()
    await server.wait_closed()
    with pytest.raises(Unavailable, match="no controller answers"):
        await asyncio.to_thread(api_client.ask, address, "/asked")
