"""A check as a value: what is asked, of which columns, how much it matters, and how an audit answered it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from keyword import iskeyword
from typing import Any, Literal, TypeAlias

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.schema import is_masked, masked_row

Severity = Literal["error", "warn", "quarantine"]
Scope = Literal["batch", "table"]
Verdict = Literal["pass", "fail", "skipped"]
Evidence = Literal["manifest", "scan", "journal"]
Tolerance: TypeAlias = int | str
"""Failing rows that are accepted: a number of rows, or a share of the rows looked at as text, ``0.1%``."""

_TOLERANCE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%|rows?)?")
_ALL = 100  # percent
SHOW_VALUES = frozenset({"max", "mean", "min", "quantile", "recency", "sum"})
"""Checks whose findings are values of a column, or near them."""
HIDDEN = "The value isn't shown."
_LONGEST_VALUE = 60
_MOST_DIGITS = 400  # of a tolerance
Method = Literal["manifest", "scan", "bitmaps in the scan", "bitmaps", "hashes", "grouping", "join"]


class Check(Value):
    """One claim about rows, which an audit answers.

    What it does is defined by the function called ``kind`` (``lakegate.checks``); this is only its arguments.

    Attributes:
        kind: Name of the check: ``not_null``, ``in_range`` …
        columns: Columns it is about, in order; empty for checks of the whole batch.
        arguments: Its own arguments by name, JSON values only.
        severity: ``error`` blocks the publish, ``warn`` only reports, ``quarantine`` sets the failing rows aside.
        scope: ``batch``: the rows just written; ``table``: the table as it would be after publishing.
        label: A name chosen by the user; :attr:`name` falls back to one made from kind and columns.
        where: Predicate in Spark SQL about one row: only rows for which it is true are looked at.
        tolerance: Failing rows up to which the check passes; ``None``: not a single one.
        examples: Failing rows to show at most; ``None``: as many as the settings allow.
        description: Why the check is there, in the user's words.
        owner: Who looks after it.
        tags: Words to find it by.

    Example:
        >>> str(Check(kind="in_range", columns=("fare",), arguments={"min": 0, "max": 500}))
        'in_range(fare, min=0, max=500)'
    """

    kind: str
    columns: tuple[str, ...] = ()
    arguments: dict[str, Any] = Field(default_factory=dict)
    severity: Severity = "error"
    scope: Scope = "batch"
    label: str | None = None
    where: str | None = None
    tolerance: Tolerance | None = None
    examples: int | None = None
    description: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name in reports: the user's label, else kind and columns."""
        return self.label or "_".join((self.kind, *self.columns))

    def __str__(self) -> str:
        words = [column if _is_plain(column) else repr(column) for column in self.columns]
        words += [f"{key}={value!r}" for key, value in self.arguments.items()]
        # Description, owner and tags are left out: with them or without, the same is asked.
        words += [
            f"{key}={value!r}"
            for key, value in (("where", self.where), ("tolerance", self.tolerance), ("examples", self.examples))
            if value is not None
        ]
        if self.severity != "error":
            words.append(f"severity={self.severity!r}")
        if self.scope != "batch":
            words.append(f"scope={self.scope!r}")
        if self.label:
            words.append(f"name={self.label!r}")
        return f"{self.kind}({', '.join(words)})"


