"""ODCS contracts, read and written. The texts follow the forms of the standard's own examples."""

from __future__ import annotations

import textwrap

import pytest

from lakegate.contracts.document import parse_document
from lakegate.contracts.draft import Draft
from lakegate.contracts.model import TYPES
from lakegate.contracts.odcs import read_odcs, write_odcs
from lakegate.contracts.store import LoadedContract, parse_contract
from lakegate.errors import ConfigurationError
from unit.contracts.test_store import CONTRACT

HEAD = "apiVersion: v3.1.0\nkind: DataContract\nid: x\nversion: 1.0.0\nstatus: active\n"
SHOP = """
servers:
  - {server: prod, type: postgres, schema: shop}
team: {name: orders-team}
slaProperties:
  - {property: latency, value: 4, unit: d}
  - {property: frequency, value: 12, unit: h}
  - {property: retention, value: 3, unit: y}
schema:
  - name: orders
    physicalName: orders_v1
    description: One row an order.
    tags: [sales]
    relationships:
      - {type: foreignKey, from: [orders.shop_id, orders.country], to: [shops.id, shops.country]}
    properties:
      - {name: order_id, physicalName: id, logicalType: integer, physicalType: bigint, primaryKey: true}
      - name: country
        logicalType: string
        physicalType: varchar(2)
        required: true
        unique: false
        classification: public
        logicalTypeOptions: {minLength: 2, maxLength: 2, pattern: '[A-Z]{2}', format: iso}
        quality:
          - metric: invalidValues
            arguments: {validValues: [DK, 'NO', SE]}
            mustBeLessOrEqualTo: 4
            severity: warning
            dimension: conformity
            description: Nordic only.
      - {name: shop_id, logicalType: integer, partitioned: true, partitionKeyPosition: 1,
         relationships: [{to: shops.id}]}
      - name: amount
        logicalType: number
        physicalType: numeric(9,2)
        logicalTypeOptions: {minimum: 0, exclusiveMaximum: 1000}
        quality:
          - type: sql
            query: SELECT COUNT(*) FROM {object} WHERE {property} = 13
            mustBe: 0
          - {type: sql, query: 'select avg({property}) from {object}', mustBeGreaterThan: 3}
          - {type: text, description: It is in euros.}
          - {metric: nullValues, mustBeLessOrEqualTo: 0.5, unit: percent}
          - {metric: missingValues, arguments: {missingValues: [null, 0, 'n/a']}, mustBeLessThan: 100}
          - {type: custom, engine: soda, implementation: 'type: x'}
          - {type: custom, engine: lakegate, implementation: {in_range: {column: amount, min: 1, tolerance: 2}}}
      - {name: at, logicalType: timestamp, logicalTypeOptions: {timezone: true}}
      - {name: items, logicalType: array, items: {logicalType: object, properties: [{name: sku, logicalType: string}]}}
      - {name: place, physicalType: geography}
    quality:
      - {metric: rowCount, mustBeBetween: [100, 120], method: reconciliation}
      - {metric: duplicateValues, mustBe: 0, arguments: {properties: [order_id, country]}}
  - name: shops
    physicalName: shops_v2
"""


def read(text: str) -> list[Draft]:
    return read_odcs(parse_document(HEAD + textwrap.dedent(text), name="x"))


def loaded(draft: Draft) -> LoadedContract:
    return parse_contract(draft.text("x.yaml"))


def test_a_contract_of_odcs_becomes_one_for_each_table() -> None:
    orders, shops = read(SHOP)
    made = loaded(orders)
    assert (str(made.table), str(loaded(shops).table)) == ("shop.orders_v1", "shop.shops_v2")
    assert {str(check) for check in made.checks} == {
        "not_null(id)",
        "unique(id, scope='table')",
        "not_null(country)",
        "matches(country, pattern='[A-Z]{2}')",
        "accepted_values(country, values=['DK', 'NO', 'SE'], tolerance=4, severity='warn')",
        "relationships(shop_id, to='shop.shops_v2', to_columns='id', scope='table')",
        "in_range(amount, min=0)",
        "in_range(amount, max=1000, inclusive=False)",
        "not_null(amount, tolerance='0.5%')",
        "in_range(amount, min=1, tolerance=2)",
        "length_between(country, min=2, max=2)",
        "row_count(min=100, max=120)",
        "unique(id, country, scope='table')",
        "relationships(shop_id, country, to='shop.shops_v2', to_columns=['id', 'country'], scope='table')",
    }
    assert [column.type for column in made.terms.columns] == [
        "long", "string", "long", "decimal(9, 2)", "timestamptz", "list<struct<sku: string>>", "",
    ]  # fmt: skip
    assert (made.contract.owner, made.contract.freshness) == ("orders-team", "12h")
    assert made.contract.partition_by == ("shop_id",)
    assert [check.tags for check in made.checks if check.description] == [("conformity",)]


