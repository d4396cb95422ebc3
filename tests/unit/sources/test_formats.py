"""Formats that parquet is made of: each value exactly, and whatever can't be taken said by line, field or cell."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import shutil
import uuid
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from lakegate.errors import LakegateError, SchemaError
from lakegate.model.batch import Batch
from lakegate.model.schema import Column
from lakegate.sources import changed_files, discover, from_uri
from lakegate.sources import json as json_source
from lakegate.wap.schema_fit import rounding


def read(tmp_path: Path, name: str, content: str | bytes) -> tuple[Batch, list[dict[str, Any]]]:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    batch = discover([str(tmp_path / name)], copies=tmp_path / "copies")
    return batch, rows_of(batch)


def rows_of(batch: Batch) -> list[dict[str, Any]]:
    found = [pq.read_table(from_uri(uri)).to_pylist() for uri in batch.read_uris]
    return [row for rows in found for row in rows]


def types(batch: Batch) -> dict[str, str]:
    return {column.name: column.type for column in batch.columns}


def packed(text: str) -> bytes:
    made = pa.compress(text.encode(), "zstd", asbytes=True)
    assert isinstance(made, bytes)
    return made


def sheet(*rows: str, other: bool = False) -> bytes:
    """Return a workbook, each row's cells as XML."""
    made = io.BytesIO()
    names = ("Sheet1", "Sheet2") if other else ("Sheet1",)
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    numbered = "".join(f'<row r="{number}">{cells}</row>' for number, cells in enumerate(rows, start=1))
    with zipfile.ZipFile(made, "w") as book:
        book.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="xml" ContentType="application/xml"/></Types>',
        )
        book.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId1" Type="{office}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        listed = "".join(f'<sheet name="{name}" sheetId="{n}" r:id="rId{n}"/>' for n, name in enumerate(names, start=1))
        book.writestr("xl/workbook.xml", f'<workbook {main} xmlns:r="{office}"><sheets>{listed}</sheets></workbook>')
        related = "".join(
            f'<Relationship Id="rId{n}" Type="{office}/worksheet" Target="worksheets/sheet{n}.xml"/>'
            for n, _ in enumerate(names, start=1)
        )
        styles = f'<Relationship Id="rId9" Type="{office}/styles" Target="styles.xml"/>'
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{package}/relationships">{related}{styles}</Relationships>',
        )
        book.writestr(
            "xl/styles.xml", f'<styleSheet {main}><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>'
        )
        for n, _ in enumerate(names, start=1):
            data = f"<worksheet {main}><sheetData>{numbered}</sheetData></worksheet>"
            book.writestr(f"xl/worksheets/sheet{n}.xml", data)
    return made.getvalue()


def text_cell(at: str, value: str) -> str:
    return f'<c r="{at}" t="inlineStr"><is><t>{value}</t></is></c>'


def number_cell(at: str, value: float, *, style: int = 0) -> str:
    return f'<c r="{at}" s="{style}"><v>{value}</v></c>'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"n": 1, "s": "x"}\n{"n": 2, "s": null}\n'),
        ("a.ndjson", '{"n": 1, "s": "x"}\r\n\r\n{"n": 2}'),
        ("a.json", '\ufeff[{"n": 1, "s": "x"},\n {"n": 2,\n  "s": null}]'),
        ("b.json", '{\n  "n": 1,\n  "s": "x"\n}\n{"n": 2}'),
        ("a.jsonl.gz", gzip.compress(b'{"n": 1, "s": "x"}\n{"n": 2}\n')),
        ("a.jsonl.zst", packed('{"n": 1, "s": "x"}\n{"n": 2}\n')),
    ],
)
def test_json_is_read_as_it_comes(tmp_path: Path, name: str, content: str | bytes) -> None:
    batch, rows = read(tmp_path, name, content)
    assert (batch.format, batch.rows) == ("json", 2)
    assert types(batch) == {"n": "int64", "s": "string"}
    assert rows == [{"n": 1, "s": "x"}, {"n": 2, "s": None}]


