"""Files of every format, and rows of every library, through the whole path: what is published is what they hold."""

from __future__ import annotations

import datetime as dt
import io
import math
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from lakegate.components import Components
from lakegate.errors import ConflictError, InputError, SchemaError, SourceError
from lakegate.lake import Lake
from lakegate.model.batch import Batch, CsvOptions
from lakegate.model.run import Run
from lakegate.sources.discovery import discover
from lakegate.spark.reader import read_batch
from support.lakes import session_of
from support.parquet_files import write_flipped

pytestmark = pytest.mark.jvm

ROWS: list[dict[str, Any]] = [
    {"id": 1, "at": dt.datetime(2024, 1, 1, 10, 0, 0, 5), "fee": Decimal("1.20"), "tags": ["a", None], "note": "x"},
    {"id": None, "at": None, "fee": None, "tags": None, "note": None},
]
Rows = set[tuple[str | None, ...]]
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": ["null", "long"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "fee", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2}]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def published(lake: Lake, run: Run) -> list[dict[str, Any]]:
    assert run.status == "published", run
    table = lake.table(run.table).to_arrow()
    (key,) = (name for name in table.column_names if name.lower() == "id")
    found: list[dict[str, Any]] = table.sort_by(key).to_pylist()  # NULL comes last
    return found


def copies(lake: Lake) -> set[str]:
    """Return the folders of the copies of sources; a killed run of another test leaves its own."""
    return {path.name for path in (lake.home / ".lakegate" / "sources").glob("*")}


