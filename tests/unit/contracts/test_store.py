"""Contracts in files: where they are found, what they come to, and what is wrong with them, where."""

from __future__ import annotations

import json
import textwrap
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lakegate.config import Settings
from lakegate.contracts.document import parse_document
from lakegate.contracts.model import Contract, column_type
from lakegate.contracts.store import Contracts, parse_contract
from lakegate.errors import ConfigurationError
from lakegate.model.identifiers import TableIdentifier

TRIPS = TableIdentifier.parse("nyc.trips")
TEXT = "version: 1\ntable: nyc.trips\nfreshness: 1d\npartition_by: [vendor]\nchecks: [not_null(id)]\n"


def put(home: Path, name: str = "nyc.trips.yaml", text: str = TEXT) -> Path:
    path = home / "contracts" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_contract_the_settings_hold(tmp_path: Path) -> None:
    settings = Settings.model_validate({"tables": {"nyc.trips": {"partition_by": ["day"]}}})
    found = Contracts(tmp_path, settings)
    assert found.find(TRIPS) is None
    assert found.settings_of(TRIPS).partition_by == ("day",)


def test_a_contract_is_found_by_the_name_of_its_table(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path, ".nyc.trips.yaml.swp", "")
    put(tmp_path, "readme.md", "")
    found = Contracts(tmp_path, Settings())
    loaded = found.find(TRIPS)
    assert loaded is not None
    assert [str(check) for check in loaded.checks] == ["not_null(id)"]
    assert found.settings_of(TRIPS).partition_by == ("vendor",)
    assert found.late() == {"nyc.trips": "1d"}


def test_a_contract_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    path = put(tmp_path)
    found = Contracts(tmp_path, Settings())
    first = found.find(TRIPS)
    assert found.find(TRIPS) is first
    path.write_text(TEXT.replace("(id)", "(trip_id)"), encoding="utf-8")
    second = found.find(TRIPS)
    assert second is not None
    assert str(second.checks[0]) == "not_null(trip_id)"


def test_a_contract_and_a_section_for_one_table_are_an_error_that_names_both(tmp_path: Path) -> None:
    put(tmp_path)
    settings = Settings.model_validate({"tables": {"nyc.trips": {"checks": ["not_null(id)"]}}})
    with pytest.raises(ConfigurationError) as caught:
        Contracts(tmp_path, settings).settings_of(TRIPS)
    assert '[tables."nyc.trips"] in lakegate.toml' in caught.value.message
    assert "contracts/nyc.trips.yaml" in caught.value.message


def test_freshness_in_two_places_is_an_error_that_names_both(tmp_path: Path) -> None:
    put(tmp_path)
    settings = Settings.model_validate({"notify": {"late": {"nyc.trips": "2d"}}})
    with pytest.raises(ConfigurationError, match=r"notify\.late in lakegate\.toml and contracts/nyc\.trips\.yaml"):
        Contracts(tmp_path, settings).late()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["trips.yaml"], "contracts/trips.yaml isn't named after a table"),
        (["nyc.trips.yaml", "nyc.trips.yml"], "nyc.trips has two contracts"),
        (["nyc.fares.yaml"], "contracts/nyc.fares.yaml is named after nyc.fares, but says 'table: nyc.trips'"),
    ],
)
def test_a_file_that_no_run_would_find_is_an_error(tmp_path: Path, names: list[str], said: str) -> None:
    for name in names:
        put(tmp_path, name)
    with pytest.raises(ConfigurationError) as caught:
        Contracts(tmp_path, Settings()).all()
    assert said in caught.value.message


CONTRACT = """
version: 1
table: nyc.trips
description: One row a trip.
owner: taxi@example.com
partition_by: [days(pickup)]
freshness: 1d
extra_columns: refuse
csv: {delimiter: ";"}
columns:
  - name: trip_id
    type: long
    required: true
    checks: [unique]
  - name: fare
    type: decimal(10,2)
    required: true
    checks:
      - in_range: {min: 0, max: 500, severity: warn}
      - not_null: {severity: warn}
  - name: country
    type: string
    checks:
      - accepted_values: [NO, SE]
      - matches: ^[A-Z]+$
  - name: pickup
checks:
  - row_count: {min: 1}
  - unique: [trip_id, fare]
  - unique: {columns: [trip_id, pickup], name: pair}
  - in_range(fare, max=900)
  - not_null: pickup
  - sql: fare < 0
"""


