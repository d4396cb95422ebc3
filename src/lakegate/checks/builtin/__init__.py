"""The checks that come with lakegate. Made by ``tests/e2e/docs_checks.py``: don't edit it."""

from lakegate.checks.builtin.aggregates import (
    column_max,
    column_min,
    column_sum,
    distinct_count,
    mean,
    not_constant,
    not_null_proportion,
    null_rate,
    quantile,
    stddev,
)
from lakegate.checks.builtin.columns import column_exists, column_type, columns_match, schema_changes
from lakegate.checks.builtin.keys import relationships, relationships_where, unique
from lakegate.checks.builtin.queries import mutually_exclusive_ranges, outliers, recency, sequential_values
from lakegate.checks.builtin.row_count import equal_rowcount, fewer_rows_than, row_count, volume_anomalies
from lakegate.checks.builtin.sql import custom_sql, expression_is_true, sql
from lakegate.checks.builtin.texts import (
    casing,
    length_between,
    match_like,
    matches,
    not_empty_string,
    not_match_regex,
    valid_email,
    valid_uuid,
)
from lakegate.checks.builtin.values import (
    accepted_values,
    column_pair_greater,
    in_range,
    not_accepted_values,
    not_in_future,
    not_null,
)

__all__ = [
    "accepted_values",
    "casing",
    "column_exists",
    "column_max",
    "column_min",
    "column_pair_greater",
    "column_sum",
    "column_type",
    "columns_match",
    "custom_sql",
    "distinct_count",
    "equal_rowcount",
    "expression_is_true",
    "fewer_rows_than",
    "in_range",
    "length_between",
    "match_like",
    "matches",
    "mean",
    "mutually_exclusive_ranges",
    "not_accepted_values",
    "not_constant",
    "not_empty_string",
    "not_in_future",
    "not_match_regex",
    "not_null",
    "not_null_proportion",
    "null_rate",
    "outliers",
    "quantile",
    "recency",
    "relationships",
    "relationships_where",
    "row_count",
    "schema_changes",
    "sequential_values",
    "sql",
    "stddev",
    "unique",
    "valid_email",
    "valid_uuid",
    "volume_anomalies",
]
