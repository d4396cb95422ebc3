"""Properties files of dbt, read into contracts. The texts follow the forms of the packages' own documentation."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from lakegate.contracts.dbt import read_dbt
from lakegate.contracts.document import parse_document
from lakegate.contracts.draft import Draft
from lakegate.contracts.interchange import read_foreign
from lakegate.contracts.store import parse_contract
from lakegate.errors import ConfigurationError


def read(text: str) -> list[Draft]:
    return read_dbt(parse_document(textwrap.dedent(text), name="schema.yml"))


def checks(draft: Draft) -> list[str]:
    return [str(check) for check in parse_contract(draft.text("schema.yml")).checks]


def test_a_model_becomes_a_contract() -> None:
    (draft,) = read(
        """\
        version: 2
        models:
          - name: orders
            description: One row an order.
            config: {schema: shop, tags: [nightly], meta: {owner: ann}, materialized: table}
            columns:
              - name: order_id
                data_type: bigint
                constraints: [{type: primary_key}]
                data_tests: [unique, not_null]
              - name: status
                tests:
                  - accepted_values:
                      values: [placed, shipped]
                      config: {severity: warn, where: "at > '2024-01-01'"}
                  - dbt_utils.not_empty_string
              - name: customer_id
                tests:
                  - relationships: {to: ref('customers'), field: id}
                  - relationships: {arguments: {to: "source('crm', 'people')", field: id}}
              - name: discount
                data_type: numeric(5,2)
                tests:
                  - dbt_utils.accepted_range: {min_value: 0, max_value: 1, inclusive: false}
                  - dbt_expectations.expect_column_values_to_be_between: {min_value: 0, row_condition: "status <> 'x'"}
            tests:
              - dbt_utils.unique_combination_of_columns: {combination_of_columns: [order_id, status]}
              - dbt_utils.expression_is_true: {expression: "discount >= 0", name: no_markup}
              - dbt_expectations.expect_table_row_count_to_be_between: {min_value: 1, max_value: 4}
        """
    )
    assert draft.table == "shop.orders"
    assert (draft.owner, draft.tags) == ("ann", ("nightly",))
    found = checks(draft)
    assert found[:2] == ["unique(order_id, scope='table')", "not_null(order_id)"]
    assert (
        "accepted_values(status, values=['placed', 'shipped'], where=\"at > '2024-01-01'\", severity='warn')" in found
    )
    assert "relationships(customer_id, to='default.customers', to_columns='id', scope='table')" in found
    assert "relationships(customer_id, to='crm.people', to_columns='id', scope='table')" in found
    assert "in_range(discount, min=0, max=1, inclusive=False)" in found
    assert "in_range(discount, min=0, where=\"status <> 'x'\")" in found
    assert "unique(order_id, status, scope='table')" in found
    assert "row_count(min=1, max=4)" in found
    assert any("expression='discount >= 0'" in one and "no_markup" in one for one in found)
    assert [(one.line, one.what) for one in draft.untranslated] == [
        (5, "config materialized"),
    ]


@pytest.mark.parametrize(
    ("test", "check"),
    [
        ("dbt_utils.not_accepted_values: {values: [a]}", "not_accepted_values(c, values=['a'])"),
        ("dbt_utils.not_null_proportion: {at_least: 0.95}", "not_null_proportion(c, min=0.95)"),
        ("dbt_utils.not_empty_string: {trim_whitespace: false}", "not_empty_string(c, trim=False)"),
        ("dbt_utils.equal_rowcount: {compare_model: ref('b')}", "equal_rowcount(to='default.b', scope='table')"),
        ("dbt_utils.recency: {datepart: day, field: at, interval: 2}", "recency(at, within='2 days')"),
        ("dbt_utils.sequential_values: {interval: 2}", "sequential_values(c, interval=2)"),
        (
            "dbt_utils.relationships_where: {to: ref('b'), field: id, from_condition: x > 1, to_condition: ok}",
            "relationships_where(c, to='default.b', to_columns='id', to_condition='ok', where='x > 1', scope='table')",
        ),
        ("dbt_expectations.expect_column_sum_to_be_between: {min_value: 1, strictly: false}", "sum(c, min=1)"),
        ("dbt_expectations.expect_column_values_to_not_be_null", "not_null(c)"),
        ("dbt_expectations.expect_column_values_to_be_unique", "unique(c, scope='table')"),
        (
            "great_expectations.expect_column_values_to_be_in_set: {value_set: [1, 2], row_condition: x}",
            "accepted_values(c, values=[1, 2], where='x')",
        ),
        ("accepted_values: {values: [1, 2], quote: false}", "accepted_values(c, values=[1, 2])"),
        (
            "accepted_values: {arguments: {values: [1, 2]}, quote: false, config: {severity: warn}}",
            "accepted_values(c, values=[1, 2], severity='warn')",
        ),
        ("dbt_expectations.expect_column_values_to_match_regex: {regex: '^a'}", "matches(c, pattern='^a')"),
        ("dbt_utils.expression_is_true: {expression: '> 3'}", "expression_is_true(c, expression='`c` > 3')"),
        ("unique: {config: {where: 'x > 1'}, limit: 5}", "unique(c, where='x > 1', scope='table')"),
        ("{name: mine, test_name: not_null, config: {severity: warn}}", "not_null(c, severity='warn', name='mine')"),
    ],
)
def test_tests_of_dbt_and_its_packages(test: str, check: str) -> None:
    (draft,) = read(
        f"models:\n  - name: m\n    columns:\n      - name: x\n      - name: c\n        tests:\n          - {test}\n"
    )
    (found,) = checks(draft)
    assert check in found
    assert not draft.untranslated


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("my_project_test", "lakegate has no check of this name"),
        ("not_null: {config: {enabled: false}}", "it is disabled"),
        ("accepted_values: {values: \"{{ var('states') }}\"}", "it contains Jinja"),
        ("relationships: {to: customers, field: id}", "neither a ref nor a source"),
        ("unique: {config: {error_if: '>10'}}", "counts keys in dbt"),
        ("accepted_values: {values: [a], config: {severity: warn, warn_if: '>1'}}", "counts values in dbt"),
        ("not_null: {config: {error_if: 'between 1 and 5'}}", "isn't a number of failing rows to exceed"),
        ("not_null: {config: {error_if: '>=0'}}", "isn't a number of failing rows to exceed"),
        ("not_null: {config: {fail_calc: 'sum(n)'}}", "it has fail_calc"),
        ("dbt_expectations.expect_column_values_to_be_within_n_stdevs", "lakegate has no check for it"),
        ("dbt_expectations.expect_column_max_to_be_between: {max_value: 2, strictly: true}", "takes 'strictly'"),
        ("dbt_expectations.expect_column_values_to_match_regex: {regex: a, flags: s}", "takes 'flags'"),
        ("dbt_utils.mutually_exclusive_ranges: {lower_bound_column: a, upper_bound_column: b}", "lower_bound_column"),
        ("accepted_values: {values: [now()], quote: false}", "values are SQL"),
        ("dbt_expectations.expect_column_values_to_not_be_null: {mostly: 0.9}", "takes 'mostly'"),
        ("dbt_expectations.expect_column_values_to_be_unique: {row_condition: a, config: {where: b}}", "two filters"),
        ("dbt_utils.accepted_range: {min_value: now()}", "is SQL, not a value"),
        ("dbt_utils.accepted_range: {min_value: 1, group_by: [x]}", "takes 'group_by'"),
    ],
)
def test_what_no_check_says_is_listed_with_its_line_and_why(test: str, why: str) -> None:
    (draft,) = read(f"models:\n  - name: m\n    columns:\n      - name: c\n        tests:\n          - {test}\n")
    assert checks(draft) == []
    (lost,) = draft.untranslated
    assert lost.line == 6
    assert why in lost.why


@pytest.mark.parametrize(
    ("config", "made"),
    [
        ("severity: warn, error_if: '>10'", ["not_null(c, severity='warn')"]),
        ("severity: warn, warn_if: '>=3'", ["not_null(c, tolerance=2, severity='warn')"]),
        ("severity: error, error_if: '> 10'", ["not_null(c, tolerance=10)", "not_null(c, severity='warn')"]),
        ("error_if: '>10', warn_if: '>10'", ["not_null(c, tolerance=10)"]),
        ("error_if: '!=0', warn_if: '> 5'", ["not_null(c)"]),
    ],
)
def test_conditions_of_severities_are_tolerances(config: str, made: list[str]) -> None:
    (draft,) = read(f"models: [{{name: m, columns: [{{name: c, tests: [not_null: {{config: {{{config}}}}}]}}]}}]")
    assert checks(draft) == made
    assert draft.untranslated == []


@pytest.mark.parametrize(
    ("type_", "given", "values"),
    [
        ("bigint", "['1', -2]", [1, -2]),
        ("varchar", "[1, 2.5, x, true]", ["1", "2.5", "x", True]),
        ("double", "['1.5', 2]", [1.5, 2]),
        ("boolean", "['True', 'false']", [True, False]),
    ],
)
def test_values_are_those_of_the_column_s_type(type_: str, given: str, values: list[object]) -> None:
    tests = f"[accepted_values: {{values: {given}}}]"
    (draft,) = read(f"models: [{{name: m, columns: [{{name: c, data_type: {type_}, tests: {tests}}}]}}]")
    (check,) = parse_contract(draft.text("schema.yml")).checks
    assert check.arguments["values"] == values


def test_no_test_is_dropped_for_how_it_is_written() -> None:
    (draft,) = read(
        """\
        models:
          - name: m
            data_tests: {unique: {column_name: a}}
            constraints:
              - {type: primary_key, columns: [a, b]}
            columns:
              - {name: ID, data_tests: not_null, constraints: [{type: check, expression: ID > 0}]}
              - {name: 2024, data_tests: [not_null]}
        """
    )
    assert checks(draft) == []
    assert sorted((one.line, one.what) for one in draft.untranslated) == [
        (3, "data_tests"), (5, "constraint primary_key"), (7, "constraint check"), (7, "data_tests"), (8, "a column"),
    ]  # fmt: skip


def test_a_column_that_is_listed_twice_is_one_with_the_tests_of_both() -> None:
    (draft,) = read(
        """\
        models:
          - name: orders
            columns:
              - {name: id, tests: [not_null]}
              - {name: ID, data_type: int, description: The key., tests: [unique, not_null]}
        """
    )
    assert checks(draft) == ["not_null(id)", "unique(id, scope='table')"]
    assert [(one.name, one.type, one.description) for one in draft.columns] == [("id", "int", "The key.")]
    assert [(one.line, one.what) for one in draft.untranslated] == [(5, "column ID")]


def test_names_that_only_dbt_can_render_are_replaced_and_listed() -> None:
    first, second = read(
        """\
        models: [{name: orders, config: {schema: "{{ target.schema }}", alias: "{{ var('x') }}"}}]
        sources:
          - {name: crm, schema: "{{ var('raw') }}_crm", tables: [{name: people, identifier: "{{ var('people') }}"}]}
        """
    )
    assert (first.table, second.table) == ("default.orders", "crm.people")
    assert [(one.line, one.what) for one in first.untranslated] == [(1, "schema"), (1, "alias")]
    assert [(one.line, one.what) for one in second.untranslated] == [(3, "identifier"), (3, "schema")]


def test_tables_of_the_same_file_have_their_own_names_in_tests_of_others() -> None:
    first, _, third = read(
        """\
        models:
          - name: orders
            config: {schema: shop}
            columns:
              - name: customer
                tests:
                  - relationships: {to: ref('customers'), field: id}
                  - relationships: {to: "source('crm', 'people')", field: id}
                  - relationships: {to: "{{ ref('other', 'elsewhere') }}", field: id}
          - {name: customers, config: {schema: shop, alias: clients}}
        sources:
          - name: crm
            schema: raw
            tables:
              - {name: people, identifier: people_v2, tests: [dbt_utils.equal_rowcount: {compare_model: ref('orders')}]}
        """
    )
    assert [check.partition("to=")[2].partition(",")[0] for check in checks(first) + checks(third)] == [
        "'shop.clients'", "'raw.people_v2'", "'default.elsewhere'", "'shop.orders'",
    ]  # fmt: skip


def test_tables_of_sources_are_in_the_source_s_schema() -> None:
    first, second = read(
        """\
        sources:
          - name: crm
            schema: raw_crm
            loader: fivetran
            freshness: {error_after: {count: 12, period: hour}}
            tables:
              - {name: people, columns: [{name: id, tests: [unique]}]}
              - {name: firms, identifier: firms_v2, columns: [{name: id, tests: [unique]}]}
        """
    )
    assert [draft.table for draft in (first, second)] == ["raw_crm.people", "raw_crm.firms_v2"]
    assert checks(first) == checks(second) == ["unique(id, scope='table')"]
    assert [one.what for one in second.untranslated] == ["source loader", "source freshness"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exposures: []", "is neither an ODCS contract nor a properties file of dbt"),
        ("models: []", "describes no table"),
        ("models: [{name: 'a b'}]", "x.yml:1: 'default.a b' can't name a table"),
    ],
)
def test_a_file_that_is_neither_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        read_foreign(Path("x.yml"))
    assert said in caught.value.message
