"""``lakegate serve`` as a process of its own, and DuckDB as a client of it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import duckdb

from support.e2e_support import Cli

_ENDED_WITHIN_S = 20


@dataclass
class ServedLake:
    """A running server.

    Attributes:
        url: Where it is.
        process: Its process; standard error is its log.
    """

    url: str
    process: subprocess.Popen[str]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Stop it and return its exit code and log."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=_ENDED_WITHIN_S)
        return self.process.returncode, log


@contextmanager
def serving(home: Path, *words: str, **variables: str) -> Iterator[ServedLake]:
    """Serve the lake of a project on a free port."""
    process = Cli(home, variables).start("--log-format", "json", "serve", "--port", "0", "-o", "json", *words)
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            yield ServedLake(json.loads(line)["url"], process)
        finally:
            process.kill()


@contextmanager
def duckdb_with_iceberg() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB whose extensions come from their wheels."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in ("avro", "httpfs", "iceberg"):
            folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
            connection.execute(f"LOAD '{folder / f'{name}.duckdb_extension'}'")
        yield connection
