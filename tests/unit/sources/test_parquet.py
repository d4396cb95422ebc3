"""Parquet files by their footers: damage, types and schemas."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import SchemaError, SourceError
from lakegate.sources import discover
from lakegate.sources.sample import inspect
from support.parquet_files import write_flipped


def write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_rows_and_columns(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", i=pa.array([1, 2]), t=pa.array([0], pa.timestamp("ns")).take([0, 0]))
    write(tmp_path / "a.parquet", I=pa.array([], pa.int64()), t=pa.array([], pa.timestamp("ns")))
    batch = discover([str(tmp_path)])
    assert batch.format == "parquet"
    assert [(Path(file.uri).name, file.rows) for file in batch.files] == [("a.parquet", 0), ("b.parquet", 2)]
    assert [(column.name, column.type) for column in batch.columns] == [("I", "int64"), ("t", "timestamp[ns]")]
    assert (batch.rows, batch.csv) == (2, None)


def test_a_file_without_ending_is_known_by_its_magic_bytes(tmp_path: Path) -> None:
    assert discover([str(write(tmp_path / "data", i=[1]))]).format == "parquet"


def damaged(tmp_path: Path) -> Iterator[tuple[str, bytes, str]]:
    whole = write(tmp_path / "whole.parquet", i=list(range(1000))).read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little")
    yield "truncated", whole[:-100], "cut off"
    yield "magic", b"PAR1", "cut off"
    yield "text", b"a,b\n1,2\n", "doesn't start with PAR1"
    yield "encrypted", b"PARE" + whole[4:-4] + b"PARE", "is encrypted parquet"
    yield "footer", whole[: -footer - 8] + b"\xff" * footer + whole[-8:], "footer can't be read"
    yield "length", whole[:-8] + b"\xff\xff\xff\x7f" + whole[-4:], "footer can't be read"
    yield "zero", b"", r"is empty \(0 bytes\)"


def test_damaged_files(tmp_path: Path) -> None:
    for name, content, words in damaged(tmp_path):
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(content)
        with pytest.raises(SourceError, match=words) as caught:
            discover([str(path)])
        assert name in caught.value.message
        assert caught.value.hint


REFUSED = {
    "time32[ms]": pa.array([1], pa.time32("ms")),
    "time64[us]": pa.array([1], pa.time64("us")),
    "duration[us]": pa.array([1], pa.duration("us")),
    "halffloat": pa.array([1.5], pa.float16()),
    "decimal256(40, 2)": pa.array([Decimal("1.5")], pa.decimal256(40, 2)),
    "uuid": pa.array([b"0123456789abcdef"], pa.uuid()),
    "struct<t: time64[us]>": pa.array([{"t": dt.time(1)}]),
    "list<element: timestamp[ns]>": pa.array([[1]], pa.list_(pa.timestamp("ns"))),
}


@pytest.mark.parametrize("text", REFUSED)
def test_types_that_spark_and_iceberg_cannot_hold(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "a.parquet", good=[1], bad=REFUSED[text])
    with pytest.raises(SchemaError, match="column 'bad' has type") as caught:
        discover([str(file)])
    assert text in caught.value.message
    assert caught.value.hint


ACCEPTED = [
    (pa.array([1], pa.uint64()), "uint64"),
    (pa.array([1], pa.timestamp("us", tz="America/New_York")), "timestamp[us, tz=UTC]"),
    (pa.array(["x"]).dictionary_encode(), "string"),
    (pa.array(["x"], pa.large_string()), "string"),
    (pa.array([b"xyz"], pa.binary(3)), "binary"),
    (pa.array([Decimal("1.5")], pa.decimal256(30, 2)), "decimal128(30, 2)"),
    (pa.array([[1]], pa.large_list(pa.int64())), "list<element: int64>"),
    (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "map<string, int64>"),
    (pa.array([{"a": 1}]), "struct<a: int64>"),
    (pa.nulls(1), "null"),
    (pa.array(["{}"], pa.json_()), "string"),
]


@pytest.mark.parametrize(("array", "text"), ACCEPTED)
def test_types_as_spark_sees_them(tmp_path: Path, array: Any, text: str) -> None:
    (column,) = discover([str(write(tmp_path / "a.parquet", c=array))]).columns
    assert column.type == text


def test_int96_timestamps_are_instants(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert discover([str(tmp_path)]).columns[0].type == "timestamp[us, tz=UTC]"


def test_order_case_and_nullability_make_no_difference(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", a=[1], b=["x"])
    fields: Any = [pa.field("B", pa.string(), nullable=False), pa.field("A", pa.int64())]
    pq.write_table(pa.table({"B": ["y"], "A": [2]}, schema=pa.schema(fields)), tmp_path / "b.parquet")
    assert discover([str(tmp_path)]).rows == 2


@pytest.mark.parametrize("nested", [lambda kind: kind, pa.list_], ids=["struct", "list"])
def test_the_order_of_a_struct_s_fields_makes_no_difference(tmp_path: Path, nested: Any) -> None:
    fields = [("a", pa.int32()), ("b", pa.struct([("x", pa.string()), ("y", pa.date32())]))]
    other = [("B", pa.struct([("y", pa.date32()), ("x", pa.string())])), ("a", pa.int32())]
    for name, kind in (("a", fields), ("b", other)):
        schema = pa.schema([("s", nested(pa.struct(kind)))])
        pq.write_table(pa.table({"s": [None]}, schema=schema), tmp_path / f"{name}.parquet")
    assert len(discover([str(tmp_path)]).parts()) == 2  # each file is read by its own names
    pq.write_table(pa.table({"s": pa.array([None], nested(pa.struct(fields[:1])))}), tmp_path / "c.parquet")
    with pytest.raises(SchemaError, match=r"c\.parquet' doesn't have the columns of"):
        discover([str(tmp_path)])


def test_every_difference_of_schema_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", i=[1], f=[1.5], gone=["x"])
    write(tmp_path / "b.parquet", i=[1], f=[1.5], gone=["x"])
    write(tmp_path / "c.parquet", i=["1"], f=[1], new=[True])
    with pytest.raises(SchemaError) as caught:
        discover([str(tmp_path)])
    assert "c.parquet' doesn't have the columns of" in caught.value.message
    for words in (
        "'i' is string instead of int64",
        "'f' is int64 instead of double",
        "'gone' (string) is missing",
        "'new' (bool) is additional",
    ):
        assert words in caught.value.message


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a", "a"], "2 columns with the same name: 'a', 'a'"),
        (["Fee", "fee"], "'Fee', 'fee' "),
        (["a", ""], "column 2 has no name"),
        (["a", "_Pos"], "column '_Pos' has the name of an Iceberg metadata column"),
        ([], "has no columns"),
    ],
)
def test_column_names(tmp_path: Path, names: list[str], words: str) -> None:
    arrays = [pa.array([1])] * len(names)
    pq.write_table(pa.Table.from_arrays(arrays, names=names), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=words):
        discover([str(tmp_path)])


def test_names_inside_structs(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", s=pa.array([{"x": 1, "X": 2}]))
    with pytest.raises(SchemaError, match="are inside 's'"):
        discover([str(tmp_path)])


@pytest.mark.parametrize(
    ("name", "nested"), [("a.b", [{"b": 1}]), ("A.element.b", [[{"b": 1}]]), ("a.b.c", [{"b.c": 1}])]
)
def test_a_column_may_not_have_the_full_name_of_a_field(tmp_path: Path, name: str, nested: list[Any]) -> None:
    write(tmp_path / "a.parquet", **{name: [1], "a": nested})
    with pytest.raises(SchemaError, match=f"have the full name '{name.lower()}'"):
        discover([str(tmp_path)])
    write(tmp_path / "a.parquet", **{"b.b": [1], "a": nested})
    assert discover([str(tmp_path)]).rows == 1


def test_mixed_formats(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", i=[1])
    (tmp_path / "b.csv").write_text("i\n1\n")
    with pytest.raises(SourceError, match="mixes formats"):
        discover([str(tmp_path)])
    assert discover([str(tmp_path)], format="csv").format == "csv"
    assert discover([str(tmp_path)], format="parquet").format == "parquet"


def test_real_files(request: pytest.FixtureRequest) -> None:
    data = request.config.rootpath.parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip("the shared data isn't in this checkout")
    batch = discover([str(data / "green_tripdata_2024-01.parquet")])
    assert (batch.rows, len(batch.columns)) == (56_551, 20)
    with pytest.raises(SourceError, match=r"yellow_truncated\.parquet' is cut off"):
        discover([str(data / "yellow_truncated.parquet")])


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (pa.array([10**18], pa.timestamp("us")), "+33658-09-27T01:46:40"),
        (pa.array([10**7], pa.date32()), "+29349-01-26"),
        (pa.array([b"\xff\xfe"]).view(pa.string()), r"\xff\xfe"),
    ],
)
def test_first_rows_have_values_that_python_cannot_represent(tmp_path: Path, values: Any, shown: str) -> None:
    pq.write_table(pa.table({"value": values}), tmp_path / "a.parquet")
    assert inspect([str(tmp_path / "a.parquet")]).rows == ({"value": shown},)


def test_damaged_rows_are_refused_by_an_inspection(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"value": ["a" * 1000]}), path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(40) + content[44:])
    with pytest.raises(SourceError, match=r"a\.parquet' is damaged: its rows can't be read"):
        inspect([str(path)])


def test_a_codec_that_spark_lacks_is_named(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "tags": [["a"]]})
    for codec in ("snappy", "gzip", "zstd", "lz4", "none"):
        pq.write_table(table, tmp_path / "a.parquet", compression=codec)
        assert discover([str(tmp_path)]).rows == 1
    pq.write_table(table, tmp_path / "a.parquet", compression={"id": "snappy", "tags.list.element": "brotli"})
    with pytest.raises(SourceError, match="is compressed with Brotli, which Spark can't read"):
        discover([str(tmp_path)])


def test_text_of_any_logical_type_is_text_and_null_keys_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"s": ["x"]}), tmp_path / "a.parquet", store_schema=False)
    enum = (
        (tmp_path / "a.parquet").read_bytes().replace(b"\x25\x00\x4c\x1c\x00\x00\x00", b"\x25\x08\x4c\x4c\x00\x00\x00")
    )
    (tmp_path / "b.parquet").write_bytes(enum)
    assert str(pq.ParquetFile(tmp_path / "b.parquet").schema.column(0).logical_type) == "Enum"
    batch = discover([str(tmp_path)])
    assert [column.type for column in batch.columns] == ["string"]
    assert not batch.variants
    pq.write_table(pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))}), tmp_path / "c.parquet")
    required = (tmp_path / "c.parquet").read_bytes()
    (tmp_path / "c.parquet").write_bytes(
        required.replace(b"\x15\x0c\x25\x00\x18\x03key", b"\x15\x0c\x25\x02\x18\x03key")
    )
    with pytest.raises(SourceError, match="has a map whose keys may be NULL"):
        discover([str(tmp_path / "c.parquet")])


def test_an_integer_of_128_bits_is_not_called_damaged(tmp_path: Path) -> None:
    pl.DataFrame({"n": pl.Series([1], dtype=pl.Int128)}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"has a column of a type that can't be read .*64 bits"):
        discover([str(tmp_path)])


def test_a_damaged_page_is_found_by_its_checksum(tmp_path: Path) -> None:
    write_flipped(tmp_path / "a.parquet", wrong=500)
    with pytest.raises(SourceError, match=r"a.parquet' is damaged: its rows can't be read .*CRC"):
        inspect([str(tmp_path / "a.parquet")])


@pytest.mark.parametrize(
    "names", [("id", "id\u200b"), ("\ufeffid", "id"), ("a b", "A\xa0b"), ("caf\xe9", "cafe\u0301"), ("id", "id ")]
)
def test_names_that_look_the_same_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    pq.write_table(pa.table({name: [1] for name in names}), tmp_path / "both.parquet")
    for name, file in zip(names, "ab", strict=True):
        pq.write_table(pa.table({name: [1]}), tmp_path / f"{file}.parquet")
    escapes = [name.encode("ascii", "backslashreplace").decode() for name in names]
    for files in (["both"], ["a", "b"]):
        with pytest.raises(SchemaError) as caught:
            discover([str(tmp_path / f"{file}.parquet") for file in files], may_differ=True)
        assert all(f"'{name}'" in caught.value.message for name in escapes)
