"""File metrics may leave an answer open; they must never give another one than reading all rows would."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lakegate.checks.audit import answer_from_manifest
from lakegate.checks.registry import find_check
from lakegate.checks.validation import validate_checks
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, ColumnStatistics, DataFile
from support.examples import examples

NAN = float("nan")
EPOCH = datetime(2024, 1, 1)


def single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


SMALL = st.integers(-4, 4)
FRACTIONS = SMALL.map(lambda n: n / 10)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": SMALL,
    "long": SMALL | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1]),
    "double": FRACTIONS | st.sampled_from([NAN, math.inf, -math.inf, -0.0, 1e300, *(2.0**53 + n for n in (0, 2, 4))]),
    "float": FRACTIONS.map(single) | st.sampled_from([NAN, math.inf, -0.0, 2.0**100]),
    "decimal(4, 1)": SMALL.map(lambda n: Decimal(n) / 10),
    "decimal(38, 20)": SMALL.map(lambda n: Decimal(n).scaleb(-20) + n),
    "date": SMALL.map(lambda n: date(2024, 1, 1) + timedelta(days=n)),
    "timestamp": SMALL.map(lambda n: EPOCH + timedelta(microseconds=n)),
    "timestamptz": SMALL.map(lambda n: (EPOCH + timedelta(microseconds=n)).replace(tzinfo=UTC)),
    "string": st.text("ab\ud7ff😀", max_size=3),
    "boolean": st.booleans(),
}
ENDS: dict[str, st.SearchStrategy[Any]] = {
    "int": SMALL | FRACTIONS | st.just(1e300),
    "long": SMALL | FRACTIONS | st.sampled_from([2**53, 2.0**53, 2**64, -1e300]),
    "double": FRACTIONS | SMALL | st.sampled_from([2**53 + 1, 2**53 + 3]),
    "float": FRACTIONS | SMALL | st.sampled_from([1e300, -1e300]),
    "decimal(4, 1)": FRACTIONS | SMALL | st.sampled_from([0.15, "0.15", "-0.25", 99999]),
    "decimal(38, 20)": FRACTIONS | SMALL | st.sampled_from(["0.00000000000000000001", "1.000000000000000000011"]),
    "date": VALUES["date"].map(date.isoformat),
    "timestamp": VALUES["timestamp"].map(datetime.isoformat) | st.just("2024-01-01"),
    "timestamptz": VALUES["timestamptz"].map(datetime.isoformat) | st.just("2024-01-01T01:00:00+01:00"),
    "string": VALUES["string"],
    "boolean": st.booleans(),
}


def as_column_has_it(text: Any, kind: str) -> Any:
    """What the user wrote, by a way of its own: as exact as the comparison is meant to be."""
    if kind.startswith("decimal") or kind in ("int", "long"):
        return Decimal(str(text))
    if kind == "date":
        return date.fromisoformat(text)
    if kind.startswith("timestamp"):
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC) if kind == "timestamptz" else moment
    return text


def exact(value: Any) -> Any:
    return Decimal(value) if type(value) is int else value


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def fails(check: Check, kind: str, value: Any) -> bool:
    """Whether one value breaks the check, by its definition."""
    if check.kind == "not_null":
        return value is None
    if value is None:
        return False
    if is_nan(value):
        return True
    if check.kind == "accepted_values":
        listed = [as_column_has_it(item, kind) for item in check.arguments["values"]]
        # A value that can be listed is one that the column can hold.
        listed = [single(v) if kind == "float" and abs(v) < 1e38 else v for v in listed]
        # A whole number beyond 2**53 is listed as the double next to it.
        return exact(value) not in [float(v) if kind == "double" else v for v in listed]
    low, high = (check.arguments.get(end) for end in ("min", "max"))
    inclusive = check.arguments.get("inclusive", True)
    for end, sign in ((low, 1), (high, -1)):
        if end is None:
            continue
        limit = as_column_has_it(end, kind)
        order = (exact(value) > limit) - (exact(value) < limit)
        if order * sign < 0 or (order == 0 and not inclusive):
            return True
    return False


FLAWS = ("", "", "", "value count", "null count", "nan count", "lower", "upper", "everything")
"""What a writer may leave out of a file's entry; mostly nothing, so that there is something to prove."""


