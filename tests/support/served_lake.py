"""``lakegate serve`` as a process of its own, and DuckDB as a client of it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import duckdb

from support.e2e_support import Cli

_ENDED_WITHIN_S = 120


@dataclass
class ServedLake:
    """A running server.

    Attributes:
        url: Where it is.
        process: Its process.
        log: Lines of its standard error. They're read all the time: a pipe that is full would stop it.
        reader: The thread that reads them.
    """

    url: str
    process: subprocess.Popen[str]
    log: list[str]
    reader: threading.Thread

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Stop it and return its exit code and log."""
        self.process.send_signal(number)
        code = self.process.wait(_ENDED_WITHIN_S)
        self.reader.join()
        return code, "".join(self.log)


@contextmanager
def serving(home: Path, *words: str, cold: bool = False, **variables: str) -> Iterator[ServedLake]:
    """Serve the lake of a project on a free port."""
    cli = Cli(home, variables)
    process = (cli.start if cold else cli.begin)("--log-format", "json", "serve", "--port", "0", "-o", "json", *words)
    assert process.stdout is not None
    assert process.stderr is not None
    log: list[str] = []
    reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
    with process:
        reader.start()
        try:
            line = process.stdout.readline()
            if not line:
                reader.join()
            assert line, log
            yield ServedLake(json.loads(line)["url"], process, log, reader)
        finally:
            process.kill()
            reader.join()


@contextmanager
def duckdb_with_iceberg() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB whose extensions come from their wheels."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in ("avro", "httpfs", "iceberg"):
            folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
            connection.execute(f"LOAD '{folder / f'{name}.duckdb_extension'}'")
        yield connection