def test_what_can_not_be_said_is_listed_with_its_line() -> None:
    (orders, _) = read(SHOP)
    lost = {(one.line, one.what) for one in orders.untranslated}
    text = (HEAD + SHOP).splitlines()
    for word, what in (
        ("retention", "slaProperties retention"),
        ("classification: public", "classification"),
        ("in euros", "quality of type text"),
        ("engine: soda", "quality of type custom"),
        ("geography", "type geography"),
        ("servers:", "servers"),
        ("method:", "quality method"),
        ("- type: sql", "quality of type sql"),
        ("metric: missingValues", "missingValues"),
    ):
        line = next(number for number, one in enumerate(text, 1) if word in one)
        assert (line, what) in lost
    assert "# - line " in orders.text("x.yaml")


@pytest.mark.parametrize(
    ("rule", "check"),
    [
        ("metric: rowCount, mustBe: 5", "row_count(min=5, max=5)"),
        ("metric: rowCount, mustBeGreaterThan: 5", "row_count(min=6)"),
        ("rule: rowCount, type: default, mustBeLessThan: 5.5", "row_count(max=5)"),
        ("metric: rowCount, mustBeGreaterOrEqualTo: 5", "row_count(min=5)"),
        ("metric: rowCount, mustBeLessOrEqualTo: 5", "row_count(max=5)"),
        ("metric: rowCount, mustBe: 5.5", None),
        ("metric: rowCount, mustBeBetween: [5, 9]", "row_count(min=5, max=9)"),
        ("metric: rowCount, mustNotBe: 5", None),
        ("metric: rowCount, mustBeGreaterThan: 5, mustBeLessThan: 9", None),
        ("metric: rowCount, mustBe: 5, unit: percent", None),
        ("metric: duplicateValues, mustBe: 0, arguments: {properties: [a]}", "unique(a, scope='table')"),
        ("metric: duplicateValues, mustBe: 0", None),
        ("metric: nullValues, mustBe: 0", None),
        ("metric: rowCont, mustBe: 5", None),
    ],
)
def test_each_operator_of_a_table_s_metric(rule: str, check: str | None) -> None:
    (draft,) = read(f"schema: [{{name: t, properties: [{{name: a}}], quality: [{{{rule}}}]}}]")
    assert [str(one) for one in loaded(draft).checks] == [check] * (check is not None)
    assert check is not None or [one.line for one in draft.untranslated if one.line == 6]


@pytest.mark.parametrize(
    ("rule", "tolerance"),
    [
        ("mustBe: 0", None),
        ("mustBeLessOrEqualTo: 3", 3),
        ("mustBeLessThan: 1", None),
        ("mustBeLessThan: 5", 4),
        ("mustBeBetween: [0, 3]", 3),
        ("mustBeLessOrEqualTo: 0.00001, unit: percent", "0.00001%"),
    ],
)
def test_operators_that_limit_failing_rows_are_tolerances(rule: str, tolerance: object) -> None:
    (draft,) = read(f"schema: [{{name: t, properties: [{{name: a, quality: [{{metric: nullValues, {rule}}}]}}]}}]")
    (check,) = loaded(draft).checks
    assert check.tolerance == tolerance