def test_declared_types_arrive_as_they_are(lake: Lake, namespace: str, tmp_path: Path) -> None:
    before, made = copies(lake), io.BytesIO()
    fastavro.writer(made, AVRO, ROWS)
    (tmp_path / "a.avro").write_bytes(made.getvalue())
    orc.write_table(pa.Table.from_pylist(ROWS), str(tmp_path / "a.orc"))
    for name in ("a.avro", "a.orc"):
        run = lake.ingest(f"{namespace}.{name[2:]}", tmp_path / name)
        assert published(lake, run) == ROWS
        assert lake.ingest(run.table, tmp_path / name).status == "skipped"
    assert copies(lake) <= before
    declared = {"name": "id", "type": {"type": "long", "logicalType": "local-timestamp-nanos"}}
    with (tmp_path / "nanos.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "R", "fields": [declared]}, [{"id": -1_500}])
    (row,) = published(lake, lake.ingest(f"{namespace}.nanos", tmp_path / "nanos.avro"))
    assert row == {"id": dt.datetime(1969, 12, 31, 23, 59, 59, 999_998)}  # rounded down, as parquet's are


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_values_keep_their_line_ends_and_get_none_of_the_rows(
    lake: Lake, components: Components, namespace: str, tmp_path: Path, line_end: str
) -> None:
    batches: dict[tuple[str, bool], Batch] = {}
    expected: dict[tuple[str, bool], Rows] = {}

    def add(inside: str, text: str, rows: Rows, *, header: bool) -> Path:
        source = tmp_path / f"{len(batches)}.csv"
        source.write_bytes(text.encode())
        expected[inside, header] = rows
        batches[inside, header] = discover([str(source)], csv=CsvOptions(header=header))
        return source

    for inside in ("\n", "\r\n", "\r"):
        rows = [f'"x{inside}y",ab', '"z",cd', '"",', f'"a{inside}b","c{inside}d"', '"e""f","g"""']
        read: Rows = {(f"x{inside}y", "ab"), ("z", "cd"), (None, None), (f"a{inside}b", f"c{inside}d"), ('e"f', 'g"')}
        add(inside, "".join(row + line_end for row in ["p,q", *rows]), read, header=True)
        source = add(inside, "".join(row + line_end for row in rows), read, header=False)
        if inside == ("\n" if line_end == "\r\n" else "\r\n"):
            lake.ingest(f"{namespace}.t", source, csv=CsvOptions(header=False))
            found = lake.table(f"{namespace}.t").to_arrow().to_pylist()
            assert {tuple(row.values()) for row in found} == read
        add(f"{inside} in a single row", f'x,"y{inside}z"', {("x", f"y{inside}z")}, header=False)

    # Each file is a batch of its own; one query reads them all.
    frames = (read_batch(session_of(components), one)[0].toDF("p", "q") for one in batches.values())
    numbered = (frame.selectExpr(f"{number} AS number", "*") for number, frame in enumerate(frames))
    by_batch: list[Rows] = [set() for _ in batches]
    for number, *values in reduce(lambda one, other: one.union(other), numbered).collect():
        by_batch[number].add(tuple(values))
    assert dict(zip(batches, by_batch, strict=True)) == expected


def test_words_for_true_and_false_go_into_boolean_columns(lake: Lake, namespace: str, tmp_path: Path) -> None:
    for name, text in (("a", "id,on\n1,true\n"), ("b", "id,on\n2,Y\n3,n\n4,NA\n"), ("c", "id,on\n5,0\n6,1\n")):
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    for name in "abc":
        lake.ingest(f"{namespace}.t", tmp_path / f"{name}.csv")
    lake.ingest(f"{namespace}.u", tmp_path / "b.csv", csv=CsvOptions(types={"on": "boolean"}))
    rows = [*lake.table(f"{namespace}.t").to_arrow().to_pylist(), *lake.table(f"{namespace}.u").to_arrow().to_pylist()]
    expected = {1: True, 2: True, 3: False, 4: None, 5: False, 6: True}
    assert sorted((row["id"], row["on"] is expected[row["id"]]) for row in rows) == [
        (number, True) for number in (1, 2, 2, 3, 3, 4, 4, 5, 6)
    ]


def test_json_is_parsed_as_the_table(lake: Lake, namespace: str, tmp_path: Path) -> None:
    """Text becomes times where all of it is, numbers become what the table has; a big integer isn't rounded."""
    source = tmp_path / "[1] a b.jsonl"
    source.write_text(
        '{"ID": 12345678901234567890, "At": "2024-01-01T10:00:00Z", "deep": {"n": [1]}}\n{"ID": null}\n',
        encoding="utf-8",
    )
    run = lake.ingest(f"{namespace}.inferred", source)
    assert published(lake, run) == [
        {
            "ID": Decimal(12345678901234567890),
            "At": dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC),
            "deep": {"n": [1]},
        },
        {"ID": None, "At": None, "deep": None},
    ]
    target = f"{namespace}.typed"
    lake.ingest(target, [{"id": 1, "fee": Decimal("1.20"), "d": 0.5, "day": dt.date(2024, 1, 1), "note": "x"}])
    second = tmp_path / "typed.json"
    second.write_text('[{"note": "2024-02-01", "fee": 2, "D": 3, "day": "2024-01-02", "id": 2}]', encoding="utf-8")
    found = published(lake, lake.ingest(target, second, checks=["not_null(day)"]))
    assert found[1] == {"id": 2, "fee": Decimal("2.00"), "d": 3.0, "day": dt.date(2024, 1, 2), "note": "2024-02-01"}
    # Narrow types, a nested column without values, and files that only differ by what was inferred.
    target = f"{namespace}.narrow"
    lake.ingest(target, pa.table({"id": pa.array([1], pa.int32()), "x": [0.5], "tags": [["a"]]}))
    (tmp_path / "c.jsonl").write_text('{"id": 2, "x": 2, "tags": null}\n', encoding="utf-8")
    (tmp_path / "d.jsonl").write_text('{"id": 3, "x": 0.25, "tags": ["b"]}\n', encoding="utf-8")
    found = published(lake, lake.ingest(target, [tmp_path / "c.jsonl", tmp_path / "d.jsonl"]))
    assert found[1:] == [{"id": 2, "x": 2.0, "tags": None}, {"id": 3, "x": 0.25, "tags": ["b"]}]


def as_polars(table: pa.Table) -> Any:
    import polars as pl

    return pl.from_arrow(table)


