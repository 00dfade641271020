"""Asks a running controller something by its `api`.

Raises `Unavailable` if it does not answer, `ConfigError` with its words if it refuses. Must not know: what is
asked.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from brokerweave.config import Address
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable

TIMEOUT = 30.0


def ask(
    api: Address, path: str, told: Mapping[str, object] | None = None, token: bytes | None = None
) -> dict[str, Any]:
    """`told` is what changes something; without it the path is only asked."""
    headers = {"Authorization": f"Bearer {token.decode()}"} if token is not None else {}
    body = None
    if told is not None:
        body, headers["Content-Type"] = json.dumps(told), "application/json"
    connection = http.client.HTTPConnection(api.host, api.port, timeout=TIMEOUT)
    try:
        connection.request("GET" if told is None else "POST", path, body, headers)
        response = connection.getresponse()
        found = json.loads(response.read())
        if not isinstance(found, dict):
            raise ValueError
    except OSError as error:
        raise Unavailable(f"no controller answers at {api}: {error.strerror or error}") from error
    except (http.client.HTTPException, ValueError):
        raise Unavailable(f"what answers at {api} is no brokerweave controller") from None
    finally:
        connection.close()
    if response.status == 200:
        return found
    words = str(found.get("error", response.reason))
    raise ConfigError(words) if response.status < 500 else BrokerweaveError(words)
