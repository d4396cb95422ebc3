"""CSV whose numbers and dates are written otherwise than SQL's; and what is said when they weren't recognised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from lakegate.errors import InputError, LakegateError
from lakegate.model.batch import Batch, ColumnText, CsvOptions, FileFormat
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema
from lakegate.sources import discover
from lakegate.wap.plan import text_notes
from lakegate.wap.schema_fit import fit

TYPES = ("string", "string", "double")


def read(tmp_path: Path, content: str, **options: Any) -> Batch:
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    return discover([str(tmp_path / "a.csv")], csv=CsvOptions(**{"delimiter": ";", **options}))


def types(batch: Batch) -> dict[str, str]:
    return {column.name: column.type for column in batch.columns}


GERMAN = "betrag;menge;tag;zeit;plz\n1.234,56;1.000;31.1.2024;1.2.2024 7:05;00501\n-0,5;7;1.2.2024;;12345\n"


def test_german_numbers_and_dates(tmp_path: Path) -> None:
    plain = read(tmp_path, GERMAN)
    assert types(plain) == {"betrag": "string", "menge": "double", "tag": "string", "zeit": "string", "plz": "string"}
    assert {text.name: text.odd for text in plain.texts if text.odd} == {
        "betrag": "1.234,56",
        "tag": "31.1.2024",
        "zeit": "1.2.2024 7:05",
    }
    batch = read(tmp_path, GERMAN, decimal=",", date_format="%d.%m.%Y", timestamp_format="%d.%m.%Y %H:%M")
    assert types(batch) == {
        "betrag": "double",
        "menge": "int64",
        "tag": "date32[day]",
        "zeit": "timestamp[us]",
        "plz": "string",
    }
    assert types(read(tmp_path, 'a,b\n"1,5",2\n"1.234,50",3\n', decimal=",", delimiter=",")) == {
        "a": "double",
        "b": "int64",
    }
    # A point is no decimal point there, and a day that isn't is no date.
    mixed = read(tmp_path, "a;b\n1,5;31.02.2024\n1.5;1.2.2024\n", decimal=",", date_format="%d.%m.%Y")
    assert types(mixed) == {"a": "string", "b": "string"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"date_format": "%d.%m.%y"}, "Invalid --date-format '%d.%m.%y'"),
        ({"timestamp_format": "%d.%m.%Y"}, "Invalid --timestamp-format"),
        ({"types": {"nope": "long"}}, "column 'nope' to long, but the files have no such column"),
        ({"types": {"betrag": "money"}}, "'money' isn't a type for column 'betrag'"),
        ({"types": {"betrag": "decimal(39, 2)"}}, "'decimal(39, 2)' isn't a type for column 'betrag'"),
        ({"types": {"betrag": "decimal(2, 3)"}}, "'decimal(2, 3)' isn't a type for column 'betrag'"),
        ({"types": {"betrag": "double"}}, "but its values are string"),
        ({"types": {"plz": "decimal(9, 1)"}}, "but it"),
        ({"types": {"betrag": "decimal(9, 1)"}, "decimal": ","}, "has values with 2 digits after the decimal point"),
    ],
)
def test_options_that_cant_be_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    (tmp_path / "a.csv").write_text(GERMAN, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        discover([str(tmp_path / "a.csv")], csv=CsvOptions(**{"delimiter": ";", **options}))
    assert words in refused.value.message
    assert refused.value.hint


def test_types_are_given(tmp_path: Path) -> None:
    given = {"Betrag": "decimal(9, 2)", "menge": "string", "plz": "string"}
    batch = read(tmp_path, GERMAN, decimal=",", types=given)
    assert types(batch)["betrag"] == "decimal128(9, 2)"
    assert types(batch)["menge"] == "string"
    assert hash(batch)


def test_words_for_true_and_false_are_booleans_where_asked_for(tmp_path: Path) -> None:
    text = "a;b;c;d\nt;Y;0;0\nF;no;1;2\nNA;;;\n"
    plain = read(tmp_path, text)
    assert types(plain) == {"a": "string", "b": "string", "c": "int64", "d": "int64"}
    batch, table = (Schema(columns=tuple(Column(name=n, type=kind) for n in "abc")) for kind in ("string", "boolean"))
    fit(batch, table, name=TableIdentifier.parse("n.t"), file_format="csv", texts=plain.texts)
    assert set(types(read(tmp_path, text, types=dict.fromkeys("abc", "boolean"))).values()) == {"bool", "int64"}
    with pytest.raises(InputError, match="column 'd' to boolean, but its values are int64"):
        read(tmp_path, text, types={"d": "boolean"})


@pytest.mark.parametrize(
    ("values", "decimal", "kind"),
    [
        (["1,234.50", "12", "-0.5", "1,234,567"], ".", "double"),
        (["123-", "4", "1,000-"], ".", "int64"),
        (["(123)", "(1,000.5)", "7"], ".", "double"),
        (["$1,234.50", "-€ 3", "¥-4", "5 £", "($2)", "12-€"], ".", "double"),
        (["1.234,50-", "1.000", "7 €"], ",", "double"),
        (["1,23", "4"], ".", "string"),
        (["1,2345"], ".", "string"),
        (["-(5)"], ".", "string"),
        (["5%"], ".", "string"),
        (["00501", "(007)"], ".", "string"),
        (["1.5", "2"], ",", "string"),
    ],
)
def test_numbers_as_accounts_write_them(tmp_path: Path, values: list[str], decimal: str, kind: str) -> None:
    text = "a;b\n" + "".join(f"{value};x\n" for value in values)
    assert types(read(tmp_path, text, decimal=decimal, numbers="accounting"))["a"] == kind
    if kind != "string":
        assert types(read(tmp_path, text))["a"] == "string"


def test_decimals_are_given_to_numbers_of_any_length(tmp_path: Path) -> None:
    text = "id\n12345678901234567890\nNA\n-0.05\n7\n"
    assert types(read(tmp_path, text, types={"id": "decimal(38, 2)"})) == {"id": "decimal128(38, 2)"}
    assert types(read(tmp_path, text)) == {"id": "string"}
    with pytest.raises(InputError, match="has values with 2 digits after the decimal point"):
        read(tmp_path, text, types={"id": "decimal(38, 0)"})


def test_a_line_of_totals_is_named_and_not_made_null(tmp_path: Path) -> None:
    batch = read(tmp_path, "id;fee\n1;2.5\n2;3\nTotal;5.5\n")
    assert types(batch) == {"id": "string", "fee": "double"}
    own, table = (Schema(columns=(Column(name="id", type=kind),)) for kind in ("string", "long"))
    with pytest.raises(
        LakegateError, match=r"'Total' is in line 4 of 'a\.csv': if that line, the last, has"
    ) as refused:
        fit(own, table, name=TableIdentifier.parse("n.t"), file_format="csv", texts=batch.texts)
    assert "--null-value" not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("found", "wanted", "text", "words"),
    [
        ("string", "double", ColumnText(name="a", odd="1,5"), "to read its decimal comma, pass --decimal ','"),
        ("string", "double", ColumnText(name="a", odd="1.234,56"), "pass --decimal ','"),
        (
            "string",
            "double",
            ColumnText(name="a", odd="1,234"),
            "groups digits, pass --numbers accounting; if",
        ),
        ("string", "double", ColumnText(name="a", odd="5.5"), "remove the spaces around it"),
        ("string", "double", ColumnText(name="a", odd="12%"), "write 5% as 0.05 or 5"),
        (
            "string",
            "timestamp",
            ColumnText(name="a", odd="2024-01-01 10:00:00 UTC"),
            "times are written like 2026-01-31",
        ),
        ("string", "double", ColumnText(name="a", odd="1,234.5"), "pass --numbers accounting)"),
        ("string", "double", ColumnText(name="a", odd="123-"), "pass --numbers accounting)"),
        ("string", "double", ColumnText(name="a", odd="$5"), "pass --numbers accounting)"),
        ("string", "double", ColumnText(name="a", odd="1.234,5-"), "pass --numbers accounting --decimal ','"),
        ("string", "date", ColumnText(name="a", odd="31.1.2024"), "pass --date-format '%d.%m.%Y')"),
        ("string", "date", ColumnText(name="a", odd="1/31/2024"), "pass --date-format '%m/%d/%Y')"),
        (
            "string",
            "date",
            ColumnText(name="a", odd="1/3/2024"),
            "first, pass --date-format '%d/%m/%Y'; if",
        ),
        ("string", "timestamp", ColumnText(name="a", odd="31.1.2024 7:05"), "--timestamp-format '%d.%m.%Y %H:%M')"),
        ("string", "date", ColumnText(name="a", odd="1/3/24"), "write its year with four digits"),
        ("string", "long", ColumnText(name="a", odd="n. a."), "--null-value 'n. a.'"),
        ("string", "long", ColumnText(name="a", odd="-"), "if it says that there's no value, pass --null-value '-'"),
        ("string", "long", ColumnText(name="a", odd="Total"), "correct it there"),
        ("string", "date", ColumnText(name="a", odd="2026-02-30"), "there's no such day; correct it there)"),
        ("string", "date", ColumnText(name="a", odd="0000-00-00"), "or pass --null-value '0000-00-00')"),
        ("string", "double", ColumnText(name="a", odd="infinity", odd_is_last=True), "write it as Infinity"),
        ("string", "long", ColumnText(name="a", odd="Total", odd_is_last=True), "--skip-footer 1"),
        ("string", "long", ColumnText(name="a", odd="A"), "the column's own name"),
        ("string", "timestamp", ColumnText(name="a", odd="2024-01-01 10:00:00.1234567"), "no more than microseconds"),
        (
            "string",
            "double",
            ColumnText(name="a", digits=18, fraction=1),
            "up to 18 digits, and a double would",
        ),
        ("double", "decimal(9, 2)", ColumnText(name="a", fraction=3), "3 digits after the point"),
        ("double", "decimal(9, 2)", ColumnText(name="a", fraction=999), "values with exponents or too many digits"),
    ],
)
def test_why_a_column_does_not_fit_is_said(found: str, wanted: str, text: ColumnText, words: str) -> None:
    batch, table = (Schema(columns=(Column(name="a", type=kind),)) for kind in (found, wanted))
    with pytest.raises(LakegateError) as refused:
        fit(batch, table, name=TableIdentifier.parse("n.t"), file_format="csv", texts=(text,))
    assert words in refused.value.message


def test_what_text_may_mean_otherwise_is_noted(tmp_path: Path) -> None:
    batch = read(tmp_path, "a;b;c\nx;1,5;0.1234567890123456789012\nNA;2;1\n")
    schema = Schema(columns=tuple(Column(name=name, type=kind) for name, kind in zip("abc", TYPES, strict=True)))
    checks = (Check(kind="not_null", columns=("a",)),)
    notes = list(text_notes(batch, schema, checks, exists=False))
    assert [note.split(". ")[0] for note in notes] == [
        "Column 'a' is text and contains 'NA', which not_null accepts because it isn't NULL",
        "Column 'b' is text ('1,5' is in line 2 of 'a.csv': to read its decimal comma, pass --decimal ',').",
        "Column 'c' contains numbers of up to 23 digits",
    ]
    assert not list(text_notes(batch, schema, (), exists=True))[1:]


def test_whole_numbers_that_are_written_like_6_0_go_into_integers(tmp_path: Path) -> None:
    batch = read(tmp_path, "id;fee\n6.0;2.0\n;2.5\n")
    assert types(batch) == {"id": "double", "fee": "double"}
    own, table = (
        Schema(columns=tuple(Column(name=name, type=kind) for name in ("id", "fee"))) for kind in ("double", "long")
    )
    with pytest.raises(LakegateError) as refused:
        fit(own, table, name=TableIdentifier.parse("n.t"), file_format="csv", texts=batch.texts)
    assert "'fee'" in refused.value.message
    assert "'id'" not in refused.value.message
    assert types(read(tmp_path, "id;fee\n6.0;2.0\n", types={"id": "long"}))["id"] == "int64"
    notes = list(text_notes(batch, own, (), exists=False))
    assert [note.endswith("--types id=long") for note in notes] == [True]
    with pytest.raises(InputError, match="column 'fee' to long, but its values are double"):
        read(tmp_path, "id;fee\n6.0;2.5\n", types={"fee": "long"})


def test_what_databases_write_for_null_is_null_in_numbers_and_noted_in_text(tmp_path: Path) -> None:
    batch = read(tmp_path, "1;b\n5;x\n\\N;\\N\n")
    assert types(batch) == {"1": "int64", "b": "string"}
    schema = Schema(columns=tuple(Column(name=n, type=kind) for n, kind in {"1": "long", "b": "string"}.items()))
    header, dumped = text_notes(batch, schema, (), exists=False)
    assert header == "A column is called '1'. If the first line is a row instead of a header, pass --no-header."
    assert dumped.endswith(r"which databases write for NULL. If it's so here, pass --null-value '\N'.")


@pytest.mark.parametrize("file_format", ["csv", "json", "parquet", "avro", "orc", "excel"])
@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_times_get_a_zone_only_where_one_is_given(file_format: FileFormat, kind: str) -> None:
    batch, table = (Schema(columns=(Column(name="at", type=one),)) for one in (kind, "timestamptz"))
    name = TableIdentifier.parse("n.t")
    with pytest.raises(LakegateError, match=r"its times have no zone: .* timezone"):
        fit(batch, table, name=name, file_format=file_format)
    assert not fit(batch, table, name=name, file_format=file_format, timezone="Europe/Berlin").changes


def test_numbers_that_need_more_than_32_bits_are_known(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("low,high,most,least\n-2147483649,2147483648,2147483647,-2147483648\n1,1,1,1\n")
    (tmp_path / "b.csv").write_text("low,high,most,least\n1,1,1,1\n")
    found = discover([str(tmp_path)])
    assert [text.name for text in found.texts if text.beyond_int] == ["low", "high"]


def test_the_value_that_keeps_a_column_text_is_named_also_if_it_is_the_first(tmp_path: Path) -> None:
    rows = ("#DIV/0!;1e400;31-DEC-24;a-1;N/D", "5;2;01-JAN-25;7;00501", "6;3;02-FEB-25;b-2;00502")
    batch = read(tmp_path, "\n".join(("ratio;size;day;code;zip", *rows)))
    assert set(types(batch).values()) == {"string"}
    schema = Schema(columns=tuple(Column(name=one, type="string") for one in types(batch)))
    assert [note.partition(": ")[0] for note in text_notes(batch, schema, (), exists=False)] == [
        "Column 'ratio' is text ('#DIV/0!' is in line 2 of 'a.csv'",
        "Column 'size' is text ('1e400' is in line 2 of 'a.csv'",
        "Column 'day' is text ('31-DEC-24' is in line 2 of 'a.csv'",
    ]


def test_numbers_that_excel_has_shortened_are_named(tmp_path: Path) -> None:
    batch = read(tmp_path, "ean;mass\n5;1.5e-10\n4.00564E+12;9.1e+31\n")
    schema = Schema(columns=tuple(Column(name=one, type="double") for one in types(batch)))
    (note,) = text_notes(batch, schema, (), exists=True)
    assert note.startswith("Column 'ean' has '4.00564E+12' in line 3 of 'a.csv': Excel writes long numbers so")


def test_a_time_in_json_that_is_too_fine_is_named(tmp_path: Path) -> None:
    times = ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00.123456789Z")
    (tmp_path / "a.jsonl").write_text("".join(f'{{"at": "{one}", "s": "x"}}\n' for one in times), encoding="utf-8")
    batch = discover([str(tmp_path / "a.jsonl")])
    schema = Schema(columns=tuple(Column(name=one, type="string") for one in ("at", "s")))
    (note,) = text_notes(batch, schema, (), exists=False)
    assert note.startswith(f"Column 'at' is text ('{times[1]}' is among its values: a timestamp has no more than micro")


def test_what_to_do_about_quotes_that_are_escaped_by_backslashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '"id";"name";"old"\n"007";"the \\"big\\" one; a\\\\b";\\N\n'
    with pytest.raises(InputError, match="the row that starts on line 2") as refused:
        read(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    exec(str(refused.value.hint).partition(": ")[2], {"duckdb": duckdb})  # noqa: S102 - as printed
    written = Path("doubled.csv").read_text(encoding="utf-8")
    assert written == 'id;name;old\n007;"the ""big"" one; a\\b";\\N\n'


def test_an_index_of_pandas_is_named(tmp_path: Path) -> None:
    pd.DataFrame({"id": [1, 2]}, index=[7, 5]).to_parquet(tmp_path / "a.parquet")
    batch = discover([str(tmp_path / "a.parquet")])
    schema = Schema(columns=tuple(Column(name=one, type="long") for one in types(batch)))
    (note,) = text_notes(batch, schema, (), exists=False)
    assert note.startswith("Column '__index_level_0__' is the index of a pandas frame.")
    assert not list(text_notes(batch, schema, (), exists=True))