@pytest.mark.parametrize(
    "rule",
    [
        "unit: rows",
        "mustBeLessThan: 1, unit: percent",
        "mustBe: many",
        "mustBe: [1, 2]",
        "mustBe: 3",
        "mustBeGreaterThan: 1",
        "mustBe: true",
    ],
)
def test_operators_that_are_no_upper_limit_are_listed(rule: str) -> None:
    (draft,) = read(f"schema: [{{name: t, properties: [{{name: a, quality: [{{metric: nullValues, {rule}}}]}}]}}]")
    assert loaded(draft).checks == ()
    assert any(one.what == "nullValues" for one in draft.untranslated)


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("rule: duplicateCount, mustBe: 0", "unique(a, scope='table')"),
        ("rule: validValues, validValues: [x]", "accepted_values(a, values=['x'])"),
        ("rule: validValues, validValues: [x], mustBeLessThan: 3", "accepted_values(a, values=['x'], tolerance=2)"),
        ("type: library, rule: nullCheck, severity: error, businessImpact: operational", "not_null(a)"),
    ],
)
def test_rules_have_other_names_in_odcs_3_0(rule: str, made: str) -> None:
    (draft,) = read(f"schema: [{{name: t, properties: [{{name: a, quality: [{{{rule}}}]}}]}}]")
    assert [str(check) for check in loaded(draft).checks] == [made]
    assert not any(one.is_check for one in draft.untranslated)


def test_a_document_of_odcs_3_2_is_read() -> None:
    text = """
    schema:
      - name: products
        context: {overview: Sold in Norway.}
        properties:
          - name: state
            logicalType: string
            enum: [{value: new, label: New}, {value: used}]
          - {name: counts, logicalType: map, map: {key: {logicalType: string}, value: {logicalType: integer}}}
          - {name: revenue, semanticType: measure, transformLogic: SUM(price)}
    """
    (draft,) = read_odcs(parse_document(HEAD.replace("v3.1.0", "v3.2.0") + textwrap.dedent(text), name="x"))
    made = loaded(draft)
    assert [str(check) for check in made.checks] == ["accepted_values(state, values=['new', 'used'])"]
    assert [(one.name, one.type) for one in made.terms.columns] == [
        ("state", "string"),
        ("counts", "map<string, long>"),
    ]
    assert not any(one.is_check for one in draft.untranslated)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: v2.2.2\nkind: DataContract", "x:1:13: ODCS version 'v2.2.2' isn't supported"),
        ("apiVersion: v3.1.0\nkind: DataProduct", "x:2:7: 'kind' must be DataContract."),
        (
            "apiVersion: v3.1.0\nkind: DataContract\nschema: [{properties: []}]",
            "x:3:10: a schema object needs a 'name'.",
        ),
        (
            "apiVersion: v3.1.0\nkind: DataContract\nschema: [{name: t, quality: {metric: rowCount}}]",
            "x:3:20: 'quality': Input should be a valid list.",
        ),
    ],
)
def test_what_is_no_contract_of_odcs_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_odcs(parse_document(text, name="x"))
    assert caught.value.message.startswith(said)


def test_rules_of_a_struct_s_fields_and_of_lists_are_listed() -> None:
    (draft,) = read(
        """\
        schema:
          - name: t
            properties:
              - name: address
                logicalType: object
                properties:
                  - name: zip
                    logicalType: string
                    required: true
                    logicalTypeOptions: {minLength: 4}
                    quality: [{metric: nullValues, mustBe: 0}, {metric: duplicateValues, mustBe: 0}]
                  - {name: street no, logicalType: object, properties: [{name: n, logicalType: integer, unique: true}]}
              - name: tags
                logicalType: array
                items: {logicalType: string, required: true, logicalTypeOptions: {format: email, minLength: 3}}
        """
    )
    assert loaded(draft).checks == ()
    assert [(one.line, one.what) for one in draft.untranslated if one.what.startswith("inner ")] == [
        (16, "inner quality"), (15, "inner logicalTypeOptions"), (14, "inner required"), (17, "inner unique"),
        (20, "inner logicalTypeOptions"), (20, "inner required"),
    ]  # fmt: skip


def test_limits_that_are_exclusive_are_checked_and_flags_of_others_listed() -> None:
    options = "{minimum: 1, exclusiveMinimum: true, exclusiveMaximum: 5}"
    (draft,) = read(f"schema: [{{name: t, properties: [{{name: a, logicalTypeOptions: {options}}}]}}]")
    assert [str(one) for one in loaded(draft).checks] == ["in_range(a, min=1)", "in_range(a, max=5, inclusive=False)"]
    assert "logicalTypeOptions exclusiveMinimum" in [one.what for one in draft.untranslated]