class CheckResult(Value):
    """What one check found.

    Attributes:
        check: The check in its canonical text.
        verdict: ``pass``, ``fail``, or ``skipped`` when there was nothing to judge: no row matches its ``where``, or
            too little history. A check that couldn't run is an exception, not a verdict.
        failing_rows: Rows that break the check; with a tolerance there may be some on ``pass``. For ``row_count``,
            which is about no row in particular, 0 on ``pass`` and the number of rows missing or too many on ``fail``.
        total_rows: Rows that were looked at: with ``where``, those that match it.
        quarantined: Failing rows that were set aside before the others were looked at; examples are of them.
        reads: Other tables whose state the answer depends on (scope ``table``); it holds only as long as they don't
            change.
        evidence: ``manifest`` when proven from file metrics, ``scan`` when rows were read, ``journal`` when it rests
            on what earlier runs found.
        examples: Some failing rows, column name to JSON-safe value.
        detail: One sentence of explanation where the numbers alone don't tell.
        tolerance: Failing rows up to which the check passes, as the check has it.
        value: What was measured, where it's a number.
        sentence: What was found, in plain English; of failing checks.
        values: The unexpected values, most frequent first, with their number of ``rows``, where that says more.
        passed_run_id: Of a failing check, the newest published run that passed it; ``passed_at`` is when that began.
        measure: What that is, as text: equal measures of several runs are one history.
        description: As the check has it; so are ``owner`` and ``tags``.
    """

    name: str
    check: str
    columns: tuple[str, ...]
    severity: Severity
    verdict: Verdict
    failing_rows: int
    total_rows: int
    evidence: Evidence
    examples: tuple[dict[str, Any], ...] = ()
    detail: str | None = None
    reads: tuple[str, ...] = ()
    quarantined: int = 0
    tolerance: Tolerance | None = None
    description: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()
    value: float | None = None
    measure: str | None = None
    sentence: str | None = None
    values: tuple[dict[str, Any], ...] = ()
    passed_run_id: str | None = None
    passed_at: datetime | None = None

    @property
    def blocks(self) -> bool:
        """Whether it stops the publish."""
        return self.verdict == "fail" and self.severity != "warn"

    @property
    def warns(self) -> bool:
        """Whether it failed without stopping the publish."""
        return self.verdict == "fail" and self.severity == "warn"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What there is to say about it besides its numbers, a sentence each, in plain text that may hold values."""
        found = [self.sentence, self.detail]
        if self.values:
            values = ", ".join(f"{_short(one.get('value'))} ({one.get('rows', 0):,})" for one in self.values)
            found.append(f"Unexpected values: {values}.")
        if self.passed_run_id and self.passed_at:
            found.append(f"It last passed in run {self.passed_run_id} ({self.passed_at:%Y-%m-%d %H:%M}).")
        return tuple(text for text in found if text)

    def shown(self, *, rows: int, masked: Sequence[str] = ()) -> CheckResult:
        """Return it as people may see it: with so many example rows, and without the values of masked columns.

        Args:
            rows: Examples to keep; with 0, no other value of a row is kept, either.
            masked: Patterns of the names of columns whose values aren't shown, as of the setting ``ui.masked``.
        """
        is_hidden = rows <= 0 or any(is_masked(masked, column) for column in self.columns)
        is_value = is_hidden and self.check.partition("(")[0] in SHOW_VALUES
        return self.model_copy(
            update={
                "examples": tuple(masked_row(masked, row) for row in self.examples[: max(rows, 0)]),
                "values": () if is_hidden else self.values,
                "value": None if is_value else self.value,
                "detail": HIDDEN if is_value and self.detail else self.detail,
            }
        )


class Explanation(Value):
    """How one check was answered.

    Attributes:
        check: The check in its canonical text.
        method: ``manifest``: from the metrics of data files. ``scan``: in the one pass over the rows. ``bitmaps``:
            a key proven unique, in that pass or in a job of its own. ``hashes``: a key proven unique by a hash of each.
            ``grouping``: rows counted by key. ``join``: keys looked up in other rows.
        reason: Why no cheaper way would do; ``None`` for the cheapest one.
        jobs: Spark jobs that the check took, those for its examples among them. The pass over the rows counts for each
            check that it answers.
        bytes: What the columns that the check names take in the data files, by the manifests; 0 when none was read,
            ``None`` when the manifests don't say, and for a query of the user's.
    """

    check: str
    method: Method
    reason: str | None
    jobs: int
    bytes: int | None


class AuditReport(Value):
    """The outcome of all checks of one run on one table.

    ``metadata_location`` is the table metadata that was audited; only this exact state may be published.
    """

    run_id: str
    table: str
    branch: str
    metadata_location: str
    rows: int
    results: tuple[CheckResult, ...]
    seconds: float
    at: str | None = None
    """Hash of the target's commit at which checks of scope ``table`` read; ``None`` when there were none."""
    explanations: tuple[Explanation, ...] = ()
    """How each check was answered, in the order of the results, if that was asked for."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Tables that some result depends on, besides the batch itself."""
        return tuple(dict.fromkeys(table for result in self.results for table in result.reads))

    @property
    def passed(self) -> bool:
        """Whether no check failed but those of severity ``warn``."""
        return not self.failures

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Results that block the publish."""
        return tuple(result for result in self.results if result.blocks)

    @property
    def warnings(self) -> tuple[CheckResult, ...]:
        """Failed results of severity ``warn``."""
        return tuple(result for result in self.results if result.warns)

    @property
    def quarantined(self) -> tuple[CheckResult, ...]:
        """Results of checks that set rows aside."""
        return tuple(result for result in self.results if result.quarantined)

    @property
    def skipped(self) -> tuple[CheckResult, ...]:
        """Results of checks that had nothing to judge."""
        return tuple(result for result in self.results if result.verdict == "skipped")


def _short(value: object) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _is_plain(column: str) -> bool:
    """Return whether a column's name is read back without quotes."""
    parts = column.split(".")
    is_path = all(part.isascii() and part.isidentifier() and not iskeyword(part) for part in parts)
    return column.isidentifier() or is_path


def parse_tolerance(given: object) -> Tolerance:
    """Return a tolerance in its canonical form.

    Args:
        given: A whole number of rows, ``"5 rows"`` or a percentage, ``"0.1%"``.

    Raises:
        ValueError: With the reason, when it's neither.

    Example:
        >>> parse_tolerance(5), parse_tolerance("5 rows"), parse_tolerance("0.10 %")
        (5, 5, '0.1%')
    """
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    match = _TOLERANCE.fullmatch(given.strip()) if isinstance(given, str) else None
    if match is None:
        raise ValueError(
            f"tolerance={given!r} is neither a number of rows, such as 5, nor a percentage, such as '0.1%'"
        )
    if len(match[1]) > _MOST_DIGITS:
        raise ValueError(f"tolerance={match[1][:20]}… has more than {_MOST_DIGITS} digits")
    number = Decimal(match[1])
    if match[2] == "%":
        if number > _ALL:
            raise ValueError(f"tolerance={given!r} is more than 100%")
        whole, _, fraction = match[1].partition(".")  # as text: a Decimal's methods round to 28 digits
        return ".".join(filter(None, (whole.lstrip("0") or "0", fraction.rstrip("0")))) + "%"
    if number != int(number):
        raise ValueError(f"tolerance={given!r} isn't a whole number of rows; a percentage ends in %")
    return int(number)


def is_tolerated(tolerance: Tolerance | None, failing: int, total: int) -> bool:
    """Return whether ``failing`` of ``total`` rows are within a tolerance, without rounding.

    Example:
        >>> is_tolerated("0.1%", 1, 1000), is_tolerated("0.1%", 1, 999), is_tolerated(None, 1, 1000)
        (True, False, False)
    """
    if isinstance(tolerance, str):
        return Fraction(failing * _ALL) <= Fraction(tolerance.removesuffix("%")) * total
    return failing <= (tolerance or 0)
