"""Nessie as the files in ``deploy/`` set it up, with a real Postgres, and with rules for who may do what."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lakegate.catalogs.nessie import NessieCatalog
from lakegate.config import load_settings
from lakegate.errors import ConfigurationError, LakegateError, NotFoundError
from lakegate.lake import connect
from lakegate.local.state import StackState
from lakegate.model.refs import CommitRequest
from support.deploy_files import DEPLOY, ROOT, load
from support.e2e_support import Cli, write_trips
from support.oidc_server import CLIENT, Oidc, oidc_server
from support.postgres import USER, PostgresServer
from support.secured_nessie import nessie, secured_nessie
from support.tls_proxy import Authority

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("postgres")]

_DATABASES = ("lake_catalog", "lake_journal")


class GivenToken:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self) -> str:
        return self._text

    def renew(self) -> None:
        pass


def from_compose(postgres: PostgresServer, folder: Path, database: str = "postgres") -> dict[str, str]:
    """Return the variables that Nessie has in the Compose file, for this Postgres."""
    variables = dict(load(DEPLOY / "compose.yaml")["services"]["nessie"]["environment"])
    secret = folder / "nessie.properties"
    secret.write_text(f"quarkus.datasource.postgresql.password={postgres.password}\n", encoding="utf-8")
    return variables | {
        "QUARKUS_CONFIG_LOCATIONS": str(secret),
        "QUARKUS_DATASOURCE_POSTGRESQL_USERNAME": USER,
        "QUARKUS_DATASOURCE_POSTGRESQL_JDBC_URL": f"jdbc:postgresql://127.0.0.1:{postgres.port}/{database}",
    }


def test_nessie_keeps_its_commits_in_postgres_by_the_charts_settings(
    postgres: PostgresServer, authority: Authority, tmp_path: Path
) -> None:
    """By those of the Compose file, a lake is written to and restored below."""
    compose = from_compose(postgres, tmp_path)
    url = urlsplit(load(DEPLOY / "helm" / "nessie-values.yaml")["jdbc"]["jdbcUrl"].removeprefix("jdbc:"))
    asked = url.query.replace("/etc/postgres-ca/ca.crt", str(authority.file))
    place = f"jdbc:postgresql://localhost:{postgres.port}/postgres"
    chart = compose | {"QUARKUS_DATASOURCE_POSTGRESQL_JDBC_URL": f"{place}?{asked}"}
    with postgres.tls(authority.pair()):
        with nessie(tmp_path, variables=chart) as uri:
            catalog = NessieCatalog(uri, "file:///lake")
            catalog.create_branch("chart", catalog.get_ref("main"))
            assert {ref.name for ref in catalog.list_refs()} == {"main", "chart"}
            catalog.close()
        # Without an authority, the driver takes nobody's word: it has none of its own.
        unsure = compose | {"QUARKUS_DATASOURCE_POSTGRESQL_JDBC_URL": f"{place}?sslmode=verify-full"}
        with (
            pytest.raises(RuntimeError, match=r"root certificate file .*root\.crt"),
            nessie(tmp_path, variables=unsure),
        ):
            pass
    assert postgres.run("SELECT count(*) > 0 FROM objs2") == [(True,)]


def test_a_lake_comes_back_from_its_backup_and_takes_what_came_since_again(
    postgres: PostgresServer, stack: StackState, namespace: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "how-to" / "back-up-and-restore.md").read_text(encoding="utf-8")
    dumping, restoring = ["--format", "custom"], ["--clean", "--if-exists", "--single-transaction"]
    assert page.count(" ".join(dumping)) == page.count(" ".join(restoring)) == len(_DATABASES)
    for database in _DATABASES:
        postgres.run(f"CREATE DATABASE {database}")
    table, landing, warehouse = f"{namespace}.trips", tmp_path / "landing", tmp_path / "warehouse"

    def restore(*databases: str) -> None:
        shutil.rmtree(warehouse)
        shutil.copytree(tmp_path / "copy", warehouse)
        for database in databases:
            postgres.call("pg_restore", *restoring, "--dbname", database, tmp_path / f"{database}.dump")

    def look(uri: str, *first: str) -> list[int]:
        variables = _variables(stack, postgres, uri, warehouse)
        cli = Cli(tmp_path, variables)
        watch = ("watch", str(landing), "--table", table, "--once", "--settle", "0s")
        for words in (first, watch) if first else (watch,):
            done = cli.run(*words)
            assert done.returncode == 0, done.stderr
        with connect(tmp_path, settings=load_settings(tmp_path, env=variables)) as lake:
            return sorted(row["id"] for row in lake.table(table).to_arrow(columns=["id"]).to_pylist())

    with nessie(tmp_path, variables=from_compose(postgres, tmp_path, "lake_catalog")) as uri:
        write_trips(landing / "a.parquet", 5)
        assert look(uri) == list(range(5))
        for database in ("lake_journal", "lake_catalog"):
            postgres.call("pg_dump", *dumping, "--file", tmp_path / f"{database}.dump", database)
        shutil.copytree(warehouse, tmp_path / "copy")
        write_trips(landing / "b.parquet", 5, start=5)
        assert look(uri) == list(range(10))

    # The catalog and the files alone: the journal knows of a run, and of a file, that are no more.
    restore("lake_catalog")
    with nessie(tmp_path, variables=from_compose(postgres, tmp_path, "lake_catalog")) as uri:
        assert look(uri, "admin", "journal", "rebuild") == list(range(10))

    restore("lake_catalog", "lake_journal")
    with nessie(tmp_path, variables=from_compose(postgres, tmp_path, "lake_catalog")) as uri:
        assert look(uri) == list(range(10))


def _variables(stack: StackState, postgres: PostgresServer, uri: str, warehouse: Path) -> Mapping[str, str]:
    """Return the settings of a project with this catalog, whose Spark is the session's."""
    url, _, token = stack.spark_url.partition("/;token=")
    return {
        "SPARK_TOKEN": token,
        "JOURNAL_PASSWORD": postgres.password,
        "LAKEGATE_ENGINE_URL": url,
        "LAKEGATE_ENGINE_TOKEN": "env:SPARK_TOKEN",
        "LAKEGATE_CATALOG_URI": uri,
        "LAKEGATE_CATALOG_WAREHOUSE": warehouse.as_uri(),
        "LAKEGATE_JOURNAL_URL": postgres.url.replace("/postgres", "/lake_journal"),
        "LAKEGATE_JOURNAL_PASSWORD": "env:JOURNAL_PASSWORD",
    }


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture
def oidc() -> Iterator[Oidc]:
    with oidc_server() as provider:
        yield provider