WAYS: dict[str, Callable[[pa.Table, Lake], Any]] = {
    "arrow": lambda table, _: table,
    "batch": lambda table, _: table.to_batches()[0],
    "reader": lambda table, _: table.to_reader(),
    "polars": lambda table, _: as_polars(table),
    "pandas": lambda table, _: table.to_pandas(types_mapper=pd.ArrowDtype),
    "duckdb": lambda table, _: duckdb.from_arrow(table),
    "dicts": lambda table, _: table.to_pylist(),
    "batches": lambda table, _: (each for row in range(2) for each in table.slice(row, 1).to_batches()),
    "rows": lambda table, _: iter(table.to_pylist()),
}


def test_rows_of_every_library_are_published_once_for_each_call(
    lake: Lake, namespace: str, components: Components
) -> None:
    before, given = copies(lake), pa.Table.from_pylist(ROWS)
    table = f"{namespace}.frames"
    for count, make in enumerate(WAYS.values(), start=1):
        run = lake.ingest(table, make(given, lake), checks=["row_count(min=1)"])
        assert run.status == "published", run
        assert lake.table(table).rows == 2 * count
    run = lake.write(table, (batch for batch in given.to_batches()), run_id=f"{namespace}-1")
    assert lake.publish_run(run.run_id).status == "published"
    assert lake.ingest(table, given, run_id=run.run_id).status == "published"
    assert lake.table(table).rows == 2 * len(WAYS) + 2
    copied = lake.ingest(f"{namespace}.copied", lake.query(f"SELECT * FROM {table} WHERE id = 1"))
    assert published(lake, copied) == [ROWS[0]] * (len(WAYS) + 1)
    engine: Any = components.engine
    frame = engine.session.sql("SELECT 5 AS id, TIMESTAMP_NTZ '2024-01-01 00:00:00' AS at")
    own = lake.ingest(f"{namespace}.own", frame)
    assert published(lake, own) == [{"id": 5, "at": dt.datetime(2024, 1, 1)}]
    assert lake.ingest(f"{namespace}.again", lake.table(own.table)).status == "published"
    assert copies(lake) <= before
    for wrong in (5, [], iter(()), [{"t": dt.time()}]):
        with pytest.raises(InputError):
            lake.ingest(table, wrong)


def test_a_query_is_a_source_that_relies_on_what_it_read(lake: Lake, namespace: str) -> None:
    source, target = f"{namespace}.source", f"{namespace}.target"
    lake.ingest(source, [{"id": 1}])
    query = lake.query(f"SELECT count(*) AS id FROM {source}")
    run = lake.ingest(target, query)
    assert published(lake, run) == [{"id": 1}]
    assert run.reads == (source,)
    lake.ingest(source, [{"id": 2}])
    with pytest.raises(ConflictError, match=f"{source} changed on main after the query read it"):
        lake.ingest(target, query)
    assert lake.table(target).rows == 1


def test_copies_of_values_and_of_text_arrive_alike(lake: Lake, namespace: str, tmp_path: Path) -> None:
    """Types of what a copy holds differ from file to file, and from the table's."""
    csv = CsvOptions(numbers="accounting", delimiter=";", skip_lines=1, skip_footer=1)
    texts = {
        "a": "id;n;v;at;ok\n1;6.0;2.5;2024-01-31 10:00:00;true\n2;;8.0;;false\n",
        "b": "id;n;v;at;ok\n3;7;2.50;2024-01-31T10:00:00.5;TRUE\n",
        "c": "id;n;v;at;ok\n4;8;3;2024-02-01;NA\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    (tmp_path / "d.txt").write_text(
        "Report\nid;n;v;at;ok\n5;1,000-;$1,234.50;2024-02-02;false\n6;2;(3);;true\nTotal;;;;\n", encoding="utf-8"
    )
    source = CsvOptions(delimiter=";", types={"n": "long"})
    lake.ingest(f"{namespace}.t", [tmp_path / f"{name}.csv" for name in "abc"], csv=source)
    lake.ingest(f"{namespace}.t", tmp_path / "d.txt", format="csv", csv=csv)
    rows = lake.table(f"{namespace}.t").to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (1, 6, 2.5, dt.datetime(2024, 1, 31, 10), True),
        (2, None, 8.0, None, False),
        (3, 7, 2.5, dt.datetime(2024, 1, 31, 10, 0, 0, 500_000), True),
        (4, 8, 3.0, dt.datetime(2024, 2, 1), None),
        (5, -1000, 1234.5, dt.datetime(2024, 2, 2), False),
        (6, 2, -3.0, None, True),
    ]
    (tmp_path / "e.csv").write_text("id;n;v;at;ok\n7;x;y;z;w\n", encoding="utf-8")
    lake.ingest(f"{namespace}.text", [tmp_path / f"{name}.csv" for name in "abce"], csv=CsvOptions(delimiter=";"))
    rows = lake.table(f"{namespace}.text").to_arrow().sort_by("id").to_pylist()
    assert ["|".join(str(value) for value in row.values()) for row in rows] == [
        "1|6.0|2.5|2024-01-31 10:00:00|true",
        "2|None|8.0|None|false",
        "3|7|2.50|2024-01-31T10:00:00.5|TRUE",
        "4|8|3|2024-02-01|NA",
        "7|x|y|z|w",
    ]


