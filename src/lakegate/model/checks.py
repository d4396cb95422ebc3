"""Checks and audit reports as values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from keyword import iskeyword
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.schema import is_masked, masked_path, masked_row
from lakegate.model.words import counted

Severity = Literal["error", "warn", "quarantine"]
Scope = Literal["batch", "table"]
Verdict = Literal["pass", "fail", "skipped"]
Evidence = Literal["manifest", "scan", "journal"]
Tolerance: TypeAlias = int | str
"""How many rows may fail: a number of rows, or a share of the judged rows as text, such as ``0.1%``."""

_TOLERANCE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%|rows?)?")
_ASKED = re.compile(r"\bexamples=([0-9]+)")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_ALL = 100  # percent
SHOW_VALUES = frozenset({"max", "mean", "min", "quantile", "recency", "sum"})
"""Checks whose results show, or come close to, a value of the column."""
HIDDEN = "The value isn't shown."
_LONGEST_VALUE = 60
_MOST_DIGITS = 400  # of a tolerance
Method = Literal["manifest", "scan", "bitmaps in the scan", "bitmaps", "grouping", "join"]


class Check(Value):
    """One rule about rows. The function called ``kind`` in ``lakegate.checks`` defines it; these are its arguments.

    Attributes:
        kind: Name of the check: ``not_null``, ``in_range`` …
        columns: Columns that it's about, in order; empty for checks of the whole batch.
        arguments: Its own arguments by name, JSON values only.
        severity: ``error`` blocks the publish, ``warn`` only reports, ``quarantine`` sets the failing rows aside.
        scope: ``batch``: the rows just written; ``table``: the table as it would be after publishing.
        label: A name chosen by the user; :attr:`name` falls back to one made from kind and columns.
        where: Spark SQL predicate on a row. Only rows for which it's true are judged.
        tolerance: How many rows may fail; ``None``: none.
        examples: Maximum number of failing rows to show; ``None``: as the settings say.
        description: Why the check is there, in the user's words.
        owner: Who maintains it.
        tags: The user's labels.

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
        """Its one name wherever people see it: the user's label, else which rows it judges by which rule."""
        return self.label or self._text({"where": self.where}, scope=self.scope)

    def __str__(self) -> str:
        # Description, owner and tags don't change what is checked.
        options = {"where": self.where, "tolerance": self.tolerance, "examples": self.examples}
        severity = None if self.severity == "error" else self.severity
        return self._text({**options, "severity": severity}, scope=self.scope, name=self.label or None)

    def _text(self, options: Mapping[str, object], *, scope: Scope, name: str | None = None) -> str:
        words = [column if _is_plain(column) else repr(column) for column in self.columns]
        last = {"scope": None if scope == "batch" else scope, "name": name}
        words += [f"{key}={value!r}" for key, value in self.arguments.items()]
        words += [f"{key}={value!r}" for key, value in {**options, **last}.items() if value is not None]
        return f"{self.kind}({', '.join(words)})"


class FailingFile(Value):
    """A source file that has rows which fail a check.

    Attributes:
        file: Its URI.
        rows: Number of its rows that fail.
        first_rows: Numbers of the first of them, from 1, without a header.
    """

    file: str
    rows: int
    first_rows: tuple[int, ...] = ()