def test_the_charts_rules_let_lakegate_write_and_readers_read_main(oidc: Oidc, tmp_path: Path) -> None:
    rules = load(DEPLOY / "helm" / "nessie-values.yaml")["authorization"]["rules"]
    properties = {f"nessie.server.authorization.rules.{name}": rule for name, rule in rules.items()}
    properties["nessie.server.authorization.enabled"] = "true"
    properties["quarkus.oidc.token.audience"] = "nessie"
    with secured_nessie(tmp_path, oidc.url, properties) as uri:

        def entering(subject: str) -> NessieCatalog:
            token = GivenToken(oidc.issue(lifetime_s=300, subject=subject))
            return NessieCatalog(uri, "file:///lake", token=token)

        writer, reader, stranger = (entering(subject) for subject in (CLIENT, "analyst", "stranger"))
        main = writer.get_ref("main")
        branch = writer.create_branch("wap/nyc.trips_01", main)
        change = CommitRequest(
            branch="main", base=main.hash, message="a namespace", puts=(), namespaces=(("nyc",),), properties={}
        )
        writer.commit(change)

        assert {ref.name for ref in reader.list_refs()} == {"main"}
        head = reader.get_ref("main")
        assert list(reader.list_namespaces(head)) == [("nyc",)]
        with pytest.raises(LakegateError):
            reader.get_ref(branch.name)
        with pytest.raises(ConfigurationError, match="doesn't allow this"):
            reader.create_branch("mine", head)
        with pytest.raises(ConfigurationError, match="doesn't allow this"):
            reader.commit(change.model_copy(update={"base": head.hash, "namespaces": (("lab",),)}))
        assert list(stranger.list_refs()) == []
        with pytest.raises((ConfigurationError, NotFoundError)):
            stranger.get_ref("main")
        for catalog in (writer, reader, stranger):
            catalog.close()
