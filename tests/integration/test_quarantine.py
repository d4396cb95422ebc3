"""Quarantine on real Spark, Iceberg and Nessie: failing rows go to their own table, in the commit of the others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakegate
from lakegate.config import load_settings
from lakegate.errors import LakegateError, SchemaError
from lakegate.model.run import Run
from lakegate.reports.junit import junit
from lakegate.reports.page import run_page
from support.examples import examples

pytestmark = pytest.mark.jvm


def rows_of(lake: lakegate.Lake, table: str, *columns: str) -> list[dict[str, Any]]:
    return list(lake.table(table).to_arrow(columns=columns or None).to_pylist())


class World:
    """A table in a namespace of its own, whose id is given by the rows."""

    def __init__(self, lake: lakegate.Lake, namespace: str, folder: Path) -> None:
        self.lake = lake
        self.table = f"{namespace}.trips"
        self.aside = f"{self.table}__quarantine"
        self.folder = folder

    def file(self, name: str, ids: Sequence[int | None], fares: Sequence[float | None] | None = None) -> Path:
        path = self.folder / f"{name}.parquet"
        columns: dict[str, Any] = {
            "id": pa.array(ids, pa.int64()),
            "fare": pa.array([1.0 * (i or 0) for i in ids] if fares is None else fares, pa.float64()),
        }
        pq.write_table(pa.table(columns), path)
        return path

    def ingest(self, path: Path | Sequence[Path], checks: Sequence[str], **options: Any) -> Run:
        return self.lake.ingest(self.table, path, checks=checks, on_rejected="return", **options)

    def ids(self, table: str | None = None) -> list[int | None]:
        found = (row["id"] for row in rows_of(self.lake, table or self.table, "id"))
        return sorted(found, key=lambda one: (one is None, one))


@pytest.fixture
def world(lake: lakegate.Lake, namespace: str, tmp_path: Path) -> World:
    return World(lake, namespace, tmp_path)


NOT_NULL = "not_null(id, severity='quarantine')"
POSITIVE = "in_range(fare, min=0, severity='quarantine')"


def test_good_rows_are_published_and_failing_ones_set_aside_in_one_commit(world: World) -> None:
    before = world.lake.branches.list()
    path = world.file("a", [1, None, 3, None, 5], [1.0, 2.0, -3.0, -4.5, 5.0])

    run = world.ingest(path, [NOT_NULL, POSITIVE, "row_count(min=1)"])

    assert run.status == "published", run
    assert run.publication is not None
    assert (run.publication.rows, run.publication.quarantined) == (2, 3)
    assert run.tables == (world.table, world.aside)
    assert world.ids() == [1, 5]
    aside = sorted(rows_of(world.lake, world.aside), key=lambda row: row["fare"])
    assert [(row["id"], row["fare"]) for row in aside] == [(None, -4.5), (3, -3.0), (None, 2.0)]
    assert aside[0]["_reasons"] == [
        {"check": "not_null(id)", "column": "id", "value": None},
        {"check": "in_range(fare, min=0)", "column": "fare", "value": "-4.5"},
    ]
    assert [(row["_source_file"], row["_position"]) for row in aside] == [(path.as_uri(), at) for at in (3, 2, 1)]
    assert {row["_run_id"] for row in aside} == {run.run_id}
    assert {row["_released_by"] for row in aside} == {None}
    assert len({row["_quarantine_id"] for row in aside}) == 3
    commit = next(iter(world.lake.log(limit=1)))
    assert commit.hash == run.publication.commit
    assert "2 rows, 3 quarantined" in commit.message
    assert [ref.name for ref in world.lake.branches.list()] == [ref.name for ref in before]
    by_name = {result.name: result for result in run.reports[0].results}
    assert by_name["not_null(id)"].quarantined == 2
    assert by_name["in_range(fare, min=0)"].quarantined == 2
    assert len(by_name["in_range(fare, min=0)"].examples) == 2

    # Once published, the file isn't new; another batch goes into the same tables.
    assert world.ingest(path, [NOT_NULL]).status == "skipped"
    more = world.ingest(world.file("b", [7, None]), [NOT_NULL])
    assert (world.ids(), world.ids(world.aside)) == ([1, 5, 7], [3, None, None, None])
    assert more.publication is not None
    assert more.publication.quarantined == 1


def test_all_rows_or_none_fail_and_too_many_reject(world: World) -> None:
    new = world.ingest(world.file("new", [None, None, None]), [NOT_NULL])
    assert new.publication is not None
    assert (new.publication.rows, world.ids(), len(world.ids(world.aside))) == (0, [], 3)
    assert world.ingest(world.file("none", [1, 2]), [NOT_NULL]).tables == (world.table,)

    rejected = world.ingest(world.file("many", [3, None, None, 4]), [NOT_NULL], quarantine_limit="49%")
    assert (rejected.status, rejected.tables) == ("rejected", (world.table,))
    assert rejected.detail is not None
    assert "2 of 4 rows would be quarantined, more than quarantine_limit allows (49%)" in rejected.detail
    assert world.ids() == [1, 2]

    every = world.ingest(world.file("all", [None, None]), [NOT_NULL], quarantine_limit=2)
    assert every.status == "published"
    assert every.publication is not None
    assert (every.publication.rows, every.publication.quarantined) == (0, 2)
    assert (world.ids(), world.ids(world.aside)) == ([1, 2], [None] * 5)

    # What is left is judged by all other checks.
    left = world.ingest(world.file("left", [None, 9]), [NOT_NULL, "row_count(min=2)"])
    assert [failure.name for failure in left.failures] == ["row_count(min=2)"]
    assert world.ids(world.aside) == [None] * 5


def test_keys_that_repeat_or_are_known_are_set_aside(world: World) -> None:
    unique = "unique(id, severity='quarantine', scope='table')"
    world.ingest(world.file("a", [1, 2]), [])
    run = world.ingest(world.file("b", [2, 3, 3, 4, None], [0.0, 1.0, 2.0, 3.0, 4.0]), [unique])
    assert world.ids() == [1, 2, 4, None]
    assert world.ids(world.aside) == [2, 3, 3]
    assert {row["_reasons"][0]["check"] for row in rows_of(world.lake, world.aside)} == {"unique(id, scope='table')"}
    assert run.reports[0].results[0].quarantined == 3

    # Once a row is set aside, another one that refers to it fails: rows are set aside only once.
    check = f"relationships(parent, to='{world.table}_tree', field=id, severity='quarantine')"
    for parents, status in (([1, 9, 1], "published"), ([1, 9, 2], "rejected")):
        path = world.folder / f"{status}.parquet"
        nodes = {"id": pa.array([1, 2, 3], pa.int64()), "parent": pa.array(parents, pa.int64())}
        pq.write_table(pa.table(nodes), path)
        assert world.lake.ingest(f"{world.table}_tree", path, checks=[check], on_rejected="return").status == status
    assert (world.ids(f"{world.table}_tree"), world.ids(f"{world.table}_tree__quarantine")) == ([1, 3], [2])


def test_a_batch_is_rebased_and_reverted_with_its_quarantined_rows(world: World) -> None:
    world.ingest(world.file("first", [1, None]), [NOT_NULL])
    path = world.file("mine", [2, None, 3])
    staged = world.lake.write(world.table, path, checks=[NOT_NULL], run_id=f"mine-{world.folder.name}")
    world.lake.audit_run(staged.run_id)
    other = world.ingest(world.file("other", [4, None]), [NOT_NULL])
    run = world.lake.publish_run(staged.run_id)
    assert run.publication is not None
    assert run.publication.replayed == (world.table, world.aside)
    assert (world.ids(), len(world.ids(world.aside))) == ([1, 2, 3, 4], 3)

    world.lake.revert(run.run_id)
    assert (world.ids(), len(world.ids(world.aside))) == ([1, 4], 2)
    assert run.run_id not in {row["_run_id"] for row in rows_of(world.lake, world.aside)}
    again = world.ingest(path, [NOT_NULL])
    assert (again.status, again.quarantined) == ("published", 1)
    assert other.quarantined == 1


def test_what_is_masked_is_in_no_run_journal_report_or_error(world: World, home: Path) -> None:
    settings = load_settings(home, env={"LAKEGATE_AUDIT_MASK": '["email"]'})
    hidden = "hush-4711"
    path = world.folder / "mail.parquet"
    pq.write_table(pa.table({"id": [1, 2], "email": ["me@example.com", hidden]}), path)
    checks = ["valid_email(email, severity='quarantine')", "accepted_values(email, values=['x'], severity='warn')"]
    with lakegate.connect(home, settings=settings) as lake:
        run = lake.ingest(world.table, path, checks=checks)
        assert (run.status, run.quarantined) == ("published", 1)
        with pytest.raises(LakegateError, match="CAST_INVALID_INPUT") as caught:
            lake.quarantine.release(world.table, changes={"id": "CAST(email AS BIGINT)"})
        with pytest.raises(LakegateError, match="USER_RAISED_EXCEPTION"):
            lake.quarantine.release(world.table, changes={"id": "raise_error(email)"})
        told = [run.model_dump_json(), run_page(run), junit(run), str(caught.value), str(caught.value.hint)]
    log = (home / ".lakegate" / "logs" / "spark.log").read_text(errors="replace")
    assert "[CAST_INVALID_INPUT] (not logged) SQLSTATE: 22" in log
    assert "[USER_RAISED_EXCEPTION] (not logged) SQLSTATE: P0" in log
    assert not [text for text in (*told, log) if hidden in text]
    # In a process of its own: SQLite's locks of this one would go if it opened and closed the file otherwise.
    program = "import sys; sys.exit(any(sys.argv[1].encode() in open(one, 'rb').read() for one in sys.argv[2:]))"
    files = (home / ".lakegate").glob("journal.db*")
    assert subprocess.run([sys.executable, "-c", program, hidden, *files], check=False).returncode == 0
    (aside,) = rows_of(world.lake, world.aside)
    assert (aside["email"], aside["_reasons"][0]["value"]) == (hidden, None)


def test_no_path_of_a_file_shows_a_masked_value(world: World, home: Path) -> None:
    settings = load_settings(home, env={"LAKEGATE_AUDIT_MASK": '["email"]'})
    rows = pa.table({"id": [1, 1, 2], "email": ["hush-4711"] * 2 + ["me@example.com"]})
    checks = ["valid_email(email)", "in_range(id, min=2)", "unique(id)", "unique(id, scope='table')"]
    with lakegate.connect(home, settings=settings) as lake:
        run = lake.ingest(world.table, rows, checks=checks, partition_by=["email"], on_rejected="return")
    failing = [one for one in run.reports[0].results if one.verdict == "fail"]
    assert len(failing) == 4
    shown = [row for one in failing for row in one.examples]
    assert "hush" not in run.model_dump_json()
    assert all("/email=•••/" in row["_file"] for row in shown if "_file" in row)
    assert any("_file" in row for row in shown)


@pytest.mark.parametrize("seed", range(examples(1)))
def test_exactly_the_rows_that_the_checks_count_are_set_aside(world: World, seed: int) -> None:
    """Several checks fail per row; which ones is worked out here once more, in Python."""
    random = Random(seed)
    world.ingest(world.file("known", [1, 2, 3]), [])
    ids = [random.choice([None, *range(1, 40)]) for _ in range(60)]
    fares = [random.choice([None, -1.0, 0.0, 2.0, 7.5, 100.0]) for _ in ids]
    paths = [
        world.file(f"part{n}", ids[start : start + 20], fares[start : start + 20])
        for n, start in enumerate(range(0, 60, 20))
    ]
    wanted: dict[str, Callable[[Any, Any], bool]] = {
        "not_null(id, name='absent', severity='quarantine')": lambda id_, fare: id_ is None,
        "in_range(fare, min=0, name='low', severity='quarantine')": lambda id_, fare: fare is not None and fare < 0,
        "in_range(fare, max=50, where='id > 20', name='high', severity='quarantine')": lambda id_, fare: (
            fare is not None and fare > 50 and id_ is not None and id_ > 20
        ),
        "sql('fare = 7.5 AND id % 2 = 0', name='odd', severity='quarantine')": lambda id_, fare: (
            fare == 7.5 and id_ is not None and id_ % 2 == 0
        ),
        "unique(id, scope='table', name='twice', severity='quarantine')": lambda id_, fare: (
            id_ is not None and (ids.count(id_) > 1 or id_ <= 3)
        ),
        "unique(id, fare, name='pair', severity='quarantine')": lambda id_, fare: (
            None not in (id_, fare) and list(zip(ids, fares, strict=True)).count((id_, fare)) > 1
        ),
    }
    names = ("absent", "low", "high", "odd", "twice", "pair")
    expected = {
        (path.as_uri(), place): {name for name, fails in zip(names, wanted.values(), strict=True) if fails(id_, fare)}
        for number, (id_, fare) in enumerate(zip(ids, fares, strict=True))
        for path, place in [(paths[number // 20], number % 20)]
    }
    run = world.ingest(paths, list(wanted))

    assert run.status == "published", run.detail
    aside = rows_of(world.lake, world.aside)
    found = {(row["_source_file"], row["_position"]): {one["check"] for one in row["_reasons"]} for row in aside}
    assert found == {place: reasons for place, reasons in expected.items() if reasons}
    assert {result.name: result.quarantined for result in run.reports[0].results} == {
        name: sum(name in reasons for reasons in expected.values()) for name in names
    }
    left = [id_ for id_, reasons in zip(ids, expected.values(), strict=True) if not reasons]
    assert world.ids() == sorted([1, 2, 3, *left], key=lambda one: (one is None, one))
    assert run.publication is not None
    assert run.publication.rows + run.publication.quarantined == 60


def test_the_quarantine_table_follows_the_columns_of_its_table(world: World) -> None:
    world.ingest(world.file("a", [1, None]), [NOT_NULL])
    with world.lake.transaction() as tx:
        tx.sql(f"ALTER TABLE {world.table} DROP COLUMN fare")
        tx.sql(f"ALTER TABLE {world.table} ADD COLUMN tip struct<`x: int, y`: int>")
        tx.sql(f"ALTER TABLE {world.table} ADD COLUMN extra int")

    def ingest(name: str, extra: Any) -> Run:
        kind = pa.struct([("x: int, y", pa.int32())])
        tips = pa.array([{"x: int, y": 5}, {"x: int, y": 6}], kind)
        path = world.folder / f"{name}.parquet"
        pq.write_table(pa.table({"id": pa.array([2, None], pa.int64()), "tip": tips, "extra": extra}), path)
        return world.ingest(path, [NOT_NULL])

    assert ingest("b", pa.array([7, 8], pa.int32())).status == "published"
    with world.lake.transaction() as tx:
        tx.sql(f"ALTER TABLE {world.table} ALTER COLUMN extra TYPE bigint")
    run = ingest("c", pa.array([7, 2**40], pa.int64()))
    aside = rows_of(world.lake, world.aside, "fare", "tip", "extra")
    tip = {"x: int, y": 6}
    assert sorted(((row["fare"], row["tip"], row["extra"]) for row in aside if row["tip"]), key=lambda row: row[2]) == [
        (None, tip, 8),
        (None, tip, 2**40),
    ]

    # Nor are values lost on the way back: the first run's rows have one in a column that is gone.
    with pytest.raises(SchemaError, match="1 of the chosen rows has a value in column 'fare'"):
        world.lake.quarantine.release(world.table, changes={"id": "9"})
    world.lake.quarantine.release(world.table, run_id=run.run_id, changes={"id": "9"})
    world.lake.quarantine.release(world.table, where="tip IS NULL", changes={"id": "10", "fare": "NULL"})
    assert world.ids() == [1, 2, 2, 9, 10]


@pytest.mark.parametrize(("partition_by", "number"), [(("bucket(4, id)",), 3), ((), 40)])
def test_each_row_set_aside_names_its_file_and_place(world: World, partition_by: Sequence[str], number: int) -> None:
    """Of JSON, whose copies Spark reads. Half of the files lack a column, and names have characters to escape."""
    folder = world.folder / "of the day"
    folder.mkdir()
    wanted: dict[tuple[str, int], Any] = {}
    for file in range(number):
        rows = [{"id": 10 * file + at if at % 3 else None, "fare": 1.0 * at} for at in range(1, 6)]
        path = folder / f"part 1%{file}.json"
        path.write_text("\n".join(json.dumps(row if file % 2 else {**row, "tip": at}) for at, row in enumerate(rows)))
        wanted |= {(path.as_uri(), at): row["fare"] for at, row in enumerate(rows) if row["id"] is None}
    run = world.ingest(folder, [NOT_NULL], partition_by=partition_by, schema="evolve")
    assert run.publication is not None
    assert (run.publication.rows, run.publication.quarantined) == (4 * number, number)
    aside = rows_of(world.lake, world.aside)
    assert {(row["_source_file"], row["_position"]): row["fare"] for row in aside} == wanted
    assert len({row["_quarantine_id"] for row in aside}) == number


def test_rows_of_a_program_have_no_file(world: World) -> None:
    rows = pa.table({"id": pa.array([1, None], pa.int64()), "fare": [1.0, 2.0]})
    assert world.lake.ingest(world.table, rows, checks=[NOT_NULL]).quarantined == 1
    (aside,) = rows_of(world.lake, world.aside)
    assert (aside["id"], aside["fare"], aside["_source_file"], aside["_position"]) == (None, 2.0, None, None)


@pytest.mark.parametrize("partition_by", [(), ("bucket(4, id)",)])
def test_a_batch_brings_new_columns_and_rows_to_quarantine(world: World, partition_by: Sequence[str]) -> None:
    world.ingest(world.file("a", [1, None]), [NOT_NULL], partition_by=partition_by)
    rows: dict[str, Any] = {
        "id": pa.array([2, None], pa.int64()),
        "fare": [2.0, 3.0],
        "tip": [7, 8],
        "zone": ["x", "y"],
    }
    pq.write_table(pa.table(rows), world.folder / "b.parquet")
    run = world.ingest(world.folder / "b.parquet", [NOT_NULL], schema="evolve")
    assert (run.status, run.quarantined) == ("published", 1)
    assert [(one.change, list(map(str, one.schema_changes))) for one in run.staged] == [
        ("evolve", ["add column tip (long)", "add column zone (string)"]),
        ("evolve", []),
    ]
    kept = sorted(rows_of(world.lake, world.table, "id", "fare", "tip", "zone"), key=lambda row: row["id"])
    assert kept == [
        {"id": 1, "fare": 1.0, "tip": None, "zone": None},
        {"id": 2, "fare": 2.0, "tip": 7, "zone": "x"},
    ]
    aside = rows_of(world.lake, world.aside, "id", "fare", "tip", "zone")
    assert {"id": None, "fare": 3.0, "tip": 8, "zone": "y"} in aside
    assert len(aside) == 2
    world.lake.quarantine.release(world.table, run_id=run.run_id, changes={"id": "3"})
    assert {"id": 3, "fare": 3.0, "tip": 8, "zone": "y"} in rows_of(world.lake, world.table)


def test_values_of_a_renamed_column_are_released_as_the_error_says(world: World) -> None:
    world.ingest(world.file("a", [1, None], [1.0, 2.0]), [NOT_NULL])
    world.lake.evolve_table(world.table, "RENAME COLUMN fare TO price")
    rows = pa.table({"id": pa.array([2, None], pa.int64()), "price": [3.0, 4.0]})
    pq.write_table(rows, world.folder / "b.parquet")
    assert world.ingest(world.folder / "b.parquet", [NOT_NULL]).quarantined == 1
    with pytest.raises(SchemaError) as caught:
        world.lake.quarantine.release(world.table, changes={"id": "9"})
    assert caught.value.hint is not None
    assert "add --set 'price=coalesce(price,fare)'" in caught.value.hint
    world.lake.quarantine.release(world.table, changes={"id": "9", "price": "coalesce(price,fare)"})
    assert sorted(row["price"] for row in rows_of(world.lake, world.table, "id", "price")) == [1.0, 2.0, 3.0, 4.0]