def with_metrics(draw: st.DrawFn, kind: str, values: Sequence[Any]) -> DataFile:
    """A file's entry as a writer may leave it: bounds wider than need be, or cut; a count or a bound missing."""
    present = [value for value in values if value is not None and not is_nan(value)]
    low, high = (min(present), max(present)) if present else (None, None)
    widened = draw(st.integers(0, 3))
    if present and not widened:
        wider = [*present, draw(VALUES[kind].filter(lambda value: not is_nan(value)))]
        low, high = min(wider), max(wider)
    if isinstance(low, str) and isinstance(high, str):
        low, high = low[:1], high[:1]
    flaw = draw(st.sampled_from(FLAWS))
    floats = kind in ("float", "double")
    statistics = ColumnStatistics(
        value_count=None if flaw == "value count" else len(values),
        null_count=None if flaw == "null count" else values.count(None),
        nan_count=None if flaw == "nan count" or not floats else sum(map(is_nan, values)),
        lower=None if flaw == "lower" else low,
        upper=None if flaw == "upper" else high,
    )
    partitioned = draw(st.integers(0, 3)) == 0 and len({repr(value) for value in values}) == 1
    return DataFile(
        path="f",
        rows=len(values),
        size_bytes=1,
        identity_values={"c": values[0]} if partitioned else {},
        columns={} if flaw == "everything" else {"c": statistics},
    )


@st.composite
def questions(draw: st.DrawFn, rule: str, kind: str) -> Check:
    arguments: dict[str, Any] = {}
    if rule == "in_range":
        ends = sorted([draw(ENDS[kind]), draw(ENDS[kind])], key=lambda end: as_column_has_it(end, kind))
        arguments = {"min": ends[0], "max": ends[1], "inclusive": draw(st.booleans())}
        arguments.pop(draw(st.sampled_from(["min", "max", "kept", "kept"])), None)
    elif rule == "accepted_values":
        arguments = {"values": draw(st.lists(ENDS[kind], min_size=1, max_size=9))}
    return Check(kind=rule, columns=("c",), arguments=arguments)


@st.composite
def audits(draw: st.DrawFn, rule: str) -> tuple[Check, str, list[Any], AddedFiles]:
    kind = draw(st.sampled_from(sorted(VALUES)))
    check = draw(questions(rule, kind))
    files = draw(st.lists(st.lists(st.none() | VALUES[kind], max_size=5), min_size=1, max_size=2))
    if draw(st.integers(0, 2)):  # mostly data that passes, but for what metrics may hide
        files = [[v for v in file if v is None or is_nan(v) or not fails(check, kind, v)] for file in files]
    added = AddedFiles(tuple(with_metrics(draw, kind, values) for values in files), complete=True)
    return check, kind, [value for values in files for value in values], added


@pytest.mark.parametrize("rule", ["not_null", "in_range", "accepted_values"])
@settings(max_examples=examples(80, 500))
@given(data=st.data())
def test_manifests_never_disagree_with_reading_all_rows(rule: str, data: st.DataObject) -> None:
    asked, kind, values, added = data.draw(audits(rule))
    schema = Schema(columns=(Column(name="c", type=kind),))
    try:
        (check,) = validate_checks([asked], schema)
    except CheckError:
        return
    finding = answer_from_manifest(find_check(check.kind).ask(check, schema), added)
    event("unknown" if finding is None else finding.verdict)
    if finding is not None:
        assert finding.failing_rows == sum(fails(check, kind, value) for value in values)


def added(*columns: ColumnStatistics | None, rows: int = 10, complete: bool = True) -> AddedFiles:
    files = [
        DataFile(path=str(n), rows=rows, size_bytes=1, columns={} if column is None else {"c": column})
        for n, column in enumerate(columns)
    ]
    return AddedFiles(tuple(files), complete=complete)


def answer(check: Check, files: AddedFiles, kind: str) -> int | None:
    schema = Schema(columns=(Column(name="c", type=kind),))
    (valid,) = validate_checks([check], schema)
    finding = answer_from_manifest(find_check(valid.kind).ask(valid, schema), files)
    return None if finding is None else finding.failing_rows


NOT_NULL = Check(kind="not_null", columns=("c",))
RANGE = Check(kind="in_range", columns=("c",), arguments={"min": 0, "max": 9})
GAP = Check(kind="accepted_values", columns=("c",), arguments={"values": [1, 3]})
BETWEEN = Check(kind="in_range", columns=("c",), arguments={"min": 0, "max": 9, "inclusive": False})
DIGITS = Check(kind="accepted_values", columns=("c",), arguments={"values": [1, 2, 3]})


def known(**more: Any) -> ColumnStatistics:
    return ColumnStatistics(**{"value_count": 10, "null_count": 0, **more})


