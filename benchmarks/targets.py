"""Publishing one append to users' own catalogs, beside Nessie: the commit alone, staged and audited before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import make_url

from benchmarks.harness import Figure, Prepare, prepared
from benchmarks.staging import Staging
from lakegate.catalogs.target import TargetCatalog
from lakegate.context import Context
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.journal.postgres import PostgresDatabase
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, CommitRequest
from lakegate.ports import Catalog
from support import target_catalogs
from support.postgres import running_postgres
from support.rest_recorder import LAKEKEEPER, RestRecorder
from support.target_catalogs import RunningCatalog

_TABLE = TableIdentifier.parse("bench.published")


def measure(context: Context, staging: Staging, home: Path, rounds: int) -> Iterator[Figure]:
    """Yield the median publish of each catalog against Nessie's."""
    with ExitStack() as opened:
        server = opened.enter_context(running_postgres())
        recorder = opened.enter_context(RestRecorder(LAKEKEEPER, home / "rest"))
        address = {"type": "rest", "uri": f"{recorder.uri}/catalog", "warehouse": recorder.warehouse, "token": "any"}
        own = [
            target_catalogs.sqlite(_folder(home, "swap")),
            target_catalogs.sqlite(_folder(home, "pyiceberg"), by_pyiceberg=True),
            target_catalogs.on_postgres(server, _folder(home, "postgres")),
            RunningCatalog("REST, in memory", address, {}),
        ]

        def journal(number: int) -> Database:
            if own[number].name.startswith("Postgres"):
                return PostgresDatabase(make_url(server.url).set(password=server.password), tls=False)
            return SqliteDatabase(home / f"{number}.db")

        catalogs: dict[str, Catalog] = {"Nessie": context.catalog}
        for number, one in enumerate(own):
            database = journal(number)
            opened.callback(database.close)
            catalogs[one.name] = TargetCatalog(database, one.target())
        for catalog in catalogs.values():
            _create(catalog, staging)
        contestants: dict[str, Prepare] = {
            name: lambda catalog=catalog: _publish(catalog, staging)  # type: ignore[misc]  # bound now
            for name, catalog in catalogs.items()
        }
        medians = prepared(rounds, contestants)
        asked = len(recorder.requests)
        _publish(catalogs["REST, in memory"], staging)()
        asked = len(recorder.requests) - asked
    for name, seconds in medians.items():
        if name != "Nessie":
            detail = f"{seconds * 1000:.1f} / {medians['Nessie'] * 1000:.1f} ms"
            detail += f"; {asked} requests" if name.startswith("REST") else ""
            limit = 1.2 if "swap" in name else None
            yield Figure(f"publish, {name} / Nessie", seconds / medians["Nessie"], limit, detail)


def _folder(home: Path, name: str) -> Path:
    (home / name).mkdir(parents=True)
    return home / name


def _create(catalog: Catalog, staging: Staging) -> None:
    put = staging.empty(_TABLE)
    head = catalog.get_ref(MAIN)
    new = () if _TABLE.namespace in set(catalog.list_namespaces(head)) else (_TABLE.namespace,)
    catalog.commit(CommitRequest(branch=MAIN, base=head.hash, message="create", puts=(put,), namespaces=new))


def _publish(catalog: Catalog, staging: Staging) -> Callable[[], object]:
    head, tables = catalog.get_ref_with_tables(MAIN, [_TABLE])
    now = tables[_TABLE]
    assert now is not None
    request = CommitRequest(branch=MAIN, base=head.hash, message="append", puts=(staging.grown(now, [1]),))
    return lambda: catalog.commit(request)
