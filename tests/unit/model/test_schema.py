"""Types of columns, what is read out of their text, and which columns are masked."""

from __future__ import annotations

from itertools import permutations
from typing import Literal

import pytest

from lakegate.checks.columns import ColumnType
from lakegate.errors import SchemaError
from lakegate.model.batch import ColumnText
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import MASK, Column, Schema, is_masked, masked_row, merged
from lakegate.model.types import common_type, nested_fields, struct_fields, struct_text
from lakegate.wap.schema_fit import fit


@pytest.mark.parametrize(
    ("text", "groupable"),
    [
        ("long", True),
        ("struct<unknown_reason: long, map: int, variant: list<string>>", True),
        (struct_text([("map<a: b", "long"), ("tick`s", "string")]), True),
        (struct_text([("ok", struct_text([("unknown", "unknown")]))]), False),
        ("list<map<string, int>>", False),
        ("map<string, int>", False),
        ("struct<a: variant>", False),
        ("unknown", False),
    ],
)
def test_a_key_is_refused_for_its_type_and_not_for_a_field_s_name(text: str, *, groupable: bool) -> None:
    assert ColumnType.parse(text).groupable is groupable


def test_numbers_of_a_csv_file_do_not_fit_a_struct_that_mentions_a_decimal() -> None:
    def schema(kind: str) -> Schema:
        return Schema(columns=(Column(name="a", type=kind),))

    name = TableIdentifier.parse("nyc.trips")
    fit(schema("long"), schema("decimal(10, 2)"), name=name, file_format="csv")
    with pytest.raises(SchemaError, match="doesn't fit"):
        fit(schema("long"), schema("struct<decimal: long>"), name=name, file_format="csv")


def made(text: str) -> Schema:
    """Return the schema of ``id int!, zone string``."""
    parts = (part.strip().rsplit(" ", 1) for part in text.split(",") if part.strip())
    return Schema(columns=tuple(Column(name=n, type=t.rstrip("!"), required=t.endswith("!")) for n, t in parts))


@pytest.mark.parametrize(
    ("batch", "table", "changes", "notes"),
    [
        ("ID int, Zone string", "zone string, id long", [], 0),
        ("id long", "id int", ["widen column id from int to long"], 0),
        ("id long, id2 long", "id long", ["add column id2 (long)"], 0),
        ("id long", "id long, gone string", [], 1),
        ("id long, new string", "id long, gone string", ["add column new (string)"], 2),
        ("id long, a string, b string", "id long, gone string", ["add column a (string)", "add column b (string)"], 1),
        ("id long, empty unknown", "id long", [], 1),
        ("d double", "d float", ["widen column d from float to double"], 0),
        ("d long", "d double", [], 0),
    ],
)
def test_what_evolving_changes(batch: str, table: str, changes: list[str], notes: int) -> None:
    name = TableIdentifier.parse("nyc.trips")
    found = fit(made(batch), made(table), name=name, file_format="parquet", mode="evolve")
    assert ([str(change) for change in found.changes], len(found.notes)) == (changes, notes)
    after = made(table).changed(found.changes)
    assert fit(made(batch), after, name=name, file_format="parquet", mode="evolve").changes == ()
    assert after.changed(found.changes) == after


