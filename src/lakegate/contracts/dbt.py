"""Properties files of dbt (``schema.yml``), read into contracts: its own tests, dbt_utils' and dbt-expectations'.

A test whose name is a check here, alias or not, is taken as it is; the table below has the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakegate.checks.registry import find_check
from lakegate.contracts.document import Document, Mark, Node
from lakegate.contracts.draft import Draft, DraftColumn, sql_type, text_of, words_of
from lakegate.errors import CheckError
from lakegate.model.identifiers import quote
from lakegate.model.sqltext import sql_string

_RESOURCES = ("models", "seeds", "snapshots")
_TESTS = ("tests", "data_tests")
_OPTIONS = ("name", "config", "severity", "where", "tags", "description", "error_if", "warn_if", "enabled", "meta")
_REF = re.compile(r"\s*(?:\{\{)?\s*ref\(\s*(?:['\"][^'\"]+['\"]\s*,\s*)?['\"]([^'\"]+)['\"][^)]*\)\s*(?:\}\})?\s*")
_SOURCE = re.compile(r"\s*(?:\{\{)?\s*source\(\s*['\"]([^'\"]+)['\"]\s*,\s*['\"]([^'\"]+)['\"]\s*\)\s*(?:\}\})?\s*")
_MORE_THAN = re.compile(r"\s*(>=?|!=|<>)\s*([0-9]+)\s*")
_OF_TABLES = frozenset(
    {
        "name",
        "description",
        "columns",
        "config",
        "meta",
        "tags",
        "identifier",
        "constraints",
        "freshness",
        "loaded_at_field",
        *_TESTS,
    }
)
_OF_COLUMNS = frozenset({"name", "description", "data_type", "constraints", "tags", "config", "meta", "quote", *_TESTS})

_PERIODS = {"minute": "m", "hour": "h", "day": "d"}

Arguments: TypeAlias = dict[str, Any]
Made: TypeAlias = tuple[str, Sequence[str], Arguments]
"""A check: its kind, its columns, its arguments."""


class _NoCheckError(Exception):
    """A test that no check of ours says, and why."""


def is_dbt(document: Document) -> bool:
    """Return whether a file is a properties file of dbt."""
    return any(key in document.root.mapping for key in (*_RESOURCES, "sources"))


def read_dbt(document: Document, *, namespace: str | None = None) -> list[Draft]:
    """Return a contract for each model, seed, snapshot and table of a source.

    Args:
        namespace: Where the models are. Default: their ``schema`` of ``config``, else ``default``. Tables of a source
            are in its schema, else in a namespace of its name.
    """
    root = document.root
    drafts = [
        _Table(one, namespace or _config(one, "schema") or "default", namespace).read()
        for key in _RESOURCES
        for one in _items(root, key)
        if text_of(one.get("name"))
    ]
    for source in _items(root, "sources"):
        place = text_of(source.get("schema")) or text_of(source.get("name")) or "default"
        tables = [one for one in _items(source, "tables") if text_of(one.get("name"))]
        drafts += [_Table(one, place, namespace, source).read() for one in tables]
        for key, mark in source.keys.items():
            if (
                key not in ("name", "schema", "tables", "description", "freshness", "loaded_at_field")
                and drafts
                and tables
            ):
                drafts[-1].lose(mark, f"source {key}", "about dbt, not about the table")
    for key, mark in root.keys.items():
        if key not in (*_RESOURCES, "sources", "version") and drafts:
            drafts[0].lose(mark, key, "about dbt, not about a table")
    return drafts


def _items(node: Node, key: str) -> list[Node]:
    return node.mapping[key].items if key in node.mapping else []


def _config(node: Node, key: str) -> str | None:
    config = node.get("config")
    return None if config is None else text_of(config.get(key))


class _Table:
    """One model or table while it's read."""

    def __init__(self, node: Node, place: str, namespace: str | None, source: Node | None = None) -> None:
        self._node = node
        self._of_source = None if source is None else source.get("freshness")
        self._namespace = namespace or "default"
        name = text_of(node.get("identifier")) or _config(node, "alias") or text_of(node.get("name")) or ""
        self._draft = Draft(f"{place}.{name}", node.mark.line)

    def read(self) -> Draft:
        draft, node = self._draft, self._node
        draft.description = text_of(node.get("description"))
        draft.tags = (
            *words_of(node.get("tags")),
            *words_of((node.get("config") or node).get("tags") if node.get("config") else None),
        )
        self._freshness(node)
        meta = node.get("meta") or (node.get("config") or Node({}, node.mark)).get("meta")
        draft.owner = None if meta is None else text_of(meta.get("owner"))
        listed = []
        for one in draft.listed(node, "columns"):
            if text_of(one.get("name")):
                listed.append(one)
            else:
                draft.lose(one.mark, "a column", "its name is missing, or isn't text")
        for one in listed:
            kind = text_of(one.get("data_type"))
            column = DraftColumn(text_of(one.get("name")) or "", description=text_of(one.get("description")))
            column.type, column.tags = None if kind is None else sql_type(kind), words_of(one.get("tags"))
            if kind is not None and column.type is None:
                draft.lose(one.keys["data_type"], f"data_type {kind}", "not an Iceberg type; the column may have any")
            draft.columns.append(column)
        for one, column in zip(listed, list(draft.columns), strict=True):
            self._rules(one, column)
            self._left_over(one, _OF_COLUMNS)
        self._rules(node, None)
        self._left_over(node, _OF_TABLES)
        config = node.get("config")
        if config is not None:
            for key, mark in config.keys.items():
                if key not in ("schema", "alias", "tags", "meta", "freshness", "loaded_at_field"):
                    draft.lose(mark, f"config {key}", "about dbt, not about the table")
        return draft

    def _freshness(self, node: Node) -> None:
        config = node.get("config")
        given = node.get("freshness") or (None if config is None else config.get("freshness")) or self._of_source
        if given is None:
            return
        for key in ("error_after", "warn_after"):
            after = given.get(key)
            count, period = (None, None) if after is None else (after.get("count"), text_of(after.get("period")))
            if count is not None and isinstance(count.value, int) and period in _PERIODS and not self._draft.freshness:
                self._draft.freshness = f"{count.value}{_PERIODS[period]}"
            elif after is not None:
                self._draft.lose(after.mark, f"freshness {key}", "a contract has one limit of freshness")
        if given.get("filter") is not None:
            self._draft.lose(given.keys["filter"], "freshness filter", "what is published counts, all of it")

    def _left_over(self, node: Node, known_keys: frozenset[str]) -> None:
        for key, mark in node.keys.items():
            if key not in known_keys:
                self._draft.lose(mark, key, "lakegate has no such key")

    def _rules(self, node: Node, column: DraftColumn | None) -> None:
        for one in self._draft.listed(node, "constraints"):
            self._constraint(one, column)
        for key in _TESTS:
            for one in self._draft.listed(node, key):
                self._test(one, column)

    def _constraint(self, node: Node, column: DraftColumn | None) -> None:
        kind, draft = text_of(node.get("type")), self._draft
        columns = [column.name] if column is not None else list(words_of(node.get("columns")))
        what = f"constraint {kind}"
        if kind in ("not_null", "primary_key"):
            listed = {one.name.lower(): one for one in draft.columns}
            for name in columns:
                if name.lower() in listed:
                    listed[name.lower()].required = True
                else:
                    draft.add(node.mark, what, "not_null", [name], {})
        if kind in ("unique", "primary_key"):
            draft.add(node.mark, what, "unique", columns, {})
        elif kind == "check" and text_of(node.get("expression")):
            draft.add(node.mark, what, "expression_is_true", (), {"expression": text_of(node.get("expression"))})
        elif kind != "not_null" or not columns:
            draft.lose(node.mark, what, "lakegate has no check that says it this way")

    def _test(self, node: Node, column: DraftColumn | None) -> None:
        name, arguments, mark = _named(node)
        if name is None:
            self._draft.lose(node.mark, "a test", "it isn't a name, nor a name with arguments")
            return
        own = {key: value for key, value in arguments.items() if key not in _OPTIONS}
        # dbt 1.10 takes the arguments of a test below a key of their own.
        own = own.pop("arguments") if isinstance(own.get("arguments"), dict) and len(own) == 1 else own
        config = arguments.get("config") if isinstance(arguments.get("config"), dict) else {}
        options = {
            key: value
            for key, value in {**arguments, **(config or {})}.items()
            if key in (*_OPTIONS, "limit", "store_failures", "store_failures_as", "fail_calc")
        }
        try:
            kind, columns, made, remark = self._check(name, own, column)
            made = {**_translated_options(options), **made}
        except _NoCheckError as error:
            self._draft.lose(mark, name, str(error))
            return
        for key in ("limit", "store_failures", "store_failures_as", "fail_calc", "meta"):
            if key in options:
                self._draft.lose(mark, f"{name}: {key}", "about how dbt runs it")
        if remark is not None:
            self._draft.lose(mark, f"{name}: {remark}", "lakegate leaves out rows with any NULL in the key")
        self._draft.add(mark, name, kind, columns, made)

    def _check(self, name: str, arguments: Arguments, column: DraftColumn | None) -> tuple[*Made, str | None]:
        if _has_jinja(arguments):
            raise _NoCheckError("it holds Jinja, which only dbt knows")
        package, _, short = name.rpartition(".")
        given = dict(arguments)
        own = column.name if column is not None else None
        if isinstance(given.get("column_name"), str):
            own = given.pop("column_name")
        test = _Test(own, given, self._table, self._is_required)
        row_condition = given.pop("row_condition", None)
        mostly = given.pop("mostly", None)
        reader = _READERS.get(short)
        if reader is None and package in ("dbt_expectations", "great_expectations"):
            raise _NoCheckError("lakegate has no check for it")
        kind, columns, made = reader(test) if reader is not None else _same(short, test)
        if row_condition is not None:
            made["where"] = row_condition
        if isinstance(mostly, (int, float)):
            made["tolerance"] = _percent(1 - mostly)
        return kind, columns, made, test.remark

    def _is_required(self, name: str) -> bool:
        found = [one for one in self._draft.columns if one.name.lower() == name.lower()]
        return any(one.required or f"not_null({one.name})" in map(str, one.checks) for one in found)

    def _table(self, text: Any) -> str:
        found = _SOURCE.fullmatch(text) if isinstance(text, str) else None
        if found is not None:
            return f"{found[1]}.{found[2]}"
        found = _REF.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise _NoCheckError(f"{text!r} is neither a ref nor a source")
        return f"{self._namespace}.{found[1]}"


