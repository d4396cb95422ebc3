"""What lakegate itself weighs, and how long ``lakegate --help`` takes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from benchmarks.harness import Figure, interleave

_HELP_LIMIT_S = 0.08


def measure(rounds: int) -> Iterator[Figure]:
    """Yield the seconds of ``lakegate --help``, the wheel's size in MB, and its number of modules.

    Args:
        rounds: Counted rounds of the command and of a Python that does nothing.

    Raises:
        subprocess.CalledProcessError: When the wheel can't be built.
    """
    program = Path(sys.executable).with_name("lakegate")
    seconds = interleave(
        rounds,
        {
            "help": lambda: _run(program, "--help"),
            "python": lambda: _run(sys.executable, "-c", "pass"),
        },
    )
    detail = f"seconds; {seconds['python'] * 1e3:.0f} ms of them are Python's own start"
    yield Figure("lakegate --help", seconds["help"], _HELP_LIMIT_S, detail)
    with tempfile.TemporaryDirectory(prefix="lakegate-wheel-") as folder:
        _run(Path(sys.executable).with_name("uv"), "build", "--quiet", "--wheel", "--out-dir", folder)
        wheel = next(Path(folder).glob("*.whl"))
        with ZipFile(wheel) as archive:
            modules = [entry for entry in archive.infolist() if entry.filename.endswith(".py")]
            lines = sum(archive.read(entry).count(b"\n") for entry in modules)
        yield Figure("wheel", wheel.stat().st_size / 1e6, None, f"MB; {len(modules)} modules, {lines:,} lines")


def _run(*command: object) -> None:
    subprocess.run(tuple(map(str, command)), check=True, stdout=subprocess.DEVNULL)
