"""Nessie as the files in ``deploy/`` set it up, with a real Postgres, and with rules for who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy_files import DEPLOY, load
from lakegate.catalogs.nessie import NessieCatalog
from lakegate.errors import ConfigurationError, LakegateError, NotFoundError
from lakegate.model.refs import CommitRequest
from oidc_server import CLIENT, Oidc, oidc_server
from postgres import USER, PostgresServer
from secured_nessie import nessie, secured_nessie

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("postgres")]


class GivenToken:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self) -> str:
        return self._text

    def renew(self) -> None:
        pass


def test_nessie_keeps_its_commits_in_postgres_by_the_compose_files_variables(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    variables = dict(load(DEPLOY / "compose.yaml")["services"]["nessie"]["environment"])
    secret = tmp_path / "nessie-properties"
    secret.write_text(f"quarkus.datasource.postgresql.password={postgres.password}\n", encoding="utf-8")
    variables |= {
        "QUARKUS_CONFIG_LOCATIONS": str(secret),
        "QUARKUS_DATASOURCE_POSTGRESQL_USERNAME": USER,
        "QUARKUS_DATASOURCE_POSTGRESQL_JDBC_URL": f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres",
    }
    made = []
    for start in ("first", "second"):
        with nessie(tmp_path, variables=variables) as uri:
            catalog = NessieCatalog(uri, "file:///lake")
            made.append({ref.name for ref in catalog.list_refs()})
            catalog.create_branch(start, catalog.get_ref("main"))
            catalog.close()
    assert made == [{"main"}, {"main", "first"}]


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
        with pytest.raises(ConfigurationError, match="does not allow this"):
            reader.create_branch("mine", head)
        with pytest.raises(ConfigurationError, match="does not allow this"):
            reader.commit(change.model_copy(update={"base": head.hash, "namespaces": (("lab",),)}))
        assert list(stranger.list_refs()) == []
        with pytest.raises((ConfigurationError, NotFoundError)):
            stranger.get_ref("main")
        for catalog in (writer, reader, stranger):
            catalog.close()