def _named(node: Node) -> tuple[str | None, Arguments, Mark]:
    """Return a test's name, its arguments, and where it is."""
    if isinstance(node.value, str):
        return node.value, {}, node.mark
    if "test_name" in node.mapping:  # the long form
        plain = node.plain()
        return str(plain.pop("test_name")), plain, node.mark
    if len(node.mapping) == 1:
        ((name, inner),) = node.mapping.items()
        if inner.value is None or isinstance(inner.value, dict):
            return name, inner.plain() or {}, node.keys[name]
    return None, {}, node.mark


def _has_jinja(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_jinja(one) for key, one in value.items() if key not in ("to", "compare_model"))
    if isinstance(value, list):
        return any(map(_has_jinja, value))
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _translated_options(options: Arguments) -> Arguments:
    if _has_jinja(options):
        raise _NoCheckError("it holds Jinja, which only dbt knows")
    if options.get("enabled") is False:
        raise _NoCheckError("it is disabled")
    made: Arguments = {name: options[name] for name in ("name", "where", "tags", "description") if options.get(name)}
    severity = str(options.get("severity", "error")).lower()
    if severity not in ("error", "warn"):
        raise _NoCheckError(f"severity {severity!r} is neither error nor warn")
    if severity == "warn":
        made["severity"] = "warn"
    condition = options.get("warn_if" if severity == "warn" else "error_if")
    other = options.get("error_if" if severity == "warn" else "warn_if")
    if condition is not None:
        found = _MORE_THAN.fullmatch(str(condition))
        if found is None or (found[1] in ("!=", "<>") and found[2] != "0"):
            raise _NoCheckError(f"{condition!r} isn't of the form '> N'")
        rows = int(found[2]) - (found[1] == ">=")
        if rows < 0:
            raise _NoCheckError(f"{condition!r} is always true")
        made["tolerance"] = rows or None
    if other is not None and str(other).replace(" ", "") not in ("!=0", ">0"):
        raise _NoCheckError(f"it warns and fails at different numbers of rows ({other!r})")
    return made