@pytest.mark.parametrize(
    ("batch", "table", "message", "hint"),
    [
        ("id string", "id long", "'id' is string in the batch and long in the table", "table show"),
        ("id double", "id boolean", "'id' is double in the batch and boolean in the table", "table show"),
        ("zone string", "id long!, zone string", "can't be NULL in the table", "table show"),
        ("id long, new string", "id long", "'new' (string) isn't in the table", "pass --schema ignore_extra"),
        ("id long, new unknown", "id long", "'new' (unknown) isn't in", "without values, pass --schema evolve"),
        ("id string", "id uuid", "'id' is string in the batch and uuid in the table", "lakegate publish BRANCH"),
        ("id binary", "id fixed[16]", "'id' is binary in the batch and fixed[16]", "doesn't write fixed[16] columns"),
        ("n long", "n long, id uuid!", "'id' (uuid) is missing in the batch, and can't be NULL", "table show"),
    ],
)
def test_what_is_refused_names_the_mode_that_would_take_it(batch: str, table: str, message: str, hint: str) -> None:
    mode: Literal["strict", "evolve"] = "strict" if "--schema" in hint else "evolve"
    with pytest.raises(SchemaError) as refused:
        fit(made(batch), made(table), name=TableIdentifier.parse("a.b"), file_format="parquet", mode=mode)
    assert message in refused.value.message
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(
    ("batch", "table", "wanted"),
    [
        (
            "id long, new int",
            "id long",
            ["'new' (int) isn't in the table; accepted by --schema evolve or ignore_extra"],
        ),
        ("id long", "id int", ["accepted by --schema evolve"]),
        ("id string", "id int", ["no option accepts it"]),
        ("id long, fare double", "id long, price double", ["by --column 'fare=price', or --schema evolve"] * 2),
    ],
)
def test_each_refused_difference_says_which_option_accepts_it(batch: str, table: str, wanted: list[str]) -> None:
    with pytest.raises(SchemaError) as refused:
        fit(made(batch), made(table), name=TableIdentifier.parse("a.b"), file_format="parquet")
    differences = refused.value.context["differences"]
    assert isinstance(differences, list)
    assert [text for text, said in zip(wanted, differences, strict=True) if text not in said] == []


def test_schemas_of_files_have_types_in_common() -> None:
    found = merged([made("id int, d float"), made("D double, new string, ID unknown"), made("id long")])
    assert found == made("id long, d double, new string")
    for order in permutations(("int", "long", "float", "double", "unknown")):
        assert merged(made(f"n {kind}") for kind in order) == made("n double")
    with pytest.raises(SchemaError, match="long in some files of the batch and string in others"):
        merged([made("id long"), made("id string")])


def test_csv_numbers_beyond_an_int_widen_it() -> None:
    name = TableIdentifier.parse("a.b")
    texts = (ColumnText(name="id", digits=10, beyond_int=True),)
    with pytest.raises(SchemaError, match="beyond the table's int; accepted by schema evolve"):
        fit(made("id long"), made("id int"), name=name, file_format="csv", texts=texts)
    found = fit(made("id long"), made("id int"), name=name, file_format="csv", mode="evolve", texts=texts)
    assert list(map(str, found.changes)) == ["widen column id from int to long"]
    small = (ColumnText(name="id", digits=10),)
    assert not fit(made("id long"), made("id int"), name=name, file_format="csv", mode="evolve", texts=small).changes


def nested(at: str, items: str) -> Schema:
    return Schema(columns=(Column(name="at", type=at), Column(name="l", type=items)))


def test_json_fields_beyond_an_int_widen_it() -> None:
    name = TableIdentifier.parse("a.b")
    batch = nested("struct<X: long, y: long, deep: list<struct<n: long>>>", "list<long>")
    table = nested("struct<x: int, y: int, deep: list<struct<N: int>>>", "list<int>")
    beyond = (("deep", "element", "n"), ("x",))
    texts = (ColumnText(name="at", fields_beyond_int=beyond), ColumnText(name="l", fields_beyond_int=(("element",),)))
    with pytest.raises(SchemaError) as refused:
        fit(batch, table, name=name, file_format="json", texts=texts)
    for field in ("at.x", "at.deep.element.N", "l.element"):
        said = f"- field '{field}' holds numbers beyond the table's int; accepted by --schema evolve"
        assert said in refused.value.message
        # A Python program has an argument, not an option.
        assert said.replace("--", "") in str(refused.value)
    assert "at.y" not in str(refused.value)
    found = fit(batch, table, name=name, file_format="json", mode="evolve", texts=texts)
    assert [change.type for change in found.changes] == [
        "struct<x: long, y: int, deep: list<struct<N: long>>>",
        "list<long>",
    ]
    assert not fit(batch, table, name=name, file_format="json", mode="evolve").changes
    # Of what isn't an int in the table, nothing is widened.
    longs = nested("struct<x: long, y: int, deep: list<struct<N: decimal(20, 0)>>>", "list<string>")
    assert not fit(batch, longs, name=name, file_format="json", mode="evolve", texts=texts).changes


def test_an_upsert_leaves_what_its_batch_lacks() -> None:
    batch, table, name = made("id long"), made("id long, zone string"), TableIdentifier.parse("a.b")
    with pytest.raises(SchemaError) as refused:
        fit(batch, table, name=name, file_format="parquet", updates=True)
    assert "leave zone of existing rows" in (refused.value.hint or "")
    found = fit(batch, table, name=name, file_format="parquet", mode="evolve", updates=True)
    assert "updated rows keep their values" in found.notes[0]


