"""Which settings a session gets."""

from __future__ import annotations

from brokerweave.pipeline.spark.session import settings_for


def test_a_users_setting_wins_over_ours() -> None:
    chosen = {"spark.sql.shuffle.partitions": "8", "spark.sql.session.timeZone": "Europe/Berlin"}
    assert chosen.items() <= settings_for("local[2]", chosen).items()


def test_a_cluster_keeps_its_own_shuffle_and_checkpoint_settings() -> None:
    cluster = settings_for("spark://10.0.0.1:7077")
    assert "spark.sql.shuffle.partitions" not in cluster
    assert "spark.sql.streaming.checkpointFileManagerClass" not in cluster
    assert cluster["spark.sql.streaming.noDataMicroBatches.enabled"] == "false"
    assert "spark.sql.shuffle.partitions" in settings_for("local[*]")