def _percent(share: float) -> str:
    return f"{max(round(share * 100, 6), 0):.6f}".rstrip("0").rstrip(".") + "%"


@dataclass(slots=True)
class _Test:
    """A test's column and arguments. Whatever isn't taken out can't be translated."""

    column: str | None
    arguments: Arguments
    table: Callable[[Any], str]
    is_required: Callable[[str], bool]
    remark: str | None = None
    """What of it the check doesn't say."""

    @property
    def on(self) -> str:
        """The column it's about."""
        if self.column is None:
            raise _NoCheckError("it must be below a column")
        return self.column

    def take(self, name: str, default: Any = None) -> Any:
        return self.arguments.pop(name, default)

    def done(self) -> None:
        """Refuse arguments that nobody took: what they change would be lost."""
        left = [name for name, value in self.arguments.items() if value not in (None, False)]
        if left:
            raise _NoCheckError(f"no lakegate check takes {', '.join(map(repr, left))}")


def _same(name: str, test: _Test) -> Made:
    """Take a test as the check of its name, or say that there's none."""
    try:
        definition = find_check(name)
    except CheckError:
        raise _NoCheckError("lakegate has no check of this name") from None
    columns = [test.column] if test.column is not None and definition.columns else []
    return definition.name, columns, test.arguments


