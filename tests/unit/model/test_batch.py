"""A batch whose columns the files call otherwise than the table."""

from __future__ import annotations

import pytest

from lakegate.errors import SchemaError
from lakegate.model.batch import Batch, ColumnText, CsvOptions, FileColumns, SourceColumn, SourceFile

OLD, NEW = SourceColumn(name="Fare", type="double"), SourceColumn(name="fare_amount", type="double")
ID = SourceColumn(name="id", type="int64")
FILES = tuple(SourceFile(uri=f"file:///{name}", size_bytes=1, version=name, rows=1) for name in "ab")


def batch(*columns: SourceColumn, variants: tuple[FileColumns, ...] = ()) -> Batch:
    return Batch(format="parquet", files=FILES, columns=columns, variants=variants)


def test_a_column_is_called_as_in_the_table_and_found_as_in_the_files() -> None:
    found = batch(ID, OLD).renamed({"fare": "fare_amount", "absent": "x"})
    assert [(column.name, column.in_file) for column in found.columns] == [("id", "id"), ("fare_amount", "Fare")]
    assert Batch.model_validate_json(found.model_dump_json()) == found
    assert found.renamed({"fare": "fare_amount"}) == found


def test_files_with_the_old_name_and_the_new_one_are_alike() -> None:
    variants = (
        FileColumns(columns=(ID, OLD), uris=("file:///a",)),
        FileColumns(columns=(NEW, ID), uris=("file:///b",)),
    )
    given = batch(ID, OLD, NEW, variants=variants)
    found = given.renamed({"Fare": "fare_amount"})
    assert (given.has_one_shape, found.has_one_shape) == (False, True)
    assert [column.name for column in found.columns] == ["id", "fare_amount"]
    assert [[column.in_file for column in part.columns] for part in found.parts()] == [
        ["id", "Fare"],
        ["fare_amount", "id"],
    ]


def test_a_file_with_both_names_is_refused() -> None:
    with pytest.raises(SchemaError, match="columns 'Fare' and 'fare_amount' would both be"):
        batch(OLD, NEW).renamed({"fare": "fare_amount"})


def test_names_that_were_mapped_stay_where_the_files_have_none() -> None:
    made_up = tuple(SourceColumn(name=name, type="double") for name in ("_c0", "_c1"))
    given = Batch(format="csv", files=FILES, columns=made_up, csv=CsvOptions(header=False))
    assert [one.name for one in given.named_like(("tip", "fare")).columns] == ["tip", "fare"]
    swapped = given.renamed({"_c0": "fare", "_c1": "tip"}).named_like(("tip", "fare"))
    assert [(one.in_file, one.name) for one in swapped.columns] == [("_c0", "fare"), ("_c1", "tip")]


def test_values_of_masked_columns_are_left_out() -> None:
    texts = tuple(ColumnText(name=name, odd="+49 170 1") for name in ("Phone", "fare"))
    found = batch(ID).model_copy(update={"texts": texts}).hiding(["phone"])
    assert [one.odd for one in found.texts] == ["", "+49 170 1"]