def test_times_without_a_zone_become_instants_only_in_a_zone_that_is_given(
    lake: Lake, namespace: str, tmp_path: Path
) -> None:
    target, wall = f"{namespace}.t", dt.datetime(2024, 7, 1, 10)
    lake.ingest(target, [{"id": 0, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "local": wall}])
    (tmp_path / "a.csv").write_text("id,at,local\n1,2024-07-01 10:00:00,2024-07-01 10:00:00\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("id,at,local\n2,2024-07-01T10:00,2024-07-01T10:00\n", encoding="utf-8")
    (tmp_path / "c.json").write_text('{"id": 3, "at": "2024-07-01T10:00:00", "local": "2024-07-01T10:00:00"}')
    pq.write_table(pa.table({"id": [4], "at": [wall], "local": [wall]}), tmp_path / "d.parquet")
    (tmp_path / "e.csv").write_text("id,at,local\n5,2024-07-01T08:00:00Z,2024-07-01 10:00:00\n", encoding="utf-8")
    for name in ("a.csv", "b.csv", "c.json", "d.parquet"):
        with pytest.raises(SchemaError, match=r"its times have no zone: .* timezone"):
            lake.ingest(target, tmp_path / name)
    for name in ("a.csv", "b.csv", "c.json", "d.parquet", "e.csv"):
        lake.ingest(target, tmp_path / name, timezone="Europe/Berlin")
    rows = lake.table(target).to_arrow().sort_by("id").to_pylist()[1:]
    assert [(row["at"], row["local"]) for row in rows] == [(dt.datetime(2024, 7, 1, 8, tzinfo=dt.UTC), wall)] * 5
    new = lake.ingest(f"{namespace}.new", tmp_path / "a.csv", timezone="Europe/Berlin")
    assert published(lake, new)[0]["at"] == dt.datetime(2024, 7, 1, 8, tzinfo=dt.UTC)
    assert published(lake, lake.ingest(f"{namespace}.plain", tmp_path / "a.csv"))[0]["at"] == wall
    # Clocks skip an hour in spring, and in autumn the first of two is taken.
    (tmp_path / "f.csv").write_text("id,at,local\n6,2024-03-31 02:30:00,2024-07-01 10:00:00\n", encoding="utf-8")
    (tmp_path / "g.csv").write_text("id,at,local\n7,2024-10-27 02:30:00,2024-07-01 10:00:00\n", encoding="utf-8")
    with pytest.raises(SourceError, match="'at'"):
        lake.ingest(target, tmp_path / "f.csv", timezone="Europe/Berlin")
    last = lake.ingest(target, tmp_path / "g.csv", timezone="Europe/Berlin")
    assert published(lake, last)[-1]["at"] == dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)
    with pytest.raises(InputError, match="no time zone 'Mars'"):
        lake.ingest(target, tmp_path / "g.csv", timezone="Mars")