def _simple(kind: str) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        test.done()
        return kind, [test.on], {}

    return read


def _accepted(name: str) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        values, quoted = test.take(name), test.take("quote", default=True)
        quoted = test.take("quote_values", default=quoted)
        test.done()
        if not isinstance(values, list):
            raise _NoCheckError(f"'{name}' isn't a list")
        # dbt puts each value in quotes unless it is told not to; databases then compare it as the column's type.
        return "accepted_values", [test.on], {"values": values if quoted else list(map(_number, values))}

    return read


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        raise _NoCheckError(f"{value!r} is SQL, not a value") from None


def _refused(name: str) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        values = test.take(name)
        test.take("quote")
        test.take("quote_values")
        test.done()
        return "not_accepted_values", [test.on], {"values": values if isinstance(values, list) else [values]}

    return read


def _relationships(test: _Test) -> Made:
    to, field = test.take("to"), test.take("field")
    test.done()
    return "relationships", [test.on], {"to": test.table(to), "to_columns": field}


def _relationships_where(test: _Test) -> Made:
    to, field = test.take("to"), test.take("field")
    where = {"where": test.take("from_condition"), "to_condition": test.take("to_condition")}
    test.done()
    return "relationships_where", [test.on], {"to": test.table(to), "to_columns": field, **where}


def _beside(kind: str) -> Callable[[_Test], Made]:
    """Read a test that compares a table with another one."""

    def read(test: _Test) -> Made:
        other = test.take("compare_model")
        test.done()
        return kind, (), {"to": test.table(other)}

    return read


def _range(low: str, high: str) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        ends = {"min": test.take(low), "max": test.take(high)}
        strictly, inclusive = test.take("strictly", default=False), test.take("inclusive", default=True)
        test.done()
        for end in ends.values():
            if isinstance(end, str) and not re.fullmatch(r"[-0-9:.TZ +]+", end):
                raise _NoCheckError(f"{end!r} is SQL, not a value")
        return "in_range", [test.on], {**ends, "inclusive": None if inclusive and not strictly else False}

    return read


def _key(name: str, ignored_if: str) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        columns = test.take(name)
        ignored = test.take("ignore_row_if", default=ignored_if)
        test.take("quote_columns")
        test.done()
        if not isinstance(columns, list):
            raise _NoCheckError(f"'{name}' isn't a list of columns")
        as_ours = ("any_value_is_missing", *["all_values_are_missing"] * (len(columns) == 1))
        nullable = [] if ignored in as_ours else [one for one in columns if not test.is_required(str(one))]
        if nullable:
            test.remark = f"rows with NULL in {', '.join(map(str, nullable))}"
        return "unique", columns, {}

    return read


def _expression(test: _Test) -> Made:
    expression = test.take("expression")
    test.done()
    if not isinstance(expression, str):
        raise _NoCheckError("it has no expression")
    whole = expression if test.column is None else f"{quote(test.column)} {expression}"
    return "expression_is_true", (), {"expression": whole}