def one(kind: str, name: str = "at") -> Schema:
    return Schema(columns=(Column(name=name, type=kind),))


@pytest.mark.parametrize(
    ("batch", "table", "change", "after", "notes"),
    [
        ("struct<B: int, a: int>", "struct<a: long, b: int>", None, None, 0),
        (
            "struct<c: int, a: long>",
            "struct<a: int, `b c`: string>",
            "add field at.c (int), widen field at.a from int to long",
            "struct<a: long, `b c`: string, c: int>",
            1,
        ),
        (
            "list<map<string, struct<y: int>>>",
            "list<map<string, struct<x: int>>>",
            "add field at.element.value.y (int)",
            "list<map<string, struct<x: int, y: int>>>",
            1,
        ),
        ("struct<a: list<int>>", "struct<a: list<double>>", None, None, 0),
        ("struct<a: long>", "struct<a: double>", None, None, 0),
    ],
)
def test_fields_of_structs_evolve_by_name(
    batch: str, table: str, change: str | None, after: str | None, notes: int
) -> None:
    name = TableIdentifier.parse("a.b")
    found = fit(one(batch, "At"), one(table), name=name, file_format="parquet", mode="evolve")
    parts = [str(change) for change in found.changes]
    assert (sorted(", ".join(parts).split(", ")), len(found.notes)) == (sorted((change or "").split(", ")), notes)
    wider = one(table).changed(found.changes)
    assert wider == one(after or table)
    assert fit(one(batch), wider, name=name, file_format="parquet", mode="evolve").changes == ()


@pytest.mark.parametrize(
    ("batch", "table", "wanted"),
    [
        (
            "struct<a: int, c: int>",
            "struct<a: int>",
            "'at.c' (int) isn't in the table; accepted by --schema evolve or",
        ),
        (
            "struct<a: int>",
            "struct<a: int, b: int>",
            "'at.b' (int) is missing in the batch; accepted by --schema evolve",
        ),
        ("struct<a: long>", "struct<a: int>", "'at.a' is long in the batch and int in the table; accepted by --schema"),
        (
            "struct<a: string>",
            "struct<a: int>",
            "'at.a' is string in the batch and int in the table; no option accepts",
        ),
        ("map<int, int>", "map<long, int>", "'at' is map<int, int> in the batch and map<long, int> in the table; no"),
        ("list<string>", "string", "column 'at' is list<string> in the batch and string in the table; no option"),
    ],
)
def test_each_field_that_is_refused_is_named_with_the_option(batch: str, table: str, wanted: str) -> None:
    with pytest.raises(SchemaError) as refused:
        fit(one(batch), one(table), name=TableIdentifier.parse("a.b"), file_format="parquet")
    assert wanted in refused.value.message


def test_fields_that_a_batch_lacks_are_left_out_or_refused() -> None:
    name, table = TableIdentifier.parse("a.b"), one("struct<a: int, b: int>")
    found = fit(one("struct<a: int, b: int, c: int>"), table, name=name, file_format="json", mode="ignore_extra")
    assert found.notes == ("Field 'at.c' (int) isn't in the table; it's left out.",)
    assert fit(one("struct<a: long, b: int>"), table, name=name, file_format="json").changes == ()
    with pytest.raises(SchemaError, match=r"'at\.b' \(int\) is missing in the batch, and updated rows would lose"):
        fit(one("struct<a: int>"), table, name=name, file_format="json", mode="evolve", updates=True)


def test_what_is_empty_inside_of_json_fits_any_type() -> None:
    name, table = TableIdentifier.parse("a.b"), one("struct<a: int, tags: list<long>>")
    empty = one("struct<a: unknown, tags: list<unknown>>")
    assert fit(empty, table, name=name, file_format="json").changes == ()
    more = one("struct<a: int, tags: list<unknown>, b: unknown, c: struct<x: unknown, y: int>>")
    found = fit(more, table, name=name, file_format="json", mode="evolve")
    assert [str(change) for change in found.changes] == ["add field at.c (struct<y: int>)"]
    assert found.notes == ("Field 'at.b' isn't in the table and has no values; it's left out.",)
    new = fit(one("list<unknown>", "new"), table, name=name, file_format="json", mode="evolve")
    assert (new.changes, len(new.notes)) == ((), 2)


