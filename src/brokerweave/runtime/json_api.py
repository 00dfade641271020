"""A few commands by HTTP, each a JSON object in and one out: what a controller is asked.

Owns the few lines of HTTP around them. Invariants: one request a connection, bounded in bytes, time and
number; a request that changes something is a POST of JSON, which no web page of another origin can send
unasked; with a token nothing is answered without it; a request that fails is answered with one clear line.
Must not know: what the commands do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from brokerweave.config import Address
from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.runtime.binding import bound

MOST_HEAD = 16 * 1024
MOST_BODY = 64 * 1024
IDLE_SECONDS = 10.0
MOST_CALLERS = 32

ApiCommand = Callable[[Mapping[str, object]], object]
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    503: "Service Unavailable",
}


class _Refusal(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class _Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]


class JsonApi:
    def __init__(
        self, asked: Mapping[str, ApiCommand], told: Mapping[str, ApiCommand], token: bytes | None
    ) -> None:
        """`asked`: commands that change nothing (GET), `told`: those that do (POST), by path."""
        self._asked = asked
        self._told = told
        self._token = token
        self._server: asyncio.Server | None = None
        self._callers = 0
        self.address = Address("", 0)

    async def start(self, address: Address) -> None:
        """Raises `Unavailable` if the address cannot be used."""
        serving = asyncio.start_server(self._serve, *address, limit=MOST_HEAD)
        self._server = await bound("api", address, serving)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers += 1
        try:
            if self._callers <= MOST_CALLERS:
                async with asyncio.timeout(IDLE_SECONDS):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # gone, or too slow: this connection ends, nothing else
        finally:
            self._callers -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            request = await _head(reader)
            self._check_token(request)
            return _reply(200, await self._do(request, reader))
        except _Refusal as refusal:
            return _reply(refusal.status, {"error": str(refusal)})
        except ConfigError as error:
            return _reply(400, {"error": str(error)})
        except BrokerweaveError as error:
            return _reply(503, {"error": str(error)})

    def _check_token(self, request: _Request) -> None:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if self._token is not None and not hmac.compare_digest(shown, self._token):
            raise _Refusal(401, "the token is missing or wrong: give --api-token-file")

    async def _do(self, request: _Request, reader: asyncio.StreamReader) -> object:
        path, _, query = request.path.partition("?")
        if path in self._asked:
            if request.method != "GET":
                raise _Refusal(405, f"{path} is asked with GET")
            parts = (part.partition("=") for part in query.split("&") if part)
            return self._asked[path]({name: value for name, _, value in parts})
        if path not in self._told:
            raise _Refusal(404, f"no such path; there are {', '.join([*self._asked, *self._told])}")
        if request.method != "POST":
            raise _Refusal(405, f"{path} is told with POST")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _Refusal(415, "what is told has the content type application/json")
        return self._told[path](await _body(request, reader))


async def _head(reader: asyncio.StreamReader) -> _Request:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _Refusal(413, "too long a head") from None
    first, *lines = raw.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Refusal(400, "no request of HTTP/1")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return _Request(words[0], words[1], headers)


async def _body(request: _Request, reader: asyncio.StreamReader) -> Mapping[str, object]:
    length = request.headers.get("content-length", "")
    if not length.isascii() or not length.isdigit():
        raise _Refusal(400, "a content length is needed")
    if int(length) > MOST_BODY:
        raise _Refusal(413, f"at most {MOST_BODY} bytes are read")
    try:
        found = json.loads(await reader.readexactly(int(length)))
    except (ValueError, RecursionError):
        raise _Refusal(400, "this is not JSON") from None
    if not isinstance(found, dict):
        raise _Refusal(400, "an object is needed")
    return found


def _reply(status: int, content: object) -> bytes:
    body = json.dumps(content).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