def _pattern(kind: str, name: str = "regex") -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        found = test.take(name)
        patterns = found if isinstance(found, list) else [found]
        test.take("is_raw")
        flags, match_on = test.take("flags") or "", test.take("match_on", default="any")
        test.done()
        if not patterns or not all(isinstance(one, str) for one in patterns):
            raise _NoCheckError(f"{name!r} isn't a pattern, nor a list of them")
        if kind == "not_match_regex" and len(patterns) > 1 and match_on != "all":
            raise _NoCheckError(f"match_on: {match_on!r}: a text may match all patterns but one")
        if kind != "not_match_regex" and match_on != "any":
            raise _NoCheckError(f"match_on: {match_on!r}: only one of several patterns needs to match")
        if set(flags) - {"c", "i"}:
            raise _NoCheckError(f"flags {flags!r}: write them into the pattern, (?s)…")
        whole = patterns[0] if len(patterns) == 1 else "|".join(f"(?:{one})" for one in patterns)
        return kind, [test.on], {"pattern": f"(?i){whole}" if "i" in flags else whole}

    return read


def _rows(low: str, high: str) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        ends = {"min": test.take(low), "max": test.take(high)}
        test.done()
        return "row_count", (), ends

    return read


def _length(low: str, high: str) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        ends = {"min": test.take(low), "max": test.take(high)}
        strictly = test.take("strictly", default=False)
        test.done()
        if strictly:
            ends = {
                name: end + (1 if name == "min" else -1) if isinstance(end, int) else end for name, end in ends.items()
            }
        return "length_between", [test.on], ends

    return read


def _measured(kind: str, *, low: str = "min_value", high: str = "max_value", **more: Any) -> Callable[[_Test], Made]:
    """Read a test of a measure of a column between two numbers."""

    def read(test: _Test) -> Made:
        ends = {"min": test.take(low), "max": test.take(high)}
        share = {"q": test.take("quantile")} if kind == "quantile" and not more else {}
        test.done()
        return kind, [test.on], {**more, **share, **ends}

    return read


def _not_empty(test: _Test) -> Made:
    is_trimmed = test.take("trim_whitespace", default=True)
    test.done()
    return "not_empty_string", [test.on], {"trim": None if is_trimmed else False}


def _pair(test: _Test) -> Made:
    left, right = test.take("column_A"), test.take("column_B")
    or_equal = test.take("or_equal", default=False)
    test.done()
    if not isinstance(left, str) or not isinstance(right, str):
        raise _NoCheckError("it needs column_A and column_B")
    if not left.isidentifier() or not right.isidentifier():  # they may be SQL
        return "expression_is_true", (), {"expression": f"({left}) {'>=' if or_equal else '>'} ({right})"}
    return "column_pair_greater", [left, right], {"or_equal": or_equal or None}


def _equal_pair(test: _Test) -> Made:
    left, right = test.take("column_A"), test.take("column_B")
    test.done()
    return "expression_is_true", (), {"expression": f"({left}) = ({right})"}


def _not_like(test: _Test) -> Made:
    pattern = test.take("like_pattern")
    test.done()
    return "sql", (), {"predicate": f"{quote(test.on)} LIKE {sql_string(str(pattern))}"}


def _recency(test: _Test) -> Made:
    field, period, number = test.take("field", test.column), test.take("datepart"), test.take("interval")
    test.done()
    if not isinstance(field, str) or period not in ("minute", "hour", "day", "week"):
        raise _NoCheckError("it needs a field, and minute, hour, day or week as datepart")
    return "recency", [field], {"within": f"{number} {period}{'' if number == 1 else 's'}"}


def _exclusive(test: _Test) -> Made:
    lower, upper = test.take("lower_bound_column"), test.take("upper_bound_column")
    gaps, by = test.take("gaps", default="allowed"), test.take("partition_by")
    is_zero = test.take("zero_length_range_allowed", default=False)
    test.done()
    if gaps not in ("allowed", "not_allowed"):
        raise _NoCheckError(f"gaps: {gaps!r} is neither 'allowed' nor 'not_allowed'")
    if not is_zero:
        raise _NoCheckError("lakegate allows empty ranges; with zero_length_range_allowed: true, both mean the same")
    arguments = {"partition_by": by, "gaps": False if gaps == "not_allowed" else None}
    return "mutually_exclusive_ranges", [lower, upper], arguments


def _columns(mode: str, *, ordered: bool = False) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        listed = test.take("column_list")
        transform = test.take("transform", default="upper")
        test.done()
        options = {
            "mode": mode if mode != "strict" else None,
            "ordered": ordered or None,
            "ignore_case": transform in ("upper", "lower") or None,
        }
        return "columns_match", (), {"expected": listed, **options}

    return read