@pytest.mark.parametrize("at_once", [16 << 20, 40])
def test_json_keeps_each_value_exactly(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_source, "_BLOCK_BYTES", at_once)
    monkeypatch.setattr(json_source, "_KEPT_BYTES", at_once)
    lines = [
        '{"big": 1, "mixed": 1, "when": "2024-01-01T00:00:00Z", "day": "2024-01-01", "code": "2024-01-01"}',
        '{"big": 12345678901234567890, "mixed": null, "when": null, "day": "2024-02-01", "code": "x"}',
        '{"mixed": 2.5, "deep": {"list": [{"a": 1}, {"b": "2024-01-01"}], "none": {}}}',
        '{"mixed": -9007199254740991, "deep": null, "late": false}',
    ]
    batch, rows = read(tmp_path, "a.jsonl", "\n".join(lines))
    assert types(batch) == {
        "big": "decimal128(38, 0)",
        "mixed": "double",
        "when": "timestamp[us, tz=UTC]",
        "day": "date32[day]",
        "code": "string",
        "deep": "struct<list: list<element: struct<a: int64, b: string>>, none: string>",
        "late": "bool",
    }
    assert [row["big"] for row in rows] == [Decimal(1), Decimal(12345678901234567890), None, None]
    assert [row["mixed"] for row in rows] == [1.0, None, 2.5, -9007199254740991.0]
    # Text stays what it was: what it is parsed as is up to the table.
    assert [row["day"] for row in rows] == ["2024-01-01", "2024-02-01", None, None]
    assert rows[2]["deep"] == {"list": [{"a": 1, "b": None}, {"a": None, "b": "2024-01-01"}], "none": None}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"id": 1}\n{"id": "x"}\n', "line 2: 'id' is text, but was a number before (line 1)"),
        ('{"id": {"a": 1}}\n{"id": [1]}\n', "line 2: 'id' is a list, but was an object before"),
        ('{"id": {"a": 1}}\n\n{"id": {"a": true}}\n', "line 3: 'id.a' is true or false, but was a number before"),
        ('{"id": [1, "a"]}\n', "line 1: 'id[]' is text, but was a number before"),
        ('{"id": 9007199254740993}\n{"id": 0.5}\n', "'id' has fractions, and numbers beyond 2^53 that a double"),
        ('{"id": 1.5}\n{"id": 12345678901234567.5}\n', "that a double would round (about line 2)"),
        ('{"id": 1}\n{"id":\n', "line 2 isn't valid JSON: Expecting value"),
        ('{"id": 1}\n{"\\ud800": 1}\n', "line 2 isn't valid JSON: 'utf-8' codec can't encode character '\\ud800'"),
        ('{"id": 1}\n\n{"id": 1e999}\n', "line 3 isn't valid JSON: 1e999 is too large for a double"),
        ('{"id": 1}\n\n{"id": ' + "9" * 39 + "}", f"line 3 isn't valid JSON: {'9' * 39} has more than 38 digits"),
        ('{"id": 1}\n\ufeff{"id": 1}\n', "line 2 isn't valid JSON: Unexpected UTF-8 BOM"),
        ('{"id": 1}\n\f\n', "line 2 isn't valid JSON"),
        ('[\n{"id": 1},\n{\n"id":\n2},\n{"id": "x"}]', "line 6: 'id' is text, but was a number before (line 2)"),
        ('{\n"id": 1}\n\n{"id": -1e999}', "line 4 isn't valid JSON: -1e999 is too large for a double"),
        ('{"id": 1, "id": 2}\n', "line 1 isn't valid JSON: the key 'id' occurs twice"),
        ('{"id": 1}\n[2]\n', "line 2 is a list, not an object"),
        ('null\n{"id": 4}\n', "line 1 is null, not an object"),
        ('{"id": "} null", "o": {}}\n null \n{"id": "x"}', "line 2 is null, not an object"),
        ('{"id": 1}\n{"id": 1} null\n', "line 2 is null, not an object"),
        ('[{"id": 1} {"id": 2}]', "Expecting ',' or ']'"),
        ('[{"id": 1}', "Expecting ',' or ']'"),
        ("[", "The list has no end"),
        ('[{"id": 1}, 2]', "expected an object, not a number"),
        ('[{"id": 1}] []', "Something follows the list"),
        ("[]", "has no JSON object with a key"),
        ("\n \n", "has no JSON object with a key"),
        ("", "is empty (0 bytes)"),
        ("id,name\n1,a\n", "line 1 isn't valid JSON"),
        ('{"id": 1, "ID": 2}\n', "2 columns with the same name"),
        ('{"_pos": 1}\n', "has the name of an Iceberg metadata column"),
        ('{"": 1}\n', "column 1 has no name"),
        ('{"id": "\udcfc"}'.encode("utf-8", "surrogateescape"), "isn't UTF-8: byte 0xfc on line 1"),
        ('{"id": 1}'.encode("utf-16"), "is UTF-16"),
        (b"PAR1....PAR1", "is parquet, not JSON"),
    ],
)
def test_bad_json_is_refused_by_line(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(LakegateError) as refused:
        read(tmp_path, "a.jsonl", content)
    assert words in refused.value.message
    assert refused.value.hint
    assert refused.value.exit_code == 2


def test_json_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    for depth in (300, 200_000):
        with pytest.raises(LakegateError, match="nested too deeply"):
            read(tmp_path, "a.jsonl", '{"b": 1}\n{"a":' + "[" * depth + "]" * depth + "}")
    wide, _ = read(tmp_path, "a.jsonl", '{"a": [' + '{"b": "[[["},' * 300 + '{"b": null}], "c": "} null"}')
    assert wide.rows == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl.gz", gzip.compress(b'{"id": 1}\n' * 999)[:-12], "is damaged gzip"),
        ("a.jsonl.zst", packed('{"id": 1}\n' * 999)[:-6], "is damaged zstd"),
        ("a.jsonl.gz", b'{"id": 1}', "ends in .gz but isn't gzip"),
        ("a.jsonl.zst", b'{"id": 1}', "ends in .zst but isn't zstd"),
        ("a.jsonl", packed('{"id": 1}'), "is compressed with zstd"),
        ("a.jsonl.bz2", b"BZh91AY", "is compressed with bzip2"),
        ("a.avro", b'{"id": 1}', "isn't an Avro file, although it's named so"),
        ("a.orc", b"PK\x03\x04....", "is a zip archive (or an Excel workbook), not an ORC file"),
        ("a.avro", b"Obj\x01garbage", "is a damaged Avro file"),
        ("a.xlsx", sheet(text_cell("A1", " ")), "has no sheet with rows"),
        ("a.orc", b"ORCgarbage", "is a damaged ORC file"),
        ("a.xlsx", b"PK\x03\x04garbage", "can't be read as a workbook"),
        ("a.xlsx", sheet(text_cell("A1", "id"), other=True), "has 2 sheets with rows: 'Sheet1', 'Sheet2'"),
        ("a.xlsx", sheet(), "has no sheet with rows"),
        (
            "a.xlsx",
            sheet(text_cell("A1", "id"), number_cell("A2", 1), text_cell("A3", "x")),
            "cell A3 is of type text, but the cells above it are of type number",
        ),
        ("a.xlsx", sheet(text_cell("A1", "id"), number_cell("B2", 1)), "cell B2 has no header above it"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    with pytest.raises(LakegateError) as refused:
        read(tmp_path, name, content)
    assert words in refused.value.message
    assert refused.value.exit_code == 2


AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "i", "type": ["null", "int"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "fee", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "parts", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
        {"name": "none", "type": "null"},
    ],
}


def avro(schema: dict[str, Any], rows: list[dict[str, Any]]) -> bytes:
    made = io.BytesIO()
    fastavro.writer(made, schema, rows)
    return made.getvalue()


def test_avro_keeps_declared_types(tmp_path: Path) -> None:
    row = {
        "i": None,
        "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        "local": dt.datetime(1500, 1, 1),
        "fee": Decimal("1.20"),
        "key": uuid.UUID(int=5),
        "kind": "B",
        "parts": [{"a": 0.1}],
        "none": None,
    }
    batch, rows = read(tmp_path, "a.avro", avro(AVRO, [row, {**row, "i": 7}]))
    assert types(batch) == {
        "i": "int32",
        "at": "timestamp[us, tz=UTC]",
        "local": "timestamp[us]",
        "fee": "decimal128(10, 2)",
        "key": "string",
        "kind": "string",
        "parts": "list<element: map<string, double>>",
        "none": "null",
    }
    assert rows[1] == {**row, "i": 7, "key": str(row["key"]), "parts": [[("a", 0.1)]]}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (["null", "R"], "field 'x' is recursive (R)"),
        (["int", "string"], "field 'x' is a union of several types"),
        ({"type": "int", "logicalType": "time-millis"}, "column 'x' has type time32[ms]"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "field 'x' is a decimal with 50 digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, "field 'x' is a decimal with 0 digits"),
        ({"type": "bytes", "logicalType": "decimal"}, "field 'x' is a decimal with 0 digits"),
        ({"type": "bytes", "logicalType": "big-decimal"}, "field 'x' is a big-decimal"),
    ],
)
def test_avro_types_that_no_table_holds_are_refused(tmp_path: Path, kind: Any, words: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    with pytest.raises(LakegateError) as refused:
        read(tmp_path, "a.avro", avro(schema, []))
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("kind", "logical", "value", "expected"),
    [
        ("int", "timestamp-millis", 5, "int32"),
        ("long", "date", 19_000, "int64"),
        ("long", "decimal", 19_000, "int64"),
        ("string", "date", "2024", "string"),
    ],
)
def test_what_avro_says_of_another_type_means_nothing(
    tmp_path: Path, kind: str, logical: str, value: Any, expected: str
) -> None:
    declared = {"type": kind, "logicalType": logical, "precision": 9, "scale": 2}
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": declared}]}
    batch, rows = read(tmp_path, "a.avro", avro(schema, [{"x": value}]))
    assert types(batch) == {"x": expected}
    assert rows == [{"x": value}]


