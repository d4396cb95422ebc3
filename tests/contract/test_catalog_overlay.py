"""The overlay keeps the contract of every catalog, in each database that a journal can be in."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import make_url

from lakegate.catalogs.rules import ROOT_HASH
from lakegate.catalogs.target import OverlayCatalog
from lakegate.catalogs.target.log import FULL_STATE_EVERY
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.journal.factory import open_postgres
from lakegate.model.refs import Ref
from lakegate.testing.catalog import CatalogContract, Sandbox


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    made: Database
    if request.param == "sqlite":
        made = SqliteDatabase(tmp_path / "journal.db")
    else:
        server = request.getfixturevalue("postgres")
        # As lakegate does, after the journal's tables: a schema that has the overlay's alone is no journal's.
        made = open_postgres(make_url(server.url).set(password=server.password), tls=False).database
    yield made
    made.close()


class TestOverlayCatalog(CatalogContract):
    @pytest.fixture
    def catalog(self, database: Database) -> OverlayCatalog:
        return OverlayCatalog(database, page_size=self.page_size)

    @pytest.fixture
    def root(self, catalog: OverlayCatalog) -> Ref:
        return catalog.get_ref(ROOT_HASH)

    def test_a_state_is_the_same_however_long_the_log_is(self, sandbox: Sandbox, database: Database) -> None:
        early = sandbox.commit(sandbox.pointer("first"), sandbox.pointer("second"))
        for version in range(1, FULL_STATE_EVERY):
            late = sandbox.move("second", version)
        sandbox.commit(deletes=("first",))
        anew = Sandbox(OverlayCatalog(database), sandbox.branch, sandbox.namespace, sandbox.root, sandbox.warehouse)
        assert len(list(anew.catalog.history(anew.branch))) == FULL_STATE_EVERY + 2
        assert [anew.version("first"), anew.version("second")] == [None, FULL_STATE_EVERY - 1]
        assert [anew.version("first", late), anew.version("second", late)] == [0, FULL_STATE_EVERY - 1]
        assert [anew.version("first", early), anew.version("second", early)] == [0, 0]

    def test_commits_of_several_at_once_are_all_there(self, sandbox: Sandbox, database: Database) -> None:
        base = sandbox.head()

        def create(number: int) -> None:
            other = Sandbox(OverlayCatalog(database), sandbox.branch, sandbox.namespace, sandbox.root, "file:///lake")
            other.commit(other.pointer(f"t{number}"), base=base)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(create, range(16)))
        found = {pointer.table.name for pointer in sandbox.catalog.list_tables(sandbox.head())}
        assert found == {f"t{number}" for number in range(16)}