@pytest.mark.parametrize(
    ("check", "files", "kind", "expected"),
    [
        pytest.param(NOT_NULL, added(known(), known(null_count=3)), "long", 3, id="null counts add up"),
        pytest.param(NOT_NULL, added(known(), known()), "string", 0, id="no nulls"),
        pytest.param(NOT_NULL, added(known(), known(null_count=None)), "long", None, id="missing null count"),
        pytest.param(NOT_NULL, added(known(), None), "long", None, id="no metrics"),
        pytest.param(NOT_NULL, added(known(value_count=None)), "long", None, id="missing value count"),
        pytest.param(NOT_NULL, added(known(value_count=11)), "long", None, id="value count is not rows"),
        pytest.param(NOT_NULL, added(known()), "list<long>", None, id="list"),
        pytest.param(NOT_NULL, added(known()), "struct<1: a: optional long>", None, id="struct"),
        pytest.param(NOT_NULL, added(known(), complete=False), "long", None, id="incomplete evidence"),
        pytest.param(NOT_NULL, added(), "long", 0, id="no files"),
        pytest.param(RANGE, added(known(lower=0, upper=9)), "long", 0, id="bounds prove it"),
        pytest.param(RANGE, added(known(lower=-1, upper=9)), "long", None, id="bounds outside prove nothing"),
        pytest.param(RANGE, added(known(lower=100, upper=200)), "long", None, id="not even far outside"),
        pytest.param(RANGE, added(known(null_count=10)), "long", 0, id="all null"),
        pytest.param(RANGE, added(known(null_count=None, lower=1, upper=2)), "long", None, id="missing count"),
        pytest.param(RANGE, added(known(lower=1.0, upper=2.0, nan_count=0)), "double", 0, id="no NaN"),
        pytest.param(RANGE, added(known(lower=1.0, upper=2.0)), "double", None, id="NaN unknown"),
        pytest.param(RANGE, added(known(lower=1.0, upper=2.0, nan_count=1)), "double", None, id="a NaN"),
        pytest.param(RANGE, added(known(null_count=10)), "double", 0, id="all null floats hold no NaN"),
        pytest.param(RANGE, added(known(lower="1", upper="2")), "long", None, id="bounds of another type"),
        pytest.param(RANGE, added(known(lower=True, upper=True)), "long", None, id="truth values are no numbers"),
        pytest.param(DIGITS, added(known(lower=2, upper=2)), "int", 0, id="one value"),
        pytest.param(DIGITS, added(known(lower=1, upper=3)), "int", 0, id="no room for another value"),
        pytest.param(DIGITS, added(known(lower=1, upper=4)), "int", None, id="room for another value"),
        pytest.param(GAP, added(known(lower=1, upper=3)), "int", None, id="a gap between accepted values"),
        pytest.param(BETWEEN, added(known(lower=1, upper=8)), "int", 0, id="between the ends"),
        pytest.param(BETWEEN, added(known(lower=0, upper=8)), "int", None, id="an end that is left out"),
        pytest.param(DIGITS, added(known(lower=1.0, upper=3.0, nan_count=0)), "double", None, id="floats lie dense"),
    ],
)
def test_what_metrics_prove(check: Check, files: AddedFiles, kind: str, expected: int | None) -> None:
    assert answer(check, files, kind) == expected


def test_bounds_of_text_are_never_believed() -> None:
    files = added(known(lower="a", upper="a"))
    assert answer(Check(kind="accepted_values", columns=("c",), arguments={"values": ["a"]}), files, "string") is None
    assert answer(Check(kind="in_range", columns=("c",), arguments={"min": "a", "max": "b"}), files, "string") is None


def test_bounds_the_wrong_way_round_prove_nothing() -> None:
    check = Check(kind="in_range", columns=("c",), arguments={"min": 0, "max": 100})
    for low, high, found in ((5, 90, True), (90, 5, False)):
        metrics = ColumnStatistics(value_count=2, null_count=0, lower=low, upper=high)
        files = AddedFiles(files=(DataFile(path="f", rows=2, size_bytes=1, columns={"c": metrics}),), complete=True)
        assert (answer(check, files, "long") is not None) is found


def test_an_identity_partition_proves_text() -> None:
    file = DataFile(path="f", rows=3, size_bytes=1, identity_values={"c": "cash"})
    check = Check(kind="accepted_values", columns=("c",), arguments={"values": ["cash", "card"]})
    assert answer(check, AddedFiles((file,), complete=True), "string") == 0
    other = DataFile(path="g", rows=3, size_bytes=1, identity_values={"c": "cheque"})
    assert answer(check, AddedFiles((file, other), complete=True), "string") is None


def test_nothing_to_compare_is_unique() -> None:
    check = Check(kind="unique", columns=("c",))
    assert answer(check, added(None, rows=1), "long") == 0
    assert answer(check, added(None, rows=2), "long") is None


def test_without_rows_every_row_keeps_every_rule() -> None:
    for check in (Check(kind="sql", arguments={"predicate": "c < 0"}), RANGE, NOT_NULL):
        assert answer(check, added(), "long") == 0