def test_orc_keeps_declared_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int32()),
            "at": pa.array([dt.datetime(1700, 1, 1, 0, 0, 0, 1), None], pa.timestamp("us")),
            "fee": [Decimal("1.20"), None],
            "parts": pa.array([{"a": [1]}, None], pa.struct([("a", pa.list_(pa.int64()))])),
        }
    )
    orc.write_table(table, str(tmp_path / "a.orc"))
    batch = discover([str(tmp_path / "a.orc")], copies=tmp_path / "copies")
    assert types(batch)["at"] == "timestamp[us]"
    assert rows_of(batch) == table.to_pylist()
    orc.write_table(pa.table({"at": pa.array([dt.datetime(1500, 1, 1)], pa.timestamp("us"))}), str(tmp_path / "b.orc"))
    with pytest.raises(LakegateError, match="before 1677"):
        discover([str(tmp_path / "b.orc")], copies=tmp_path / "copies")


@pytest.mark.parametrize(
    ("days", "kind"),
    [
        ([dt.date(1582, 10, 14)], pa.date32()),
        ([[None], None, [dt.date(2024, 1, 1), dt.date(1, 1, 1)]], pa.list_(pa.date32())),
        ([None, {"a": {"b": dt.date(1, 1, 1)}}], pa.struct([("a", pa.struct([("b", pa.date32())]))])),
        ([[("first", dt.date(1, 1, 1))]], pa.map_(pa.string(), pa.date32())),
    ],
)
def test_a_julian_day_in_orc_is_refused(tmp_path: Path, days: list[Any], kind: pa.DataType) -> None:
    """Hive and Spark count days before 1582-10-15 by the Julian calendar; Arrow reads them as Gregorian days."""
    file = tmp_path / "a.orc"
    orc.write_table(pa.table({"day": pa.array(days, kind)}), str(file), compression="UNCOMPRESSED")
    batch = discover([str(file)], copies=tmp_path / "copies")
    assert rows_of(batch) == [{"day": one} for one in days]
    of_arrow, of_java = b"\x48\x01", b"\x48\x00"  # the footer's field 9
    assert file.read_bytes().count(of_arrow) == 1
    file.write_bytes(file.read_bytes().replace(of_arrow, of_java))
    with pytest.raises(LakegateError, match="has a date before 1582-10-15"):
        discover([str(file)], copies=tmp_path / "copies")