def test_csv_as_germans_write_it_arrives_as_they_mean_it(lake: Lake, namespace: str, tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text(
        "id;betrag;tag;zeit;plz\n1;1.234,56;31.1.2024;1.2.2024 7:05;00501\n2;-0,5;NA;;12345\n", encoding="utf-8"
    )
    (tmp_path / "c.csv").write_text("id;x;ja\n1;1.000,5;NA\n2;-Inf;true\n", encoding="utf-8")
    numbers = lake.ingest(f"{namespace}.numbers", tmp_path / "c.csv", csv=CsvOptions(delimiter=";", decimal=","))
    assert published(lake, numbers) == [{"id": 1, "x": 1000.5, "ja": None}, {"id": 2, "x": -math.inf, "ja": True}]
    csv = CsvOptions(
        delimiter=";",
        decimal=",",
        date_format="%d.%m.%Y",
        timestamp_format="%d.%m.%Y %H:%M",
        types={"betrag": "decimal(9, 2)", "plz": "string"},
    )
    wanted = [
        {
            "id": 1,
            "betrag": Decimal("1234.56"),
            "tag": dt.date(2024, 1, 31),
            "zeit": dt.datetime(2024, 2, 1, 7, 5),
            "plz": "00501",
        },
        {"id": 2, "betrag": Decimal("-0.50"), "tag": None, "zeit": None, "plz": "12345"},
    ]
    run = lake.ingest(f"{namespace}.german", source, csv=csv)
    assert published(lake, run) == wanted
    again = lake.ingest(run.table, source, csv=csv.model_copy(update={"types": {}}), on_changed="append")
    assert again.status == "skipped"
    (tmp_path / "b.csv").write_text("id;betrag;tag;zeit;plz\n3;7,25;1.1.2024;1.1.2024 0:00;1\n", encoding="utf-8")
    more = lake.ingest(run.table, tmp_path / "b.csv", csv=csv.model_copy(update={"types": {}}))
    assert published(lake, more)[2]["betrag"] == Decimal("7.25")


def test_a_damaged_page_is_never_published(lake: Lake, namespace: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(3)}), tmp_path / "a.parquet")
    write_flipped(tmp_path / "b.parquet", wrong=500)
    with pytest.raises(SourceError, match=r"b\.parquet' is damaged: the checksum of one of its pages is wrong"):
        lake.ingest(f"{namespace}.flipped", tmp_path)
    assert f"{namespace}.flipped" not in map(str, lake.tables())


def test_whole_numbers_and_bytes_of_text_go_into_columns_of_integers_and_text(
    lake: Lake, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.whole"
    lake.ingest(table, [{"id": 1, "n": 1, "name": "a"}])

    def ingest(**values: Any) -> Run:
        row = {"id": 2.0, "n": Decimal("3.00"), "name": "é".encode()} | values
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "b.parquet")
        return lake.ingest(table, tmp_path, on_changed="append")

    pq.write_table(pa.Table.from_pylist([{"id": 9.0, "n": Decimal("9.00"), "name": b"z"}]), tmp_path / "a.parquet")
    rows = published(lake, ingest())
    assert [tuple(row.values()) for row in rows] == [(1, 1, "a"), (2, 3, "é"), (9, 9, "z")]
    for column, value in {"id": 2.5, "n": Decimal("3.10"), "name": b"\xff"}.items():
        with pytest.raises(SourceError, match=rf"column '{column}' .*b\.parquet"):
            ingest(**{column: value})
    with pytest.raises(SourceError, match="column 'id'"):
        ingest(id=2.0**63)
    assert lake.table(table).to_arrow().num_rows == 3


def test_a_name_that_looks_like_a_column_of_the_table_is_refused(lake: Lake, namespace: str) -> None:
    table = f"{namespace}.twins"
    lake.ingest(table, [{"id": 1, "caf\xe9": "a"}])
    with pytest.raises(SchemaError, match=r"column 'cafe\\u0301' looks like 'caf\\xe9' of"):
        lake.ingest(table, [{"id": 2, "cafe\u0301": "b"}], schema="evolve")
    run = lake.ingest(table, [{"id": 2, "cafe\u0301": "b"}], columns={"cafe\u0301": "caf\xe9"})
    assert [row["caf\xe9"] for row in published(lake, run)] == ["a", "b"]
