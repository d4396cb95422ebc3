"""The database that Nessie and the journal share on AWS: set up by what the template's container runs, here for real.

RDS's owner of a database is no superuser, and neither is this one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pg8000.native
import pytest

from lakegate.config import JournalSettings
from lakegate.journal.factory import open_journal
from support.aws_demo import template
from support.journals import run
from support.postgres import PostgresServer
from support.tls_proxy import Authority

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgres")]

OWNER, DATABASE = "lakegate", "lakegate"
PASSWORDS = {OWNER: "of-the-owner", "journal": 'it\'s "of" the journal'}


@pytest.fixture(scope="module")
def container() -> dict[str, list[str]]:
    """The container of the template that sets the database up."""
    found: dict[str, list[str]] = template()["Resources"]["CatalogTask"]["Properties"]["ContainerDefinitions"][0]
    return found


class Rds:
    """A database as RDS makes one: its owner may create roles, and is no superuser."""

    def __init__(self, server: PostgresServer, authority: Authority, container: dict[str, list[str]]) -> None:
        self._server = server
        self._authority = authority
        self._container = container

    def set_up(self, folder: Path, *, host: str = "localhost", **more: str) -> subprocess.CompletedProcess[str]:
        """Run what the container runs, in its own words; it needs no download if the authorities are there."""
        (folder / "rds.pem").write_text(self._authority.file.read_text())
        environment = {
            "PATH": f"{self._server.programs}:{os.environ['PATH']}",
            "AUTHORITIES": "https://127.0.0.1:9/",
            "PGHOST": host,
            "PGPORT": str(self._server.port),
            "PGUSER": "rds_owner",
            "PGDATABASE": DATABASE,
            "PGSSLMODE": "verify-full",
            "PGSSLROOTCERT": str(folder / "rds.pem"),
            "PGPASSWORD": PASSWORDS[OWNER],
            "JOURNAL_PASSWORD": PASSWORDS["journal"],
            **more,
        }
        words = [*self._container["EntryPoint"], *self._container["Command"]]
        return subprocess.run(words, env=environment, check=False, capture_output=True, text=True, timeout=60)

    def settings(self, user: str, folder: Path) -> JournalSettings:
        url = f"postgresql://{user}@localhost:{self._server.port}/{DATABASE}"
        return JournalSettings(url=url, password=f"env:PASSWORD_{user.upper()}", tls=True, ca_file=folder / "rds.pem")

    def run(self, user: str, statement: str) -> list[list[object]]:
        password = PASSWORDS["journal" if user == "journal" else OWNER]
        with closing(
            pg8000.native.Connection(
                user, "127.0.0.1", DATABASE, self._server.port, password, timeout=30, ssl_context=False
            )
        ) as connection:
            return [list(row) for row in connection.run(statement) or ()]


@pytest.fixture
def rds(
    postgres: PostgresServer, container: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rds]:
    monkeypatch.setenv("PASSWORD_JOURNAL", PASSWORDS["journal"])
    monkeypatch.setenv("PASSWORD_RDS_OWNER", PASSWORDS[OWNER])
    postgres.run(
        f"CREATE ROLE rds_owner LOGIN CREATEROLE CREATEDB PASSWORD '{PASSWORDS[OWNER]}'",
        f"CREATE DATABASE {DATABASE} OWNER rds_owner",
    )
    authority = Authority(tmp_path, "rds")
    with postgres.tls(authority.pair()):
        yield Rds(postgres, authority, container)
    postgres.run(
        f"DROP DATABASE {DATABASE} WITH (FORCE)", "DROP ROLE IF EXISTS journal", "DROP ROLE IF EXISTS rds_owner"
    )


def test_the_function_s_user_has_the_journal_and_nothing_of_nessie_s(rds: Rds, tmp_path: Path) -> None:
    folder = tmp_path / "trust"
    folder.mkdir()
    rds.run("rds_owner", "CREATE TABLE objs2 (repo text)")

    for _ in range(2):  # at each start of Nessie
        done = rds.set_up(folder)
        assert done.returncode == 0, done.stderr
        assert PASSWORDS["journal"] not in done.stdout + done.stderr

    with closing(open_journal(rds.settings("journal", folder), tmp_path)) as journal:
        journal.save(run(1))
        assert journal.get("r01") == run(1)
    for refused in (
        "SELECT * FROM public.objs2",
        "DROP TABLE public.objs2",
        "CREATE TABLE public.mine (x int)",
        "CREATE SCHEMA mine",
        "SET ROLE rds_owner",
        "CREATE ROLE mine",
    ):
        with pytest.raises(pg8000.native.DatabaseError, match="permission denied"):
            rds.run("journal", refused)
            pytest.fail(refused)


def test_a_server_with_another_s_certificate_is_told_no_password(rds: Rds, tmp_path: Path) -> None:
    folder = tmp_path / "trust"
    folder.mkdir()

    done = rds.set_up(folder, host="127.0.0.1")  # not the name in the certificate

    assert done.returncode != 0
    assert "certificate" in done.stderr
