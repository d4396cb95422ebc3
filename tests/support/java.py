"""The machine's own Java, for programs that start a classic Spark session."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_OLDEST_JAVA = 17


def system_java() -> str:
    """Return the home of a system Java that can run Spark, or skip."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("no system Java; PySpark's own launcher can't use the bundled one")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = told.partition('"')[2].partition('"')[0].partition(".")[0]
    if not version.isdigit() or int(version) < _OLDEST_JAVA:
        pytest.skip(f"the system Java is too old: {told.strip()}")
    return str(Path(java).resolve().parents[1])
