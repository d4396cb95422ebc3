"""What a command finds in its environment, whatever is in ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakegate.gate.environment import command_environment


def test_a_command_finds_the_gate_and_keeps_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.driver.memory 3g\nspark.jars=/mine.jar\nspark.sql.defaultCatalog mine"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as in a process that has asked Spark Connect
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("JAVA_HOME", "/java")
    jars = [Path("/a.jar"), Path("/b.jar")]
    with command_environment("http://gate", "s3cret", "wap/x", jars=jars, java=Path("/java/bin/java")) as variables:
        defaults = Path(variables["SPARK_CONF_DIR"]) / "spark-defaults.conf"
        assert defaults.stat().st_mode & 0o077 == 0
        settings = dict(line.split(" ", 1) for line in defaults.read_text().splitlines() if " " in line)
    assert not defaults.exists()
    assert (variables["KEPT"], variables["JAVA_HOME"]) == ("1", "/java")
    assert "SPARK_CONNECT_MODE_ENABLED" not in variables
    assert settings["spark.driver.memory"] == "3g"
    assert settings["spark.sql.defaultCatalog"] == "gate"
    assert settings["spark.sql.catalog.gate.uri"] == variables["PYICEBERG_CATALOG__DEFAULT__URI"] == "http://gate"
    assert settings["spark.jars"] == "/mine.jar,/a.jar,/b.jar"
    assert [variables[f"LAKEGATE_GATE_{name}"] for name in ("URI", "TOKEN", "BRANCH")] == [
        "http://gate",
        "s3cret",
        "wap/x",
    ]