def test_a_sheet_has_the_types_of_its_cells(tmp_path: Path) -> None:
    header = "".join(
        text_cell(f"{at}1", name) for at, name in zip("ABCDE", ("id", "fee", "day", "na", "x"), strict=True)
    )
    first = number_cell("A2", 1) + number_cell("B2", 1.5) + number_cell("C2", 45292, style=1) + text_cell("D2", "NA")
    second = number_cell("A4", 2) + number_cell("B4", 2) + number_cell("D4", 7) + text_cell("C4", "")
    year = sheet(number_cell("A1", 2024), number_cell("A2", 1.5))
    assert types(read(tmp_path, "years.xlsx", year)[0]) == {"2024": "double"}
    framed = sheet("", text_cell("B2", "id") + text_cell("D2", "v"), number_cell("B3", 7) + number_cell("D3", 8))
    assert read(tmp_path, "framed.xlsx", framed)[1] == [{"id": 7, "v": 8}]
    batch, rows = read(tmp_path, "a.xlsx", sheet(header, first, "", second))
    assert types(batch) == {"id": "int64", "fee": "double", "day": "date32[day]", "na": "int64", "x": "null"}
    assert rows == [
        {"id": 1, "fee": 1.5, "day": dt.date(2024, 1, 1), "na": None, "x": None},
        {"id": 2, "fee": 2.0, "day": None, "na": 7, "x": None},
    ]