def _of_type(test: _Test) -> Made:
    kind = test.take("column_type")
    test.done()
    found = sql_type(str(kind))
    if found is None:
        raise _NoCheckError(f"{kind!r} isn't an Iceberg type")
    return "type", [test.on], {"type": found}


def _exists(test: _Test) -> Made:
    test.done()
    return "column_exists", (), {"column_name": test.on}


def _always(kind: str, **arguments: Any) -> Callable[[_Test], Made]:
    def read(test: _Test) -> Made:
        test.done()
        return kind, [test.on], dict(arguments)

    return read


_READERS: Mapping[str, Callable[[_Test], Made]] = {
    # dbt's own
    "not_null": _simple("not_null"),
    "unique": _simple("unique"),
    "accepted_values": _accepted("values"),
    "relationships": _relationships,
    # dbt_utils
    "accepted_range": _range("min_value", "max_value"),
    "at_least_one": _always("distinct_count", min=1),
    "equal_rowcount": _beside("equal_rowcount"),
    "expression_is_true": _expression,
    "fewer_rows_than": _beside("fewer_rows_than"),
    "mutually_exclusive_ranges": _exclusive,
    "not_accepted_values": _refused("values"),
    "not_empty_string": _not_empty,
    "not_null_proportion": _measured("not_null_proportion", low="at_least", high="at_most"),
    "recency": _recency,
    "relationships_where": _relationships_where,
    "unique_combination_of_columns": _key("combination_of_columns", "never"),
    # dbt-expectations
    "expect_column_distinct_count_to_equal": lambda test: _measured("distinct_count")(
        _doubled(test, "min_value", "max_value")
    ),
    "expect_column_distinct_values_to_be_in_set": _accepted("value_set"),
    "expect_column_max_to_be_between": _measured("max"),
    "expect_column_mean_to_be_between": _measured("mean"),
    "expect_column_median_to_be_between": _measured("quantile", q=0.5),
    "expect_column_min_to_be_between": _measured("min"),
    "expect_column_pair_values_A_to_be_greater_than_B": _pair,
    "expect_column_pair_values_to_be_equal": _equal_pair,
    "expect_column_quantile_values_to_be_between": _measured("quantile"),
    "expect_column_stdev_to_be_between": _measured("stddev"),
    "expect_column_sum_to_be_between": _measured("sum"),
    "expect_column_to_exist": _exists,
    "expect_column_unique_value_count_to_be_between": _measured("distinct_count"),
    "expect_column_value_lengths_to_be_between": _length("min_value", "max_value"),
    "expect_column_value_lengths_to_equal": lambda test: _length("value", "value_")(_doubled(test)),
    "expect_column_values_to_be_between": _range("min_value", "max_value"),
    "expect_column_values_to_be_in_set": _accepted("value_set"),
    "expect_column_values_to_be_null": _always("null_rate", min=1),
    "expect_column_values_to_be_of_type": _of_type,
    "expect_column_values_to_be_unique": _simple("unique"),
    "expect_column_values_to_match_like_pattern": _pattern("match_like", "like_pattern"),
    "expect_column_values_to_match_regex": _pattern("matches"),
    "expect_column_values_to_match_regex_list": _pattern("matches", "regex_list"),
    "expect_column_values_to_not_be_in_set": _refused("value_set"),
    "expect_column_values_to_not_be_null": _simple("not_null"),
    "expect_column_values_to_not_match_like_pattern": _not_like,
    "expect_column_values_to_not_match_regex": _pattern("not_match_regex"),
    "expect_column_values_to_not_match_regex_list": _pattern("not_match_regex", "regex_list"),
    "expect_compound_columns_to_be_unique": _key("column_list", "all_values_are_missing"),
    "expect_row_values_to_have_recent_data": _recency,
    "expect_table_columns_to_contain_set": _columns("additive"),
    "expect_table_columns_to_match_ordered_list": _columns("strict", ordered=True),
    "expect_table_columns_to_match_set": _columns("strict"),
    "expect_table_row_count_to_be_between": _rows("min_value", "max_value"),
    "expect_table_row_count_to_equal": lambda test: _rows("value", "value_")(_doubled(test)),
    "expect_table_row_count_to_equal_other_table": _beside("equal_rowcount"),
}


def _doubled(test: _Test, low: str = "value", high: str = "value_") -> _Test:
    value = test.take("value")
    return _Test(test.column, {**test.arguments, low: value, high: value}, test.table, test.is_required)
