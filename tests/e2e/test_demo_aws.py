"""``make demo-aws``: the template on MiniStack, with the function, Spark, Nessie and the journal for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.aws_demo import run_demo

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900), pytest.mark.xdist_group("ministack")]


def test_three_files_have_three_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEGATE_LOCAL_SPARK_MEMORY", "1500m")
    demo = run_demo(tmp_path, rows=2000)
    assert demo.rows == 2000
    assert demo.dead_letter == "landing/demo/trips/damaged.parquet"
    alert = next(message for message in demo.alerts if demo.rejected in message)
    assert "not_null(passenger_count)" in alert
