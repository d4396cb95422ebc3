"""Checks of other tools as their documentation writes them, ours that say the same, and what theirs find.

The rows, the verdicts and the numbers of failing rows of Great Expectations are those of its gallery. The other tools
document what a check means, not what it finds: for these, the numbers follow from that, on rows with NULLs among them.
``docs/how-to/migrate-from-another-tool.md`` is made of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from lakegate.model.schema import Column, Schema

Tool = Literal["Great Expectations", "DQX", "dbt", "Soda"]
FAR = datetime(2999, 1, 1)
_UUID = "9d3e0f6a-0000-4000-8000-0123456789ab"
_T = True


@dataclass(frozen=True)
class Example:
    """One check of another tool.

    Attributes:
        rows: The name of the rows that it's about: see :data:`ROWS`.
        theirs: How it's written there, shortened.
        ours: Our check, as text.
        failing: How many rows fail it, theirs and ours; ``None`` if it's about no rows, and fails.
        passes: Whether both pass: within a tolerance, with failing rows, too.
        note: What differs.
        of: Whose it is.
    """

    rows: str
    theirs: str
    ours: str
    failing: int | None = 0
    passes: bool | None = None
    note: str = ""
    of: Tool = "Great Expectations"

    @property
    def passed(self) -> bool:
        """Whether the check passes."""
        return self.failing == 0 if self.passes is None else self.passes

    @property
    def other_rows(self) -> bool:
        """Whether it compares with another table, or with earlier batches."""
        return "shop." in self.ours or self.ours.startswith("volume_anomalies") or "percent=" in self.ours


def _table(types: Mapping[str, str], **columns: Sequence[Any]) -> pa.Table:
    kinds = {
        "long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_(),
        "date": pa.date32(), "timestamp": pa.timestamp("us"), "list<long>": pa.list_(pa.int64()),
    }  # fmt: skip
    return pa.table({name: pa.array(values, kinds[types.get(name, "long")]) for name, values in columns.items()})


_OF_GX = {
    **dict.fromkeys(("s", "t", "u", "w", "code", "mixed", "letter", "key", "g1", "g2", "g3", "iso", "us"), "string"),
    **dict.fromkeys(("x", "y", "q2", "z2", "share"), "double"),
    **dict.fromkeys(("day",), "date"),
    **dict.fromkeys(("kind", "json", "text"), "string"),
    "flag": "boolean",
}
_OF_DQX = {
    **dict.fromkeys(("name", "state", "dated", "json", "mail", "uuid", "ip", "title", "country"), "string"),
    **dict.fromkeys(("lat", "lon"), "double"),
    **dict.fromkeys(("began", "ended", "seen"), "timestamp"),
    "items": "list<long>",
}
ROWS: Mapping[str, pa.Table] = {
    "three": _table(
        _OF_GX,
        a=[1, 2, 4], b=[1, 1, 1], p=[2, 2, 4], m2=[2, -2, 4], m3=[4, 7, -3], r1=[1, 1, 8], r2=[1, 2, 2], r3=[2, 3, 7],
        s=["aaa", "abb", "acc"], t=["bcc", "bdd", "abc"], u=["ade", "bee", "24601"], w=["ade", "adb", "aaa"],
        code=["12345", "abcde", "1b3d5"], mixed=["A", "13579", "24680"], flag=[None, True, False],
        letter=["A", None, None], key=["A", "A", "B"], g1=["A", "B", None], g2=["A", "B", None], g3=["A", "C", None],
        iso=["2024-01-15", "2024-06-20", "2024-12-31"], us=["01/15/2024", "06/20/2024", "12/31/2024"],
        json=['{"a": 1}', '{"a": "x"}', None],
    ),
    "four": _table(
        _OF_GX,
        x=[1, 1.3, 0.8, 2], y=[1, 7, 2.5, 3], s=["aaa", "abb", "acc", "aaa"], g=[1, 1, 1, 3],
        t=["aaa", "abb", "acc", None], n=[1, None, 1, 3],
    ),
    "five": _table(_OF_GX, z1=[1, 1, 1, 3, 3], z2=[-100000000000, -1, 0, 1, 1], amount=[10, 11, 12, 13, 100]),
    "seven": _table(_OF_GX, q1=[1, 2, 2, 3, 3, 3, 4], q2=[1, 7, 2.5, 3, 2, 5, 6]),
    "ten": _table(_OF_GX, kind=[*"AAAAABBBCC"]),
    "six": _table(
        _OF_DQX,
        id=[1, 2, 3, 4, 5, 5], n=[1, 5, 10, None, -1, 5], m=[1, 4, 11, 3, None, 5], group=[1, 1, 1, 2, 2, 2],
        name=["a", "", " ", None, "B", "ab"], state=["open", "OPEN", "shut", None, "gone", "open"],
        dated=["2024-01-31", "2024-02-30", "31.01.2024", None, "", "2023-12-31"],
        json=['{"a": 1, "b": 2}', '{"a": 1}', "[1]", None, "{oops", '{"b": null}'],
        mail=["a@example.org", "a@@example.org", "a.example.org", None, "", "b@example.org"],
        uuid=[_UUID, "9d3e0f6a", _UUID.upper(), None, "", "x"],
        ip=["10.0.0.1", "256.1.1.1", "10.0.0", None, "192.168.1.9", "192.168.1.9\n"],
        title=["Red Door", "red Door", "Red door", None, "RED", ""],
        country=["US", "us", "USA", None, "DE", "XX"],
        lat=[0, 90, -90.1, None, 91, 45], lon=[0, 180, -180.1, None, 181, 90],
        began=[datetime(2024, 1, day) for day in (1, 2, 3, 5, 6)] + [None],
        ended=[datetime(2024, 1, day) for day in (9, 3, 1, 5)] + [None, datetime(2024, 1, 9)],
        seen=[datetime(2024, 1, 1), FAR, None, datetime(2024, 1, 1), FAR, datetime(2024, 1, 1)],
        items=[[1], [], None, [1, 2], [None], [3]],
    ),
}  # fmt: skip

_SHARE = "SELECT 1 FROM (SELECT count(DISTINCT {0}) / count({0}) AS share FROM batch) WHERE NOT ({1})"

GREAT_EXPECTATIONS = (
    Example("three", "ColumnDistinctValuesToBeInSet(a, [1, 2, 3, 4, 5])", "accepted_values(a, [1, 2, 3, 4, 5])"),
    Example("three", "ColumnDistinctValuesToBeInSet(b, [3, 2, 4])", "accepted_values(b, [3, 2, 4])", 3,
            note="GX counts the value once; lakegate, the rows that have it"),
    Example("three", "ColumnDistinctValuesToContainSet(a, [1, 4])",
            "custom_sql('SELECT v FROM (SELECT explode(array(1, 4)) AS v) LEFT ANTI JOIN batch ON a = v')"),
    Example("three", "ColumnDistinctValuesToContainSet(b, [3, 2, 4])",
            "custom_sql('SELECT v FROM (SELECT explode(array(3, 2, 4)) AS v) LEFT ANTI JOIN batch ON b = v')", 3),
    Example("three", "ColumnDistinctValuesToEqualSet(a, [1, 2, 4])",
            "custom_sql('SELECT v FROM (SELECT explode(array(1, 2, 4)) AS v) FULL JOIN batch ON a = v "
            "WHERE v IS NULL OR a IS NULL')"),
    Example("three", "ColumnDistinctValuesToEqualSet(b, [3, 2, 4])",
            "custom_sql('SELECT DISTINCT v, b FROM (SELECT explode(array(3, 2, 4)) AS v) FULL JOIN batch ON b = v "
            "WHERE v IS NULL OR b IS NULL')", 4, note="three values that are missing, and one too many"),
    Example("ten", "ColumnKLDivergenceToBeLessThan(kind, {A: .5, B: .3, C: .2}, 0.1)",
            'custom_sql("SELECT 1 FROM (SELECT kind, count(*) / sum(count(*)) OVER () AS p FROM batch GROUP BY kind) '
            "HAVING sum(p * ln(p / CASE kind WHEN 'A' THEN 0.5D WHEN 'B' THEN 0.3D WHEN 'C' THEN 0.2D END)) >= 0.1\")"),
    Example("four", "ColumnMaxToBeBetween(x, 1, 3)", "max(x, 1, 3)"),
    Example("four", "ColumnMaxToBeBetween(y, 1, 7, strict_max=True)",
            "custom_sql('SELECT 1 FROM batch HAVING NOT (max(y) >= 1 AND max(y) < 7)')", 1,
            note="ends that are excluded are written in SQL"),
    Example("four", "ColumnMeanToBeBetween(x, 1, 3)", "mean(x, 1, 3)"),
    Example("four", "ColumnMeanToBeBetween(y, 1, 3)", "mean(y, 1, 3)", None),
    Example("four", "ColumnMedianToBeBetween(x, 1, 3)", "quantile(x, 0.5, 1, 3)"),
    Example("four", "ColumnMedianToBeBetween(y, 3, 5)", "quantile(y, 0.5, 3, 5)", None,
            note="of an even number of values, GX takes the mean of the middle two, lakegate the lower one"),
    Example("four", "ColumnMinToBeBetween(x, .5, 1)", "min(x, 0.5, 1)"),
    Example("four", "ColumnMinToBeBetween(y, 1, 3, strict_min=True)",
            "custom_sql('SELECT 1 FROM batch HAVING NOT (min(y) > 1 AND min(y) <= 3)')", 1),
    Example("three", "ColumnMostCommonValueToBeInSet(b, [1, 2, 4])",
            "custom_sql('SELECT b FROM (SELECT b, rank() OVER (ORDER BY count(*) DESC) AS place FROM batch "
            "WHERE b IS NOT NULL GROUP BY b) WHERE place = 1 AND b NOT IN (1, 2, 4)')"),
    Example("three", "ColumnPairValuesAToBeGreaterThanB(p, a, or_equal=True)",
            "column_pair_greater(p, a, or_equal=True)"),
    Example("three", "ColumnPairValuesAToBeGreaterThanB(a, p)", "column_pair_greater(a, p)", 3),
    Example("three", "ColumnPairValuesToBeEqual(a, p, mostly=0.5)",
            "expression_is_true('a = p', where='a IS NOT NULL AND p IS NOT NULL', tolerance='50%')", 1, _T),
    Example("three", "ColumnPairValuesToBeEqual(a, p)", "expression_is_true('a = p')", 1,
            note="a NULL in one of them passes; write `a <=> p` to refuse it"),
    Example("three", "ColumnPairValuesToBeInSet(a, b, [(2, 1), (1, 1)], mostly=.5)",
            "expression_is_true('a = 2 AND b = 1 OR a = 1 AND b = 1', tolerance='50%')", 1, _T),
    Example("three", "ColumnPairValuesToBeInSet(a, b, [(1, 2), (4, 1)])",
            "expression_is_true('a = 1 AND b = 2 OR a = 4 AND b = 1')", 2),
    Example("four", "ColumnProportionOfNonNullValuesToBeBetween(t, 0, 0.8)", "not_null_proportion(t, 0, 0.8)"),
    Example("four", "ColumnProportionOfNonNullValuesToBeBetween(n, 0.3, 0.5)", "not_null_proportion(n, 0.3, 0.5)",
            None),
    Example("four", "ColumnProportionOfUniqueValuesToBeBetween(s, 0, 0.8)",
            f"custom_sql('{_SHARE.format('s', 'share BETWEEN 0 AND 0.8')}')"),
    Example("four", "ColumnProportionOfUniqueValuesToBeBetween(g, 0.3, 0.5, strict_max=True)",
            f"custom_sql('{_SHARE.format('g', 'share >= 0.3 AND share < 0.5')}')", 1),
    Example("seven", "ColumnQuantileValuesToBeBetween(q1, {0: [0, 1]})", "quantile(q1, 0, 0, 1)"),
    Example("seven", "ColumnQuantileValuesToBeBetween(q1, {.333: [2, 3]})", "quantile(q1, 0.333, 2, 3)"),
    Example("seven", "ColumnQuantileValuesToBeBetween(q2, {.667: [3, 4]})", "quantile(q2, 0.667, 3, 4)", None,
            note="a check for each quantile"),
    Example("seven", "ColumnQuantileValuesToBeBetween(q2, {1: [4, 5]})", "quantile(q2, 1, 4, 5)", None),
    Example("four", "ColumnStdevToBeBetween(x, .5, .6)", "stddev(x, 0.5, 0.6)"),
    Example("four", "ColumnStdevToBeBetween(y, .5, .6)", "stddev(y, 0.5, 0.6)", None),
    Example("four", "ColumnSumToBeBetween(x, 2, 6)", "sum(x, 2, 6)"),
    Example("four", "ColumnSumToBeBetween(y, 2, 6)", "sum(y, 2, 6)", None),
    Example("three", "ColumnToExist(a)", "column_exists(a)"),
    Example("three", "ColumnToExist(missing)", "column_exists(missing)", None),
    Example("three", "ColumnTypeToBe(a, 'BIGINT')", "type(a, 'long')"),
    Example("three", "ColumnTypeToBe(s, 'BIGINT')", "type(s, 'long')", None),
    Example("four", "ColumnUniqueValueCountToBeBetween(s, 2, 4)", "distinct_count(s, 2, 4)"),
    Example("four", "ColumnUniqueValueCountToBeBetween(g, 3, 5)", "distinct_count(g, 3, 5)", None),
    Example("three", "ColumnValueLengthsToBeBetween(mixed, 1, 5)", "length_between(mixed, 1, 5)"),
    Example("three", "ColumnValueLengthsToBeBetween(code, 5, 5, strict_min=True, strict_max=True)",
            "expression_is_true('length(code) > 5 AND length(code) < 5')", 3),
    Example("three", "ColumnValueLengthsToEqual(code, 5)", "length_between(code, 5, 5)"),
    Example("three", "ColumnValueLengthsToEqual(mixed, 5)", "length_between(mixed, 5, 5)", 1),
    Example("five", "ColumnValueZScoresToBeLessThan(z1, 1.96, double_sided=True)", "outliers(z1, deviations=1.96)"),
    Example("five", "ColumnValueZScoresToBeLessThan(z2, 1, double_sided=True)", "outliers(z2, deviations=1)", 1),
    Example("four", "ColumnValuesToBeBetween(x, .5, 2)", "in_range(x, 0.5, 2)"),
    Example("four", "ColumnValuesToBeBetween(y, 1, 7, strict_max=True)", "expression_is_true('y >= 1 AND y < 7')", 1),
    Example("four", "ColumnValuesToBeBetween(y, 1, 7, strict_min=True, strict_max=True)",
            "in_range(y, 1, 7, inclusive=False)", 2),
    Example("three", "ColumnValuesToBeInSet(a, [1, 2], mostly=.5)",
            "accepted_values(a, [1, 2], where='a IS NOT NULL', tolerance='50%')", 1, _T,
            note="`mostly` is a share of the values that aren't NULL; a tolerance, of the rows looked at"),
    Example("three", "ColumnValuesToBeInSet(b, [2, 4])", "accepted_values(b, [2, 4])", 3),
    Example("three", "ColumnValuesToBeJsonParseable(json)",
            "sql('json IS NOT NULL AND try_parse_json(json) IS NULL')"),
    Example("three", "ColumnValuesToBeNull(letter, mostly=0.66)", "sql('letter IS NOT NULL', tolerance='34%')", 1, _T),
    Example("three", "ColumnValuesToBeNull(flag)", "sql('flag IS NOT NULL')", 2),
    Example("three", "ColumnValuesToBeOfType(a, 'BIGINT')", "type(a, 'long')"),
    Example("three", "ColumnValuesToBeOfType(s, 'DOUBLE')", "type(s, 'double')", None,
            note="a column has one type, so no rows are counted"),
    Example("three", "ColumnValuesToBeUnique(a)", "unique(a)"),
    Example("three", "ColumnValuesToBeUnique(key)", "unique(key)", 2),
    Example("three", "ColumnValuesToMatchLikePattern(s, 'a%')", "match_like(s, 'a%')",
            note="LIKE has no `[ ]` in Spark; write `matches(s, r'^[a]')`"),
    Example("three", "ColumnValuesToMatchLikePattern(u, 'a%')", "match_like(u, 'a%')", 2),
    Example("three", "ColumnValuesToMatchLikePatternList(s, ['aa%', 'ab%', 'ac%'], 'any')",
            "expression_is_true(\"s LIKE ANY ('aa%', 'ab%', 'ac%')\")"),
    Example("three", "ColumnValuesToMatchLikePatternList(w, ['ad%', 'a%'], 'all')",
            "expression_is_true(\"w LIKE ALL ('ad%', 'a%')\")", 1),
    Example("three", "ColumnValuesToMatchRegex(s, '^a.*')", "matches(s, r'^a.*')"),
    Example("three", "ColumnValuesToMatchRegex(t, '^a.*')", "matches(t, r'^a.*')", 2),
    Example("three", "ColumnValuesToMatchRegexList(t, ['^a.*', '^b.*'], 'any')", "matches(t, r'^a.*|^b.*')"),
    Example("three", "ColumnValuesToMatchRegexList(s, ['^a.*', '^b.*'], 'all')",
            "expression_is_true(\"s RLIKE '^a.*' AND s RLIKE '^b.*'\")", 3),
    Example("three", "ColumnValuesToMatchStrftimeFormat(iso, '%Y-%m-%d')",
            "sql(\"iso IS NOT NULL AND try_to_timestamp(iso, 'yyyy-MM-dd') IS NULL\")"),
    Example("three", "ColumnValuesToMatchStrftimeFormat(us, '%Y-%m-%d')",
            "sql(\"us IS NOT NULL AND try_to_timestamp(us, 'yyyy-MM-dd') IS NULL\")", 3),
    Example("three", "ColumnValuesToNotBeInSet(b, [2, 4])", "not_accepted_values(b, [2, 4])"),
    Example("three", "ColumnValuesToNotBeInSet(a, [2, 4])", "not_accepted_values(a, [2, 4])", 2),
    Example("three", "ColumnValuesToNotBeNull(flag, mostly=0.66)", "not_null(flag, tolerance='34%')", 1, _T),
    Example("three", "ColumnValuesToNotBeNull(letter)", "not_null(letter)", 2),
    Example("five", "ColumnValuesToNotBeOutliers(amount, 'std', 3.0)", "outliers(amount, deviations=3)"),
    Example("five", "ColumnValuesToNotBeOutliers(amount, 'iqr', 1.5)",
            "custom_sql('SELECT amount FROM batch, (SELECT percentile(amount, 0.25) AS low, percentile(amount, 0.75) "
            "AS high FROM batch) WHERE amount < low - 1.5 * (high - low) OR amount > high + 1.5 * (high - low)')", 1),
    Example("three", "ColumnValuesToNotMatchLikePattern(u, 'a%', mostly=.66)",
            "sql(\"u LIKE 'a%'\", where='u IS NOT NULL', tolerance='34%')", 1, _T),
    Example("three", "ColumnValuesToNotMatchLikePattern(s, 'a%')", "sql(\"s LIKE 'a%'\")", 3),
    Example("three", "ColumnValuesToNotMatchLikePatternList(w, ['aa%', 'ab%', 'ac%'], mostly=.66)",
            "sql(\"w LIKE ANY ('aa%', 'ab%', 'ac%')\", where='w IS NOT NULL', tolerance='34%')", 1, _T),
    Example("three", "ColumnValuesToNotMatchLikePatternList(s, ['aa%', 'ab%', 'ac%'])",
            "sql(\"s LIKE ANY ('aa%', 'ab%', 'ac%')\")", 3),
    Example("three", "ColumnValuesToNotMatchRegex(t, '^a.*', mostly=.66)",
            "not_match_regex(t, r'^a.*', where='t IS NOT NULL', tolerance='34%')", 1, _T),
    Example("three", "ColumnValuesToNotMatchRegex(s, '^a.*')", "not_match_regex(s, r'^a.*')", 3),
    Example("three", "ColumnValuesToNotMatchRegexList(s, ['^b.*', '^c.*'])", "not_match_regex(s, r'^b.*|^c.*')"),
    Example("three", "ColumnValuesToNotMatchRegexList(t, ['^b.*', '^c.*'])", "not_match_regex(t, r'^b.*|^c.*')", 2),
    Example("three", "CompoundColumnsToBeUnique([a, b, m3])", "unique(a, b, m3)"),
    Example("three", "CompoundColumnsToBeUnique([b, flag])", "unique(b, flag)", 0,
            note="a row with a NULL in its key is left out, as in SQL"),
    Example("three", "MulticolumnSumToEqual([a, m2, m3], 7, mostly=0.66)",
            "expression_is_true('a + m2 + m3 = 7', tolerance='34%')", 1, _T),
    Example("three", "MulticolumnSumToEqual([a, m2, m3], 7)", "expression_is_true('a + m2 + m3 = 7')", 1),
    Example("three", "MulticolumnValuesToBeEqual([g1, g2, g3], mostly=0.5)",
            "expression_is_true('g1 = g2 AND g2 = g3', tolerance='50%')", 1, _T),
    Example("three", "MulticolumnValuesToBeEqual([g1, g2, g3])", "expression_is_true('g1 = g2 AND g2 = g3')", 1),
    Example("three", "SelectColumnValuesToBeUniqueWithinRecord([r1, r3])", "sql('r1 = r3')"),
    Example("three", "SelectColumnValuesToBeUniqueWithinRecord([r1, r2, r3])",
            "sql('r1 = r2 OR r1 = r3 OR r2 = r3')", 1),
    Example("three", "TableColumnsToMatchSet([a, b], exact_match=False)",
            "columns_match(['a', 'b'], mode='additive')"),
    Example("three", "TableColumnsToMatchSet([a, other], exact_match=True)", "columns_match(['a', 'other'])", None),
    Example("five", "TableColumnsToMatchOrderedList([z1, z2, amount])",
            "columns_match(['z1', 'z2', 'amount'], ordered=True)"),
    Example("five", "TableColumnsToMatchOrderedList([z2, z1, x])", "columns_match(['z2', 'z1', 'x'], ordered=True)",
            None),
    Example("three", "TableRowCountToBeBetween(1, 4)", "row_count(1, 4)"),
    Example("three", "TableRowCountToBeBetween(max_value=2)", "row_count(max=2)", 1,
            note="its failing rows are the number of rows too many"),
    Example("three", "TableRowCountToEqual(3)", "row_count(3, 3)"),
    Example("three", "TableRowCountToEqual(2)", "row_count(2, 2)", 1),
    Example("three", "TableRowCountToEqualOtherTable('shop.orders')", "equal_rowcount(to='shop.orders')"),
)  # fmt: skip

_SQL_DATE = "dated IS NOT NULL AND try_to_timestamp(dated, 'yyyy-MM-dd') IS NULL"
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"


def _of_dqx(theirs: str, ours: str, failing: int | None = 0, passes: bool | None = None, note: str = "") -> Example:
    return Example("six", theirs, ours, failing, passes, note, "DQX")


DQX = (
    _of_dqx("is_not_null(n)", "not_null(n)", 1),
    _of_dqx("is_null(n)", "sql('n IS NOT NULL')", 5),
    _of_dqx("is_not_empty(name)", "not_empty_string(name, trim=False)", 1),
    _of_dqx("is_not_empty(name, trim_strings: true)", "not_empty_string(name)", 2),
    _of_dqx("is_empty(name)", "expression_is_true(\"name = ''\")", 4),
    _of_dqx("is_not_null_and_not_empty(name)", "sql(\"name IS NULL OR name = ''\")", 2,
            note="or two checks, `not_null` and `not_empty_string`"),
    _of_dqx("is_null_or_empty(name)", "sql(\"name <> ''\")", 4),
    _of_dqx("is_in_list(state, [open, shut])", "accepted_values(state, ['open', 'shut'])", 2),
    _of_dqx("is_in_list(state, [open, shut], case_sensitive: false)",
            "expression_is_true(\"lower(state) IN ('open', 'shut')\")", 1),
    _of_dqx("is_not_in_list(state, [gone])", "not_accepted_values(state, ['gone'])", 1),
    _of_dqx("is_not_null_and_is_in_list(state, [open, shut])",
            "sql(\"state IS NULL OR state NOT IN ('open', 'shut')\")", 3),
    _of_dqx("is_not_null_and_not_empty_array(items)", "sql('items IS NULL OR size(items) = 0')", 2),
    _of_dqx("is_in_range(n, 1, 5)", "in_range(n, 1, 5)", 2),
    _of_dqx("is_in_range(n, 0, m)", "expression_is_true('n BETWEEN 0 AND m')", 2,
            note="a limit that is a column is written in SQL"),
    _of_dqx("is_not_in_range(n, 1, 5)", "sql('n BETWEEN 1 AND 5')", 3),
    _of_dqx("is_equal_to(n, 5)", "accepted_values(n, [5])", 3),
    _of_dqx("is_equal_to(n, m, abs_tolerance: 1)", "expression_is_true('abs(n - m) <= 1')", 0),
    _of_dqx("is_not_equal_to(n, 5)", "not_accepted_values(n, [5])", 2),
    _of_dqx("is_not_less_than(n, 1)", "in_range(n, min=1)", 1),
    _of_dqx("is_not_greater_than(n, 5)", "in_range(n, max=5)", 1),
    _of_dqx("is_valid_date(dated, yyyy-MM-dd)", f'sql("{_SQL_DATE}")', 3),
    _of_dqx("is_valid_timestamp(dated)", "sql('dated IS NOT NULL AND try_to_timestamp(dated) IS NULL')", 3),
    _of_dqx("is_valid_json(json)", "sql('json IS NOT NULL AND try_parse_json(json) IS NULL')", 1),
    _of_dqx("is_not_in_future(seen)", "not_in_future(seen)", 2),
    _of_dqx("is_older_than_n_days(began, 7)",
            "expression_is_true('date(began) < date_sub(current_date(), 7)')", 0,
            note="in SQL, `current_date()` is the day of the query; `lakegate audit --at` doesn't change it"),
    _of_dqx("is_older_than_col2_for_n_days(began, ended, 2)",
            "expression_is_true('date(began) < date_sub(date(ended), 2)')", 3),
    _of_dqx("is_data_fresh(began, 1440)",
            "expression_is_true('began >= current_timestamp() - INTERVAL 1440 MINUTES')", 5,
            note="each row; `recency` looks at the latest one, and is what most people mean"),
    _of_dqx("regex_match(ip, '^[0-9]')", "matches(ip, r'^[0-9]')", 0),
    _of_dqx("regex_match(ip, '^10', negate: true)", "not_match_regex(ip, r'^10')", 2),
    _of_dqx("is_valid_email(mail)", "valid_email(mail)", 3,
            note="lakegate takes no quoted names, and no addresses in `[ ]`"),
    _of_dqx("is_valid_uuid(uuid)", "valid_uuid(uuid)", 3),
    _of_dqx("has_valid_string_case(name, lower)", "casing(name, 'lower')", 1),
    _of_dqx("has_valid_string_case(title, title)",
            "sql(\"exists(split(title, ' '), word -> left(word, 1) <> upper(left(word, 1)))\")", 2),
    _of_dqx("is_valid_ipv4_address(ip)", rf"matches(ip, r'^({_OCTET}\.){{3}}{_OCTET}\z')", 3),
    _of_dqx("is_valid_country_code(country)", "accepted_values(country, ['US', 'DE'])", 3,
            note="list the codes that you expect"),
    _of_dqx("is_latitude(lat)", "in_range(lat, -90, 90)", 2),
    _of_dqx("is_longitude(lon)", "in_range(lon, -180, 180)", 2),
    _of_dqx('sql_expression("n > 0")', "expression_is_true('n > 0')", 1),
    _of_dqx('sql_expression("n > 5", negate: true)', "sql('n > 5')", 1),
    _of_dqx("is_unique([id])", "unique(id)", 2),
    _of_dqx("is_unique([group, n])", "unique(group, n)", 0),
    _of_dqx("is_aggr_not_greater_than(n, count, 4)", "custom_sql('SELECT 1 FROM batch HAVING count(n) > 4')", 1,
            note="`count(*)`: `row_count`"),
    _of_dqx("is_aggr_not_less_than(n, avg, 4)", "mean(n, min=4)"),
    _of_dqx("is_aggr_not_greater_than(n, sum, 15, group_by: [group])",
            "custom_sql('SELECT group FROM batch GROUP BY group HAVING sum(n) > 15')", 1,
            note="DQX marks each row of the group; lakegate counts the groups"),
    _of_dqx("is_aggr_equal(id, count_distinct, 5)", "distinct_count(id, 5, 5)"),
    _of_dqx("is_aggr_not_equal(n, max, 10)", "custom_sql('SELECT 1 FROM batch HAVING max(n) = 10')", 1),
    _of_dqx("has_valid_schema('id LONG, n LONG')", "columns_match(['id: long', 'n: long'], mode='additive')"),
    _of_dqx("has_valid_schema('id LONG, n LONG', strict: true)", "columns_match(['id: long', 'n: long'], ordered=True)",
            None),
    _of_dqx("has_no_outliers(n)",
            "custom_sql('SELECT n FROM batch, (SELECT percentile(abs(n - middle), 0.5) AS mad, first(middle) AS middle "
            "FROM batch, (SELECT percentile(n, 0.5) AS middle FROM batch)) WHERE abs(n - middle) > 3.5 * mad')", 0,
            note="by the median; `outliers` goes by the mean and the standard deviation"),
    _of_dqx("has_no_gaps_per_time_window(began, 1440)",
            "custom_sql('SELECT began FROM (SELECT began, lag(began) OVER (ORDER BY began) AS previous FROM batch) "
            "WHERE began > previous + INTERVAL 1440 MINUTES')", 1),
    _of_dqx('sql_query("SELECT … AS condition FROM {{ input }}")',
            "custom_sql('SELECT id FROM batch GROUP BY id HAVING count(*) > 1')", 1,
            note="over the batch only: it can't read other tables"),
    _of_dqx("foreign_key([id], ref_table: shop.orders)", "relationships(id, to='shop.orders')"),
    _of_dqx("aggr_matches_dataset(count, ref_table: shop.orders)", "equal_rowcount(to='shop.orders')"),
)  # fmt: skip


def _of_dbt(theirs: str, ours: str, failing: int | None = 0, passes: bool | None = None, note: str = "") -> Example:
    return Example("six", theirs, ours, failing, passes, note, "dbt")


DBT = (
    _of_dbt("not_null", "not_null(n)", 1),
    _of_dbt("unique", "unique(id)", 2, note="dbt counts keys, lakegate the rows that share one"),
    _of_dbt("accepted_values: {values: [open, shut]}", "accepted_values(state, ['open', 'shut'])", 2,
            note="dbt counts values, lakegate rows"),
    _of_dbt("relationships: {to: ref('orders'), field: id}", "relationships(id, to='shop.orders', to_columns=id)"),
    _of_dbt("dbt_utils.accepted_range: {min_value: 1, max_value: 5}", "in_range(n, 1, 5)", 2),
    _of_dbt("dbt_utils.accepted_range: {min_value: 1, inclusive: false}", "in_range(n, min=1, inclusive=False)", 2),
    _of_dbt("dbt_utils.at_least_one", "distinct_count(n, min=1)"),
    _of_dbt("dbt_utils.cardinality_equality", "custom_sql('SELECT 1 FROM batch HAVING count(DISTINCT n) <> 4')", 0,
            note="between two columns of one table"),
    _of_dbt("dbt_utils.equal_rowcount: {compare_model: ref('orders')}", "equal_rowcount(to='shop.orders')"),
    _of_dbt("dbt_utils.expression_is_true: {expression: 'n <= m'}", "expression_is_true('n <= m')", 1),
    _of_dbt("dbt_utils.fewer_rows_than: {compare_model: ref('orders')}", "fewer_rows_than(to='shop.orders')"),
    _of_dbt("dbt_utils.mutually_exclusive_ranges: {lower_bound_column: began, upper_bound_column: ended}",
            "mutually_exclusive_ranges(began, ended)", 3),
    _of_dbt("dbt_utils.not_accepted_values: {values: [gone]}", "not_accepted_values(state, ['gone'])", 1),
    _of_dbt("dbt_utils.not_constant", "not_constant(n)"),
    _of_dbt("dbt_utils.not_empty_string", "not_empty_string(name)", 2),
    _of_dbt("dbt_utils.not_null_proportion: {at_least: 0.9}", "not_null_proportion(n, 0.9)", None),
    _of_dbt("dbt_utils.recency: {field: began, datepart: day, interval: 1}", "recency(began, '1 day')", None),
    _of_dbt("dbt_utils.relationships_where: {to: ref('orders'), field: id, to_condition: paid}",
            "relationships_where(id, to='shop.orders', to_columns=id, to_condition='paid')"),
    _of_dbt("dbt_utils.sequential_values", "sequential_values(id)", 1),
    _of_dbt("dbt_utils.unique_combination_of_columns: {combination_of_columns: [group, n]}", "unique(group, n)",
            note="dbt takes NULLs for equal"),
    _of_dbt("unique: {config: {where: 'n > 0'}}", "unique(id, where='n > 0')", 0),
    _of_dbt("not_null: {config: {error_if: '>1'}}", "not_null(n, tolerance=1)", 1, _T),
    _of_dbt("not_null: {config: {severity: warn}}", "not_null(n, severity='warn')", 1),
)  # fmt: skip


def _of_soda(theirs: str, ours: str, failing: int | None = 0, passes: bool | None = None, note: str = "") -> Example:
    return Example("six", theirs, ours, failing, passes, note, "Soda")


SODA = (
    _of_soda("row_count > 0", "row_count(min=1)"),
    _of_soda("row_count between 10 and 20", "row_count(10, 20)", 4),
    _of_soda("missing_count(n) = 0", "not_null(n)", 1),
    _of_soda("missing_percent(n) < 20", "null_rate(n, max=0.2)"),
    _of_soda("missing_count(name) = 0, missing values: ['']", "sql(\"name IS NULL OR name = ''\")", 2),
    _of_soda("duplicate_count(id) = 0", "unique(id)", 2, note="Soda counts keys, lakegate the rows that share one"),
    _of_soda("duplicate_count(group, n) = 0", "unique(group, n)"),
    _of_soda("invalid_count(state) = 0, valid values: [open, shut]", "accepted_values(state, ['open', 'shut'])", 2),
    _of_soda("invalid_percent(state) < 50 %, valid values: [open, shut]",
            "accepted_values(state, ['open', 'shut'], tolerance='49.9%')", 2, _T),
    _of_soda("invalid_count(n) = 0, valid min: 1, valid max: 5", "in_range(n, 1, 5)", 2),
    _of_soda("invalid_count(name) = 0, valid min length: 1", "length_between(name, min=1)", 1),
    _of_soda("invalid_count(mail) = 0, valid format: email", "valid_email(mail)", 3),
    _of_soda("invalid_count(uuid) = 0, valid format: uuid", "valid_uuid(uuid)", 3),
    _of_soda("invalid_count(name) = 0, valid regex: ^[a-z]", "matches(name, r'^[a-z]')", 3,
             note="Soda's `valid regex` of some databases matches the whole text"),
    _of_soda("avg(n) between 1 and 5", "mean(n, 1, 5)"),
    _of_soda("sum(n) < 10", "sum(n, max=9)", None),
    _of_soda("stddev(n) < 3", "stddev(n, max=3)", None),
    _of_soda("percentile(n, 0.95) < 5", "quantile(n, 0.95, max=5)", None),
    _of_soda("distinct_count(state) = 4", "distinct_count(state, 4, 4)"),
    _of_soda("max_length(name) = 2", "custom_sql('SELECT 1 FROM batch HAVING max(length(name)) <> 2')"),
    _of_soda("freshness(began) < 1d", "recency(began, '1 day')", None,
             note="and `freshness: 1d` of a contract, for when nothing arrives"),
    _of_soda("schema: fail when required column missing: [id, n]", "columns_match(['id', 'n'], mode='additive')"),
    _of_soda("schema: fail when forbidden column present: [name]",
             "columns_match(['id', 'n'])", None, note="list the columns that may be there"),
    _of_soda("failed rows: fail condition: n < 0", "sql('n < 0')", 1),
    _of_soda("values in (id) must exist in orders (id)", "relationships(id, to='shop.orders')"),
    _of_soda("anomaly detection for row_count", "volume_anomalies()"),
    _of_soda("change for row_count < 30 %", "row_count(percent=30)"),
)  # fmt: skip
EXAMPLES = (*GREAT_EXPECTATIONS, *DQX, *DBT, *SODA)


def schema_of(rows: str) -> Schema:
    """Return the schema that files of these rows make."""
    types = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string", pa.bool_(): "boolean",
             pa.timestamp("us"): "timestamp", pa.date32(): "date", pa.list_(pa.int64()): "list<long>"}  # fmt: skip
    return Schema(columns=tuple(Column(name=one.name, type=types[one.type]) for one in ROWS[rows].schema))