def test_structs_of_several_files_are_joined() -> None:
    found = merged([one("struct<a: int>"), one("struct<b: list<string>, A: long>"), one("struct<b: list<unknown>>")])
    assert found == one("struct<a: long, b: list<string>>")
    for order in permutations(("int", "float", "double")):
        assert merged(one(f"struct<a: {kind}>") for kind in order) == one("struct<a: double>")
    kinds = ("a: int, b: float", "a: float, b: int", "a: double, b: int", "a: int, b: double", "b: long, c: date")
    for some in permutations(kinds):  # each field needs the doubles of another file
        joined = merged(one(f"list<struct<{fields}>>") for fields in some).columns[0].type
        assert sorted(struct_fields(joined[5:-1])) == [("a", "double"), ("b", "double"), ("c", "date")]
    assert merged([one("struct<a: int, A: int>"), one("struct<A: long>")]) == one("struct<a: int, A: long>")
    with pytest.raises(SchemaError, match=r"^Field 'at\.a' is int in some files of the batch and string in others"):
        merged([one("struct<a: int>"), one("struct<a: string, b: int>")])


def test_fields_without_values_are_added_where_something_names_them() -> None:
    name, table, batch = TableIdentifier.parse("a.b"), one("struct<b: int>"), one("struct<a: unknown, b: int>")
    kept = {"at": "struct<a: double, b: int>"}
    found = fit(batch, table, name=name, file_format="json", mode="evolve", kept=kept)
    assert ([str(change) for change in found.changes], found.notes) == (["add field at.a (double)"], ())


@pytest.mark.parametrize(
    ("types", "joined"),
    [
        (["struct<a: int, A: string>", "struct<a: long>"], {"a": "long", "A": "string"}),
        (["struct<A: long>", "struct<a: int, A: int>", "struct<a: double>"], {"a": "double", "A": "long"}),
        (["struct<a: int, A: string>", "struct<A: long>"], None),
    ],
)
def test_fields_that_differ_by_case_are_joined_alike_in_any_order(
    types: list[str], joined: dict[str, str] | None
) -> None:
    found = [common_type(order) for order in permutations(types)]
    assert [None if one is None else dict(struct_fields(one)) for one in found] == [joined] * len(found)


CONTACT = nested_fields("struct<email: string, phones: list<struct<nr: string>>, at: map<string, struct<zip: string>>>")


@pytest.mark.parametrize("pattern", ["contact", "EMAIL", "contact.email", "nr", "phones.nr", "at.*", "contact.at.zip"])
def test_a_column_is_masked_whole_for_a_field_in_it(pattern: str) -> None:
    assert is_masked([pattern], "Contact", CONTACT)


def test_a_field_is_masked_for_what_it_is_in_and_by_its_name_without_backticks() -> None:
    assert is_masked(["contact.at"], "contact.at.zip")
    assert is_masked(["at"], "contact.at.zip")
    assert is_masked(["e-mail"], "contact.`e-mail`")
    assert not is_masked(["mail", "contact.zip", "phone"], "contact.`e-mail`", CONTACT)


def test_a_value_is_masked_for_a_field_in_it() -> None:
    row = {"id": 1, "contact": {"at": [{"zip": "1"}]}, "tags": ["zip"], "other": None}
    assert masked_row(["ZIP"], row) == {**row, "contact": MASK}
    assert masked_row(["contact.at"], row) == {**row, "contact": MASK}
    assert masked_row(["contact.zip"], row) == row


def test_values_in_the_path_of_a_data_file_are_masked() -> None:
    row = {"_file": "s3://lake/a=b/data/e%2Dmail=x%40y.z/day=2026-01-31/0001=2.parquet", "path": "/e-mail=x/1"}
    hidden = f"s3://lake/a={MASK}/data/e%2Dmail={MASK}/day={MASK}/0001=2.parquet"
    assert masked_row(["e-mail"], row) == {**row, "_file": hidden}
    assert masked_row([], row) == row
    assert masked_row(["*"], row) == {"_file": MASK, "path": MASK}
    assert masked_row(["e-mail"], {"_file": None}) == {"_file": None}