class CheckResult(Value):
    """What one check found.

    Attributes:
        name: The check's one name, in every report and message.
        check: The check in its canonical text, with all options.
        columns: The columns that the check names.
        severity: What a failure does: ``error`` blocks the publish, ``warn`` is only reported, and ``quarantine`` sets
            the failing rows aside.
        verdict: ``pass``, ``fail``, or ``skipped`` if there was nothing to judge: no row matches ``where``, or there's
            too little history. A check that couldn't run is an exception, not a verdict.
        failing_rows: Rows that fail; on ``pass``, there may be some within the tolerance. For ``row_count``, 0 on
            ``pass``, else the number of missing or surplus rows.
        total_rows: Rows that were judged; with ``where``, those that match it.
        quarantined: Failing rows that were set aside before the rest was judged. Examples are taken from them.
        reads: Other tables that the result depends on (scope ``table``). It holds only while they don't change.
        evidence: ``manifest`` if proven from file metrics, ``scan`` if rows were read, ``journal`` if derived from
            earlier runs.
        examples: Some failing rows, column name to JSON-safe value.
        detail: One sentence of explanation if the numbers aren't enough.
        tolerance: The check's tolerance.
        value: The measured value, if it's a number.
        measure: What was measured, as text. Results of several runs with the same measure form one history.
        sentence: What was found, in plain English: for failing checks, and if NaN passes ``not_null``.
        condition: For failing checks: SQL that is true for the failing rows, to query the table by; ``None`` if only
            the batch as a whole fails.
        values: The unexpected values with their number of ``rows``, most frequent first, if that's more useful than
            rows.
        files: For checks that failed on a batch: the source files of the failing rows, those with most of them first.
            Empty if unknown.
        more_files: Number of further files with failing rows.
        passed_run_id: For failing checks: the last published run that passed it.
        passed_at: When that run started.
        description: The check's description.
        owner: Who maintains the check.
        tags: The check's labels.
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
    condition: str | None = None
    values: tuple[dict[str, Any], ...] = ()
    files: tuple[FailingFile, ...] = ()
    more_files: int = 0
    passed_run_id: str | None = None
    passed_at: datetime | None = None

    @property
    def blocks(self) -> bool:
        """Whether it prevents the publish."""
        return self.verdict == "fail" and self.severity != "warn"

    @property
    def warns(self) -> bool:
        """Whether it failed without preventing the publish."""
        return self.verdict == "fail" and self.severity == "warn"

    def most_rows(self, default: int) -> int:
        """Return how many failing rows to show: ``default``, or more if the check asks for more by ``examples=``."""
        asked = _ASKED.search(_QUOTED.sub("", self.check))
        return default if asked is None else max(default, int(asked[1]))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to say about it besides its numbers, a sentence each, in plain text. May contain column values."""
        found = [self.sentence, self.detail, self.where_from]
        if self.values:
            values = ", ".join(f"{_short(one.get('value'))} ({one.get('rows', 0):,})" for one in self.values)
            found.append(f"Unexpected values: {values}.")
        if self.passed_run_id and self.passed_at:
            found.append(f"It last passed in run {self.passed_run_id} ({self.passed_at:%Y-%m-%d %H:%M}).")
        return tuple(text for text in found if text)

    @property
    def where_from(self) -> str | None:
        """Which files the failing rows are from, as one sentence; ``None`` if unknown."""
        if not self.files:
            return None
        paths = [
            unquote(one.file.removeprefix("file://")) if one.file.startswith("file:") else one.file
            for one in self.files
        ]
        names = [path.rpartition("/")[2] for path in paths]
        total = f" of {counted(max(self.failing_rows, self.quarantined), 'failing row')}"
        parts = []
        for one, name, path in zip(self.files, names, paths, strict=True):
            rows = ", ".join(f"{number:,}" for number in one.first_rows)
            more = " …" if len(one.first_rows) < one.rows else ""
            which = f" ({'row' if one.rows == 1 else 'rows'} {rows}{more})" if rows else ""
            parts.append(f"{name if names.count(name) == 1 else path}: {one.rows:,}{total}{which}")
            total = ""
        if self.more_files:
            parts.append(f"{self.more_files:,} more {'file' if self.more_files == 1 else 'files'}")
        return f"{'; '.join(parts)}."

    def shown(self, *, rows: int, masked: Sequence[str] = ()) -> CheckResult:
        """Return the result as people may see it: with fewer examples, and masked columns' values replaced.

        Args:
            rows: Examples to keep. With 0, no other column value is kept, either.
            masked: Patterns of columns whose values aren't shown, as in the setting ``ui.masked``.
        """
        is_hidden = rows <= 0 or any(is_masked(masked, column) for column in self.columns)
        is_value = is_hidden and self.check.partition("(")[0] in SHOW_VALUES
        return self.model_copy(
            update={
                "examples": tuple(masked_row(masked, row) for row in self.examples[: max(rows, 0)]),
                "values": () if is_hidden else self.values,
                "files": tuple(one.model_copy(update={"file": masked_path(masked, one.file)}) for one in self.files),
                "value": None if is_value else self.value,
                "detail": HIDDEN if is_value and self.detail else self.detail,
            }
        )


class Explanation(Value):
    """How one check was answered.

    Attributes:
        check: The check in its canonical text.
        method: ``manifest``: from the metrics of data files. ``scan``: in the one pass over the rows. ``bitmaps``:
            a key proven unique, in that pass or in a job of its own. ``grouping``: rows counted by key. ``join``: keys
            looked up in other rows.
        reason: Why no cheaper method was possible; ``None`` for the cheapest one.
        jobs: Spark jobs that the check took, including those for its examples. The shared pass counts for each check
            that it answers.
        bytes: Size of the check's columns in the data files, by the manifests; 0 if no file was read. ``None`` if the
            manifests don't say, and for users' own queries.
    """

    check: str
    method: Method
    reason: str | None
    jobs: int
    bytes: int | None


class AuditReport(Value):
    """The results of all checks of one run on one table.

    Attributes:
        run_id: The run whose rows were audited.
        table: ``namespace.table``.
        branch: The branch on which the rows were audited.
        metadata_location: The table state that was audited. Only this exact state may be published.
        rows: Rows that were audited.
        results: What each check found, in the order of the checks.
        seconds: How long the audit took.
        at: Commit of the target at which checks of scope ``table`` read; ``None`` if there were none.
        explanations: How each check was answered, in the order of the results, if requested.
    """

    run_id: str
    table: str
    branch: str
    metadata_location: str
    rows: int
    results: tuple[CheckResult, ...]
    seconds: float
    at: str | None = None
    explanations: tuple[Explanation, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Other tables that a result depends on."""
        return tuple(dict.fromkeys(table for result in self.results for table in result.reads))

    @property
    def passed(self) -> bool:
        """Whether no check failed, except those of severity ``warn``."""
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


def failing_cells(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a row's values that fail a check of ``columns``: those, or the structs that contain them.

    Example:
        >>> failing_cells({"id": 1, "home": {"zip": None}}, ["home.zip"])
        ('home',)
    """
    names = (next((name for name in _containing(column) if name in row), None) for column in columns)
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _containing(column: str) -> Iterator[str]:
    """Yield a column's path, then those of the structs around it, innermost first."""
    while column:
        yield column
        column = column.rpartition(".")[0]


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