def test_numbers_of_json_that_no_int_holds_are_known_by_their_fields(tmp_path: Path) -> None:
    rows = (
        '{"n": 1, "at": {"X": 1, "y": -2147483648, "z": "2024-01-01"}, "l": [[1], []], "m": [{"k": 1}]}',
        '{"N": 2147483648, "At": {"x": null, "Y": 2147483647}, "l": [[1, -2147483649]], "m": null}',
        '{"n": 2, "at": {"X": 2147483648}, "l": null, "m": [{"k": null}, {"k": 9007199254740993}]}',
    )
    for name, row in zip("abc", rows, strict=True):
        (tmp_path / f"{name}.jsonl").write_text(row, encoding="utf-8")
    texts = {one.name: one for one in discover([str(tmp_path)], copies=tmp_path / "copies", may_differ=True).texts}
    assert (texts["n"].digits, texts["n"].beyond_int) == (10, True)
    assert {name: one.fields_beyond_int for name, one in texts.items() if one.fields_beyond_int} == {
        "at": (("x",),),
        "l": (("element", "element"),),
        "m": (("element", "k"),),
    }


def test_files_of_a_batch_agree_on_what_was_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1, "t": "2024-01-01", "z": null}\n', encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"n": 1.5, "t": "soon", "z": 5}\n', encoding="utf-8")
    batch = discover([str(tmp_path)], copies=tmp_path / "copies")
    assert [part.columns[0].type for part in batch.parts()] == ["double", "double"]
    (tmp_path / "ab").mkdir()
    for name, number in (("a", 1), ("b", 0.5)):
        (tmp_path / "ab" / f"{name}.jsonl").write_text(f'{{"n": {number}}}\n', encoding="utf-8")
    assert len(discover([str(tmp_path / "ab")], copies=tmp_path / "ab" / ".copies").parts()) == 2
    shutil.rmtree(tmp_path / "ab")
    assert {part.columns[1].type for part in batch.parts()} == {"string"}
    (tmp_path / "a.jsonl").write_text('{"n": 9007199254740993, "t": "2024-01-01", "z": null}\n', encoding="utf-8")
    with pytest.raises(
        LakegateError, match=r"has a number in '.*', which a double would round, and fractions in another"
    ) as refused:
        discover([str(tmp_path)], copies=tmp_path / "copies")
    assert "9007199254740993" in str(refused.value.detail)
    (tmp_path / "a.jsonl").write_text('{"n": 1, "t": "2024-01-01", "z": null}\n', encoding="utf-8")
    (tmp_path / "c.jsonl").write_text('{"n": 2}\n', encoding="utf-8")
    with pytest.raises(LakegateError, match=r"c\.jsonl' doesn't have the columns"):
        discover([str(tmp_path)], copies=tmp_path / "copies")
    (tmp_path / "d.csv").write_text("n\n1\n", encoding="utf-8")
    with pytest.raises(LakegateError, match="mixes formats"):
        discover([str(tmp_path)], copies=tmp_path / "copies")