def schema() -> Any:
    text = (resources.files("lakegate") / "schemas" / "contract.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))


def broken(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        parse_contract(textwrap.dedent(text), name="c.yaml")
    return caught.value


def test_checks_are_read_in_every_way_they_can_be_written() -> None:
    loaded = parse_contract(CONTRACT)
    assert [str(check) for check in loaded.checks] == [
        "not_null(trip_id)",
        "unique(trip_id)",
        "in_range(fare, min=0, max=500, severity='warn')",
        "not_null(fare, severity='warn')",
        "accepted_values(country, values=['NO', 'SE'])",
        "matches(country, pattern='^[A-Z]+$')",
        "row_count(min=1)",
        "unique(trip_id, fare)",
        "unique(trip_id, pickup, name='pair')",
        "in_range(fare, max=900)",
        "not_null(pickup)",
        "sql(fare, predicate='fare < 0')",
    ]
    assert loaded.lines[:3] == (13, 14, 19)


@pytest.mark.parametrize(
    ("written", "also"),
    [
        ("{severity: quarantine}", False),
        ("{severity: warn, tolerance: 1%}", True),
        ('{where: "a > 1"}', True),
    ],
)
def test_a_check_of_some_rows_does_not_take_the_place_of_required(written: str, *, also: bool) -> None:
    text = f"{{version: 1, table: x.y, columns: [{{name: a, required: true, checks: [not_null: {written}]}}]}}"
    found = [str(check) for check in parse_contract(text).checks]
    assert len(found) == 1 + also
    assert ("not_null(a)" in found) is also


def test_checks_belong_to_the_owner_of_the_table_unless_they_name_one() -> None:
    text = "{version: 1, table: a.b, owner: ops, checks: [{not_null: a}, {not_null: {column: b, owner: me}}]}"
    assert [check.owner for check in parse_contract(text).checks] == ["ops", "me"]


def test_the_shipped_schema_takes_a_contract_and_knows_its_checks() -> None:
    schema().check_schema(schema().schema)
    assert not list(schema().iter_errors(parse_document(CONTRACT, name="x").root.plain()))


@pytest.mark.parametrize(
    "change",
    [
        {"colums": []},
        {"version": 2},
        {"columns": [{"name": "a", "checks": [{"in_rage": {"min": 1}}]}]},
        {"columns": [{"name": "a", "checks": [{"in_range": {"minimum": 1}}]}]},
        {"columns": [{"name": "a", "checks": ["row_count"]}]},
        {"checks": [{"row_count": {"min": "one"}}]},
        {"checks": [{"row_count": {"min": 1, "severity": None}}]},
        {"checks": [{"row_count": {"min": 1, "tags": "pii"}}]},
        {"checks": [{"not_null": {"column": True}}]},
        {"checks": [{"unique": {"columns": ["a", None]}}]},
        {"checks": [{"column_pair_greater": {"column": "a", "other": False}}]},
        {"checks": [{"sql": {"column": "a > 1"}}]},
        {"csv": {"header": 1}},
    ],
)
def test_the_shipped_schema_refuses_what_the_reader_refuses(change: dict[str, Any]) -> None:
    value = {"version": 1, "table": "nyc.trips", **change}
    assert list(schema().iter_errors(value))
    with pytest.raises(ConfigurationError):
        parse_contract(json.dumps(value))


@pytest.mark.parametrize(
    "entry",
    [
        {"not_null": {"column": "true"}},
        {"in_range": {"column": "a", "min_value": 0}},
        {"relationships": {"column": "a", "to": "x.y", "field": "b"}},
        {"row_count": {"min": 1, "where": None, "name": None}},
    ],
)
def test_the_shipped_schema_takes_what_the_reader_takes(entry: dict[str, Any]) -> None:
    value = {"version": 1, "table": "nyc.trips", "checks": [entry]}
    parse_contract(json.dumps(value))
    assert not list(schema().iter_errors(value))


def test_the_schema_has_every_key() -> None:
    assert schema().schema["properties"].keys() == Contract.model_fields.keys()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("colums: []", "c.yaml:3:1: unknown key 'colums'; did you mean 'columns'?"),
        ("columns: [{name: a, typ: long}]", "c.yaml:3:21: unknown key 'typ'; did you mean 'type'?"),
        ("columns: [{name: a, type: bigint}]", "c.yaml:3:27: 'type': 'bigint' isn't an Iceberg type; did you mean"),
        ("columns: [{type: long}]", "c.yaml:3:11: 'name' is missing."),
        ("columns: [{name: a}, {name: A}]", "c.yaml:3:23: column 'A' is listed twice."),
        ("columns: [{name: a, was: [x]}, {name: b, was: [X]}]", "c.yaml:3:48: 'X' can't have been both 'a' and 'b'."),
        ("columns: [{name: a, required: maybe}]", "c.yaml:3:31: 'required': must be true or false, not 'maybe'."),
        ("partition_by: [a, days(a]", "c.yaml:3:19: Invalid partitioning 'days(a'."),
        ("write_mode: apend", "'replace-partitions' or 'upsert', not 'apend'."),
        ("write_mode: upsert", "c.yaml:1:1: write_mode \"upsert\" needs 'key', the columns that identify a row."),
        ("columns: {id: {type: long}}", "c.yaml:3:10: 'columns': must be a list."),
        ("freshness: daily", "c.yaml:3:12: 'freshness': Invalid duration 'daily'."),
        ("partition_by: days(x)", "c.yaml:3:15: 'partition_by': must be a list, not 'days(x)'."),
        ("checks: ['in_rnge(a, 1)']", "c.yaml:3:10: There is no check called 'in_rnge'."),
        ("checks: [{in_range: {column: a, minn: 1}}]", "c.yaml:3:10: in_range: there is no argument 'minn'."),
        ("checks: [{in_range: {column: a, min: x}, max: 1}]", "c.yaml:3:42: 'max' is beside the check 'in_range'."),
        ("checks: [null]", "c.yaml:3:10: an empty entry isn't a check."),
        ("checks: [not_null]", "c.yaml:3:10: not_null: it needs a column."),
        ("columns: [{name: a, checks: [row_count]}]", "c.yaml:3:30: row_count isn't about one column."),
        ("columns: [{name: a, checks: [{unique: {columns: b}}]}]", "names columns itself."),
        ("checks: [unique: [a, true]]", "c.yaml:3:22: True isn't a column name."),
        ("checks: [not_null: {column: a, severity: }]", "c.yaml:3:32: not_null: 'severity' has no value."),
        ("checks: [not_null: {column: a, tags: pii}]", "c.yaml:3:38: not_null: 'tags' must be a list, not 'pii'."),
        ("checks: [in_range: {columns: [a], column: b, max: 1}]", "c.yaml:3:35: in_range: 'columns' and 'column' both"),
    ],
)
def test_an_error_says_where_and_what_was_probably_meant(line: str, said: str) -> None:
    assert said in broken(f"version: 1\ntable: nyc.trips\n{line}\n").message


