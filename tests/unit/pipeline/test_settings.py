from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.errors import ConfigError
from brokerweave.pipeline.settings import AVAILABLE_NOW, load


def write(folder: Path, text: str) -> Path:
    file = folder / "pipeline.toml"
    file.write_text(text)
    return file


def test_a_file_says_it_all_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        [pipeline]
        nodes = ["grpc://127.0.0.1:8815", "127.0.0.1:8816"]
        to = "lake"
        trigger = "500 milliseconds"
        format = "delta"
        topics = ["sensors/#"]
        [spark]
        "spark.sql.shuffle.partitions" = 4
        "spark.ui.enabled" = true
        """,
    )
    settings = load(file)
    assert settings.nodes() == ("grpc://127.0.0.1:8815", "grpc://127.0.0.1:8816")
    assert settings.lake == tmp_path / "lake"
    assert settings.checkpoint == tmp_path / "lake" / "_checkpoint"
    assert settings.seconds == 0.5
    assert settings.pipeline.format == "delta"
    assert dict(settings.spark) == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "true"}


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[pipeline]\nto = "lake"\ntrigger = "5 seconds"\n')
    flags = {"trigger": AVAILABLE_NOW, "to": Path("/elsewhere"), "nodes": "h:1, grpc://i:2", "format": None}
    settings = load(file, flags)
    assert settings.seconds is None
    assert settings.lake == Path("/elsewhere")
    assert settings.nodes() == ("grpc://h:1", "grpc://i:2")
    assert settings.pipeline.format == "parquet"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pipeline]\nnods = []", "did you mean 'nodes'?"),
        ("[pipline]\nto = 'x'", "did you mean 'pipeline'?"),
        ("to = 'x'", "write it under [pipeline]"),
        ("pipeline = 3", "write [pipeline] on a line of its own"),
        ("[pipeline]\ntrigger = '5 parsecs'", '"available-now" or an interval'),
        ("[pipeline]\ntrigger = '0 seconds'", '"available-now" or an interval'),
        ("[pipeline]\nnodes = ['here']", "grpc://HOST:PORT"),
        ("[pipeline]\nnodes = ['a:1', 'grpc://a:1']", "no address is repeated"),
        ("[pipeline]\nformat = 'csv'", '"parquet", "delta"'),
        ("[pipeline]\nlayers = ['gold']", "each streams from the one before"),
        ("[pipeline]\nmax_rows_per_batch = 0", "a whole number from 1"),
        ("[spark]\nmaster = 'local'", "a quoted setting of Spark"),
        ("[pipeline", "is not TOML"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load(file)
    assert said in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value).partition("TOML")[0]


def test_what_is_needed_and_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="--nodes"):
        load(None).nodes()
    with pytest.raises(ConfigError, match="--to"):
        _ = load(None).lake


@pytest.mark.parametrize(("content", "said"), [("", "is empty"), (None, "No such file")])
def test_a_token_file_without_a_token_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=said):
        load(None, {"token_file": file}).token()


def test_the_token_is_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret \nmore\n")
    assert load(None, {"token_file": file}).token() == "secret"
