"""Reads the access list that the configuration names."""

from __future__ import annotations

from brokerweave.config import NodeConfig
from brokerweave.errors import ConfigError
from brokerweave.session.acl import Acl, parse


def load_acl(config: NodeConfig) -> Acl | None:
    """None if there is to be none. Raises `ConfigError` that names the file, the line and what to write."""
    path = config.acl.file
    if path is None:
        return None
    try:
        return parse(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise ConfigError(f"{path}, {error}") from error