def test_all_problems_are_in_one_error_in_the_order_of_the_file() -> None:
    error = broken(
        """\
        version: 1
        table: nyc.trips
        columns:
          - name: fare
            checks: [in_rnge]
        checks:
          - row_count: {mim: 1}
          - unique: fair
        """
    )
    assert error.message.splitlines() == [
        "2 problems in c.yaml:",
        "c.yaml:5:14: There is no check called 'in_rnge'. Did you mean 'in_range'?",
        "c.yaml:7:5: row_count: there is no argument 'mim'. Did you mean 'min'?",
    ]
    assert (error.context["line"], error.context["column"]) == (5, 14)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("- version", "a contract is a mapping"),
        ("table: nyc.trips", "'version' is missing"),
        ("version: 2\ntable: nyc.trips", "c.yaml:1:10: this version of lakegate reads contracts of version 1, not 2."),
        ("version: 1\ntable: trips", "c.yaml:2:8: 'table': 'trips' can't name a table: A table needs a namespace."),
        ("apiVersion: v3.1.0\nkind: DataContract", "c.yaml:1:1: this isn't a lakegate contract"),
        ("version: 2\nmodels: []", "c.yaml:2:1: this isn't a lakegate contract"),
    ],
)
def test_a_file_of_another_kind_or_version_is_refused(text: str, said: str) -> None:
    assert said in broken(text).message


@pytest.mark.parametrize("text", ["list< string >", "map<string,long>", "struct<a:int, b: list<long>>", "fixed[16]"])
def test_nested_types_are_spelled_as_tables_spell_them(text: str) -> None:
    assert "," not in column_type(text).replace(", ", "")


@pytest.mark.parametrize("text", ["list<strin>", "decimal", "decimal(5, 9)", "", "map<>", "struct<a>>"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="isn't"):
        column_type(text)
