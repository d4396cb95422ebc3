"""What a branch did is decided by lineage and metadata, on real Spark and Nessie: ways that go round an operation.

Branches are written by hand, by a plain Spark session that is bound to them, or in a transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.config import TableSettings
from lakegate.errors import AuditFailedError, ClockError, ConflictError, InputError, LakegateError
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, TablePointer
from lakegate.model.run import Run
from lakegate.model.words import moment
from lakegate.spark.sessions import CATALOG, end_session, remote_sessions, session_settings
from support.other_project import other_project

pytestmark = pytest.mark.jvm

Rows = list[tuple[Any, ...]]
CHECKS = ("not_null(id)", "unique(id)", "row_count(min=1)")
NAMES = ("t", *(f"t{number}" for number in range(12)))
ADD_BAD, ADD_GOOD = "INSERT INTO {t} VALUES (NULL, 'bad')", "INSERT INTO {t} VALUES (9, 'good')"
SWAP = [
    "ALTER TABLE {t} RENAME COLUMN id TO kept",
    "ALTER TABLE {t} RENAME COLUMN v TO id",
    "ALTER TABLE {t} RENAME COLUMN kept TO v",
]
EXPIRE = "CALL lakegate.system.expire_snapshots(table => '{n}', snapshot_ids => array({middle}))"
COLLECTS = "ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled' = 'true')"
COLLECTS_NO_MORE = "ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled' = 'false')"


class World:
    """Tables with checks in the settings, and ways to change them that are not lakegate's."""

    def __init__(self, lake: Lake, components: Components, stack: StackState, namespace: str, folder: Path) -> None:
        self.lake, self.components, self.namespace, self.folder = lake, components, namespace, folder
        self._sessions = remote_sessions(stack.spark_url)
        self.main = self._open("main")
        self.main.sql(f"CREATE NAMESPACE {namespace}")

    def close(self) -> None:
        end_session(self.main)

    def name(self, table: str) -> str:
        return f"{self.namespace}.{table}"

    @contextmanager
    def session(self, branch: str) -> Iterator[Any]:
        """A plain Spark session in which names mean the branch's tables."""
        spark = self._open(branch)
        try:
            yield spark
        finally:
            end_session(spark)

    def _open(self, branch: str) -> Any:
        ref = self.components.catalog.get_ref(branch)
        spark = self._sessions(session_settings(self.components.catalog.spark_options(ref)))
        spark.sql(f"SET CATALOG {CATALOG}")
        return spark

    def run_sql(self, spark: Any, table: str, statements: Sequence[str], branch: str = "main") -> None:
        for statement in statements:
            ids = [] if statement.startswith("CREATE TABLE") else self.snapshot_ids(table, branch)
            first, middle = (ids[0], ids[len(ids) // 2]) if ids else ("", "")
            spark.sql(statement.format(t=self.name(table), n=self.name(table), first=first, middle=middle)).collect()

    def on_main(self, table: str, *statements: str) -> None:
        self.run_sql(self.main, table, statements)

    def create(self, table: str, *more: str) -> None:
        """A table of two good rows."""
        self.on_main(
            table, "CREATE TABLE {t} (id bigint, v string)", "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", *more
        )

    def branch(self, table: str, *statements: str) -> str:
        """Write to a new branch by hand."""
        name = f"hand/{self.namespace}/{table}"
        self.lake.branches.create(name)
        with self.session(name) as spark:
            self.run_sql(spark, table, statements, name)
        return name

    def pointer(self, table: str, branch: str = "main") -> TablePointer:
        catalog = self.components.catalog
        found = catalog.get_table(TableIdentifier.parse(self.name(table)), catalog.get_ref(branch))
        assert found is not None
        return found

    def snapshot_ids(self, table: str, branch: str = "main") -> list[int]:
        return [one.snapshot_id for one in self.components.reader.snapshots(self.pointer(table, branch))]

    def rows(self, table: str) -> Rows:
        """Return the rows on main, as PyIceberg reads them."""
        found = self.lake.table(self.name(table)).to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)

    def add(self, table: str, ids: Sequence[int]) -> Run:
        path = self.folder / f"{table}-{ids[0]}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "v": ["file"] * len(ids)}), path)
        return self.lake.ingest(self.name(table), path)

    def outcome(self, branch: str) -> str:
        try:
            return self.lake.publish(branch).status
        except LakegateError as error:
            return error.code


@pytest.fixture
def world(components: Components, stack: StackState, namespace: str, tmp_path: Path) -> Iterator[World]:
    tables = {f"{namespace}.{name}": TableSettings(checks=CHECKS) for name in NAMES}
    with other_project(components, tmp_path / "project", tables=tables) as lake:
        made = World(lake, components, stack, namespace, tmp_path)
        yield made
        made.close()


@dataclass(frozen=True)
class Case:
    """What is done to a branch of a table of two rows, and what becomes of its publishing."""

    branch: Sequence[str]
    outcome: str
    rows: Rows
    main: Sequence[str] = ()
    change: str = "rewrite"
    audited: int | None = None


BOTH: Rows = [(1, "a"), (2, "b")]
CASES = {
    "a column without a value is renamed to a checked one": Case(
        SWAP,
        AuditFailedError.code,
        [(1, None), (2, None)],
        main=["INSERT OVERWRITE {t} VALUES (1, NULL), (2, NULL)"],
        change="metadata",
        audited=2,
    ),
    "a rollback brings back what main had repaired": Case(
        ["CALL lakegate.system.rollback_to_snapshot('{n}', {first})"],
        AuditFailedError.code,
        BOTH,
        main=["INSERT OVERWRITE {t} VALUES (NULL, 'bad')", "INSERT OVERWRITE {t} VALUES (1, 'a'), (2, 'b')"],
        audited=1,
    ),
    "a rollback to a good state": Case(
        ["CALL lakegate.system.rollback_to_snapshot('{n}', {first})"], "published", BOTH, main=[ADD_GOOD], audited=2
    ),
    "an expired snapshot hides a bad row": Case(
        [COLLECTS, ADD_BAD, ADD_GOOD, EXPIRE, COLLECTS_NO_MORE], AuditFailedError.code, BOTH, audited=4
    ),
    "a bad row is rolled back before a good one": Case(
        [ADD_BAD, "CALL lakegate.system.rollback_to_snapshot('{n}', {first})", ADD_GOOD],
        "published",
        [*BOTH, (9, "good")],
        change="append",
        audited=1,
    ),
    "a column is added, and no row": Case(
        ["ALTER TABLE {t} ADD COLUMN more int"], "published", [(1, "a", None), (2, "b", None)], change="metadata"
    ),
    "manifests are rewritten after an insert": Case(
        [ADD_GOOD, "CALL lakegate.system.rewrite_manifests('{n}')"], "published", [*BOTH, (9, "good")], audited=3
    ),
    "manifests are rewritten after a bad insert": Case(
        [ADD_BAD, "CALL lakegate.system.rewrite_manifests('{n}')"], AuditFailedError.code, BOTH, audited=3
    ),
    "the table is replaced by another one": Case(
        ["DROP TABLE {t}", "CREATE TABLE {t} (id bigint, v string)", ADD_GOOD], "published", [(9, "good")], audited=1
    ),
    "an Iceberg tag is set": Case([ADD_GOOD, "ALTER TABLE {t} CREATE TAG mine"], "published", [*BOTH, (9, "good")]),
    "only rows are added": Case([ADD_GOOD], "published", [*BOTH, (9, "good")], change="append", audited=1),
}


def test_branches_written_by_hand_are_audited_for_what_they_are(world: World) -> None:
    wrong: list[object] = []
    for table, (name, case) in zip(NAMES, CASES.items(), strict=False):
        if name.startswith("a rollback brings"):
            world.on_main(table, "CREATE TABLE {t} (id bigint, v string)", *case.main)
        else:
            world.create(table, *case.main)
        branch = world.branch(table, *case.branch)
        seen = world.snapshot_ids(table, branch)
        outcome = world.outcome(branch)
        run = world.lake.runs(limit=1)[0]
        audited = run.reports[0].rows if case.audited is not None else None
        found = (outcome, run.staged[0].change, audited, world.rows(table))
        if found != (case.outcome, case.change, case.audited, case.rows):
            wrong.append((name, found, run.staged[0].reason))
        if name.startswith("a bad row is rolled back") and world.snapshot_ids(table) != [seen[0], seen[2]]:
            wrong.append((name, "the bad row can be read by its snapshot", seen))
    table = NAMES[len(CASES)]
    world.create(table)
    before = world.pointer(table)
    for statements in ([COLLECTS], [COLLECTS, ADD_GOOD]):
        branch = world.branch(table, *statements)
        if world.outcome(branch) != InputError.code or world.pointer(table) != before:
            wrong.append(("files may be deleted", statements, world.pointer(table)))
        world.lake.branches.delete(branch)
    assert not wrong


def test_no_snapshot_is_published_in_a_schema_that_no_check_read(world: World) -> None:
    """Each can be read by its id, and Iceberg shows it in the schema that it was written with."""
    swap = [f"ALTER TABLE {{t}} RENAME COLUMN {one}" for one in ("qty TO kept", "other TO qty", "kept TO other")]
    table = "CREATE TABLE {t} (id bigint, qty int, other int)"
    rows = "INSERT INTO {t} VALUES (1, 1, -3), (2, 1, -3)"
    again = ["ALTER TABLE {t} DROP COLUMN qty", "ALTER TABLE {t} ADD COLUMN qty int"]
    ways = {
        "t0": [[table, rows], [*swap, "UPDATE {t} SET id = 3 WHERE id = 1", *swap]],
        "t1": [[table, rows], ["UPDATE {t} SET qty = -3 WHERE id = 1", *again]],
        "t2": [[], [table, rows, *swap, "INSERT INTO {t} VALUES (3, 1, -3)", *swap]],
    }
    for name, (on_main, on_branch) in ways.items():
        world.lake.settings.tables[world.name(name)] = TableSettings(checks=("sql('qty < 0')",))
        world.on_main(name, *on_main)
        before = set(world.snapshot_ids(name)) if on_main else set()
        if name == "t1":
            with world.lake.transaction() as tx:
                for statement in on_branch:
                    tx.sql(statement.format(t=world.name(name)))
        else:
            assert world.lake.publish(world.branch(name, *on_branch)).status == "published"
        published = set(world.snapshot_ids(name)) - before
        assert published, name
        for snapshot in published:
            # Without a condition: Iceberg looks for it in the files by another schema.
            query = f"SELECT qty FROM {world.name(name)} VERSION AS OF {snapshot}"
            assert {row.qty for row in world.main.sql(query).collect()} <= {1, None}, name


def test_all_but_rows_is_published_only_on_an_unmoved_table(world: World) -> None:
    ways = {
        "renamed": ["ALTER TABLE {t} RENAME COLUMN v TO w", ADD_GOOD],
        "dropped": [ADD_GOOD, "ALTER TABLE {t} DROP COLUMN v"],
        "property": ["ALTER TABLE {t} SET TBLPROPERTIES ('note' = 'mine')", ADD_GOOD],
        "replaced": ["CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 9L AS id, 'good' AS v"],
        "recreated": ["DROP TABLE {t}", "CREATE TABLE {t} (id bigint, v string)", ADD_GOOD],
        "altered": ["ALTER TABLE {t} ADD COLUMN more int"],
    }
    for table, (name, statements) in zip(NAMES, ways.items(), strict=False):
        world.create(table)
        with pytest.raises(ConflictError) as caught, world.lake.transaction() as tx:
            for statement in statements:
                tx.sql(statement.format(t=world.name(table)))
            world.on_main(table, "INSERT INTO {t} VALUES (3, 'c')")
        said = f"{caught.value.message} {caught.value.hint}"
        assert world.name(table) in said, name
        assert "lake.transact" in said, name
        assert caught.value.context["run_id"] == tx.run.run_id, name
        assert caught.value.context["branch"] == tx.branch, name
        assert world.rows(table) == [*BOTH, (3, "c")], name

    world.create("t11")
    branch = world.branch("t11", *ways["property"])
    world.on_main("t11", "INSERT INTO {t} VALUES (3, 'c')")
    with pytest.raises(ConflictError, match="properties changed") as caught:
        world.lake.publish(branch)
    assert caught.value.hint == f"Drop the branch, then write it again on the current main: lakegate discard {branch}"
    assert world.rows("t11") == [*BOTH, (3, "c")]


def test_columns_of_two_transactions_never_mix(world: World) -> None:
    world.create("t")
    tries: list[int] = []

    def work(tx: Any, column: str) -> None:
        tx.sql(f"ALTER TABLE {world.name('t')} ADD COLUMN {column} int")
        names = "id, v, tips, taxes" if tries and column == "taxes" else f"id, v, {column}"
        values = (
            "20, 'y', NULL, 2" if tries and column == "taxes" else "10, 'x', 1" if column == "tips" else "20, 'y', 2"
        )
        tx.sql(f"INSERT INTO {world.name('t')} ({names}) VALUES ({values})")

    def taxes(tx: Any) -> None:
        work(tx, "taxes")
        if not tries:
            tries.append(1)
            with world.lake.transaction() as other:
                work(other, "tips")

    world.lake.transact(taxes)
    assert world.rows("t") == [(1, "a", None, None), (10, "x", 1, None), (2, "b", None, None), (20, "y", None, 2)]

    # An append isn't put below a column that others renamed meanwhile: it is done again, or its file refused.
    world.create("t0")
    with pytest.raises(ConflictError, match="'v' is called 'w' in the table"), world.lake.transaction() as tx:
        tx.append(world.name("t0"), [{"id": 5, "v": "e"}])
        world.on_main("t0", "ALTER TABLE {t} RENAME COLUMN v TO w")


def test_what_a_replaced_table_held_comes_back_by_a_revert(world: World) -> None:
    by = {
        "t": ["CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 9L AS id, 'good' AS v"],
        "t0": ["DROP TABLE {t}", "CREATE TABLE {t} (id bigint, v string)", ADD_GOOD],
        "t1": SWAP[:1],
        "t2": ["CREATE OR REPLACE TABLE {t} (id bigint, v string) USING iceberg", ADD_GOOD],
    }
    for table, statements in by.items():
        world.create(table)
        checks = TableSettings(checks=()) if table == "t1" else None
        if checks is not None:
            world.lake.settings.tables[world.name(table)] = checks
        with world.lake.transaction() as tx:
            for statement in statements:
                tx.sql(statement.format(t=world.name(table)))
        assert world.rows(table) == (BOTH if table == "t1" else [(9, "good")]), table
        world.lake.revert(tx.run.run_id)
        assert world.rows(table) == BOTH, table
        assert world.lake.table(world.name(table)).metadata.table_schema.names == ("id", "v"), table

    world.create("t3")
    with world.lake.transaction() as tx:
        tx.sql(by["t"][0].format(t=world.name("t3")))
    world.add("t3", [3])
    world.lake.revert(tx.run.run_id)
    assert world.rows("t3") == [*BOTH, (3, "file")]


def test_a_whole_table_is_audited_as_it_was_staged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create("t")
    branch = world.branch("t", "UPDATE {t} SET id = NULL WHERE id = 2")
    engine = world.components.engine
    count = engine.count_failing

    def meanwhile(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        with world.session(branch) as spark:
            world.run_sql(spark, "t", ["UPDATE {t} SET id = 2 WHERE id IS NULL"], branch)
        return count(*args, **options)

    monkeypatch.setattr(engine, "count_failing", meanwhile)
    report = world.lake.audit(world.name("t"), branch=branch)
    failing = {result.check: result.failing_rows for result in report.failures}
    assert failing == {"not_null(id)": 1}, "what is audited is the commit that was staged, not the branch as it is now"
    assert world.outcome(branch) == "published"
    assert world.rows("t") == BOTH


def test_a_rejected_run_stays_rejected_though_its_branch_is_put_back_by_hand(world: World) -> None:
    name = world.name("t")
    world.create("t")
    with pytest.raises(AuditFailedError) as rejected, world.lake.transaction() as tx:
        tx.sql(f"INSERT INTO {name} VALUES (NULL, 'bad')")
    branch, run_id = (str(rejected.value.context[key]) for key in ("branch", "run_id"))
    catalog = world.components.catalog
    main, there = world.pointer("t"), world.pointer("t", branch)

    back = there.model_copy(update={"snapshot_id": main.snapshot_id})
    head = catalog.get_ref(branch)
    catalog.commit(CommitRequest(branch=branch, base=head.hash, message="by hand", puts=(back,)))
    with pytest.raises(InputError, match=f"'{branch}'.*{main.snapshot_id}.*{there.snapshot_id}"):
        world.lake.publish(branch)
    # Spark takes the catalog's word, and writes it down.
    with world.session(branch) as spark:
        world.run_sql(spark, "t", ["ALTER TABLE {t} SET TBLPROPERTIES ('note' = 'mended')"], branch)
    with pytest.raises(InputError, match=f"no longer holds what run {run_id} wrote there"):
        world.lake.publish(branch)

    known = world.lake.run(run_id)
    assert known.status == "rejected"
    assert world.pointer("t") == main
    assert world.rows("t") == BOTH


def test_what_a_run_deleted_before_its_audit_is_nowhere_on_main(world: World) -> None:
    name = world.name("t")
    world.create("t")
    before = world.snapshot_ids("t")
    with world.lake.transaction() as tx:
        tx.sql(f"INSERT INTO {name} VALUES (NULL, 'bad')")
        tx.sql(f"DELETE FROM {name} WHERE id IS NULL")
        tx.sql(f"INSERT INTO {name} VALUES (9, 'good')")
        inside = world.snapshot_ids("t", tx.branch)
    assert len(inside) == len(before) + 3
    left = world.snapshot_ids("t")
    assert left == [*before, inside[-1]]
    by_spark = sorted(tuple(row) for row in world.main.sql(f"SELECT * FROM {name}").collect())
    assert by_spark == world.rows("t") == [*BOTH, (9, "good")]
    for hidden in set(inside) - set(left):
        with pytest.raises(Exception, match="Cannot find snapshot"):
            world.main.sql(f"SELECT * FROM {name} VERSION AS OF {hidden}").collect()
    log = [row["snapshot_id"] for row in world.main.sql(f"SELECT snapshot_id FROM {name}.history").collect()]
    assert log == left
    assert world.add("t", [11]).status == "published"
    world.lake.revert(tx.run.run_id)
    assert world.rows("t") == sorted([*BOTH, (11, "file")], key=str)


def test_a_table_that_a_fast_clock_wrote_can_be_restored(world: World) -> None:
    world.create("t")
    before = world.components.catalog.get_ref("main")
    world.on_main("t", ADD_GOOD)
    pointer = world.pointer("t")
    path = local_path(pointer.metadata_location)
    document = json.loads(path.read_text())
    newest = document["snapshots"][-1]
    newest["timestamp-ms"] += 3_600_000
    document["snapshot-log"][-1]["timestamp-ms"] = document["last-updated-ms"] = newest["timestamp-ms"]
    path = path.with_name("00099-ahead.metadata.json")
    path.write_text(json.dumps(document))
    ahead = pointer.model_copy(update={"metadata_location": path.as_uri()})
    head = world.components.catalog.get_ref("main")
    world.components.catalog.commit(CommitRequest(branch="main", base=head.hash, message="Fast", puts=(ahead,)))

    def insert() -> None:
        with world.lake.transaction() as tx:
            tx.sql(ADD_GOOD.format(t=world.name("t")))

    until = world.components.reader.metadata(world.pointer("t")).updated_at
    for write in (lambda: world.add("t", [20]), insert):
        with pytest.raises(ClockError, match=rf"{world.name('t')} can't be written until {moment(until)}") as caught:
            write()
        assert f"lakegate table restore {world.name('t')} --at COMMIT" in (caught.value.hint or "")

    world.lake.restore_table(world.name("t"), at=before.hash)
    world.add("t", [21])
    assert world.rows("t") == [*BOTH, (21, "file")]