@pytest.mark.parametrize(
    ("of_column", "of_table", "made"),
    [
        ("{to: places.owner}", "", "user_no, to='default.places', to_columns='owner_no'"),
        ("{to: elsewhere.id}", "", "user_no, to='default.elsewhere', to_columns='id'"),
        ("", "{from: users.id, to: places.owner}", "user_no, to='default.places', to_columns='owner_no'"),
        ("{to: owner}", "", None),
        ("{to: schema/places_tbl/properties/owner_id}", "", None),
        ("", "{from: [users.id], to: [places.owner, elsewhere.id]}", None),
    ],
)
def test_relationships_name_columns_of_a_table(of_column: str, of_table: str, made: str | None) -> None:
    draft, _ = read(
        f"""
        schema:
          - name: users
            physicalName: users_v1
            properties:
              - {{name: id, physicalName: user_no, logicalType: integer, relationships: [{of_column}]}}
            relationships: [{of_table}]
          - name: places
            properties: [{{name: owner, physicalName: owner_no, logicalType: integer}}]
        """
    )
    assert [str(one) for one in loaded(draft).checks] == ([f"relationships({made}, scope='table')"] if made else [])
    assert any(one.what == "relationships" for one in draft.untranslated) is (made is None)


def test_what_is_written_is_read_back_as_the_same_contract() -> None:
    before = parse_contract(CONTRACT)
    (draft,) = read_odcs(parse_document(write_odcs(before), name="x"))
    after = loaded(draft)
    assert after.terms.columns == before.terms.columns
    assert {str(check) for check in after.checks} == {str(check) for check in before.checks}
    assert {check.owner for check in after.checks} == {before.contract.owner}
    for key in ("table", "owner", "freshness"):
        assert getattr(after.contract, key) == getattr(before.contract, key)


_KEPT_TYPES = [one for one in TYPES if one != "uuid"]  # a database's uuid is a string in Iceberg


@pytest.mark.parametrize(
    "kind", [*_KEPT_TYPES, "decimal(38, 9)", "fixed[4]", "list<float>", "map<string, struct<a: float>>"]
)
def test_types_are_written_and_read_back(kind: str) -> None:
    before = parse_contract(f"{{version: 1, table: a.b, columns: [{{name: c, type: '{kind}'}}]}}")
    (draft,) = read_odcs(parse_document(write_odcs(before), name="x"))
    assert loaded(draft).terms.columns == before.terms.columns


def test_what_a_check_of_a_required_column_is_for_is_kept() -> None:
    check = "not_null: {description: Each has one., tags: [completeness]}"
    before = parse_contract(f"{{version: 1, table: a.b, columns: [{{name: c, required: true, checks: [{check}]}}]}}")
    (draft,) = read_odcs(parse_document(write_odcs(before), name="x"))
    assert loaded(draft).checks == before.checks


def test_forms_of_types_are_told() -> None:
    (draft,) = read(
        "schema: [{name: t, properties: ["
        "{name: b, logicalType: string, physicalType: varchar(18), logicalTypeOptions: {format: ipv4}},"
        "{name: c, logicalType: date, logicalTypeOptions: {format: yyyy}},"
        "{name: d, logicalType: integer, physicalType: int, logicalTypeOptions: {format: i64}},"
        "{name: e, logicalType: integer, logicalTypeOptions: {format: i32}},"
        "{name: g, logicalType: timestamp, logicalTypeOptions: {timezone: true, defaultTimezone: CET}},"
        "{name: h, logicalType: array, items: {logicalType: string, logicalTypeOptions: {format: uuid}}}]}]"
    )
    assert [(one.what, one.why) for one in draft.untranslated if "document" not in one.why] == [
        ("logicalTypeOptions format", "lakegate translates no such option"),
        ("logicalTypeOptions format", "lakegate translates no such option"),
        ("logicalTypeOptions format", "lakegate translates no such option"),
        ("logicalTypeOptions format", "lakegate translates no such option"),
        ("logicalTypeOptions defaultTimezone", "lakegate translates no such option"),
        ("inner logicalTypeOptions", "lakegate translates rules of whole columns only"),
    ]