def test_lists_and_objects_without_values_are_of_any_type(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "tags": [], "at": {"x": null, "y y": 1}}')
    (tmp_path / "b.jsonl").write_text('{"id": 2, "tags": [7], "at": {"x": "a", "y y": 1.5}}')
    batch = discover([str(tmp_path)], copies=tmp_path / ".copies")
    found = [{column.name: column.inferred for column in part.columns} for part in batch.parts()]
    assert found == [
        {"id": None, "tags": "list<unknown>", "at": "struct<x: unknown, `y y`: long>"},
        {"id": None, "tags": "list<long>", "at": "struct<x: string, `y y`: double>"},
    ]
    (tmp_path / "b.jsonl").write_text('{"id": 2, "tags": ["text"], "at": {"x": "a", "y y": 1}}')
    batch = discover([str(tmp_path)], copies=tmp_path / ".copies")
    assert [part.columns[1].inferred for part in batch.parts()] == ["list<unknown>", "list<string>"]
    (tmp_path / "c.jsonl").write_text('{"id": 3, "tags": [], "at": {"x": null}}')
    with pytest.raises(SchemaError, match=r"c\.jsonl' doesn't have the columns"):
        discover([str(tmp_path)], copies=tmp_path / ".copies")


def test_a_file_whose_copy_is_gone_counts_as_changed(tmp_path: Path) -> None:
    batch, _ = read(tmp_path, "a.jsonl", '{"n": 1}\n')
    assert not changed_files(batch)
    Path(from_uri(batch.read_uris[0])).unlink()
    assert [file.uri for file in changed_files(batch)] == list(batch.uris)


def test_digits_of_json_numbers_are_known(tmp_path: Path) -> None:
    batch, _ = read(tmp_path, "a.jsonl", '{"p": 1.239, "n": 9007199254740993}\n{"p": 5, "n": 1}')
    price, number = batch.texts
    assert "3 digits after the point" in rounding(price, Column(name="p", type="decimal(10, 2)"))
    assert not rounding(price, Column(name="p", type="decimal(10, 3)"))
    assert "a double would round" in rounding(number, Column(name="n", type="double"))


def test_whole_numbers_of_json_are_known(tmp_path: Path) -> None:
    text = '{"a": 1.0, "b": 2.5, "c": 1e300}\n{"a": null, "b": 3.0, "c": 9007199254740992.0}'
    batch, _ = read(tmp_path, "a.jsonl", text)
    assert [(text.name, text.whole) for text in batch.texts] == [("a", True), ("b", False), ("c", True)]


@pytest.mark.parametrize(
    ("number", "fits"),
    [
        ("25000000000.5", True),
        ("-99999999999.25", True),
        ("2.5e15", True),
        ("1234567890123456.78", False),  # of which a double keeps .8
        ("1e22", False),
    ],
)
def test_large_numbers_go_where_none_is_rounded(tmp_path: Path, number: str, *, fits: bool) -> None:
    batch, _ = read(tmp_path, "a.jsonl", f'{{"p": {number}}}\n{{"p": 0.5}}\n{{"p": null}}')
    problem = rounding(batch.texts[0], Column(name="p", type="decimal(38, 2)"))
    assert (problem == "") == fits
