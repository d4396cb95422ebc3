"""The planner: answers each check from the cheapest evidence, and reports which evidence that was.

File metrics come first (milliseconds for any number of rows). All remaining questions about single rows share *one*
aggregation over the added rows. Each question about keys (uniqueness, a foreign key) is a job of its own, except one
integer key, which the shared aggregation can prove unique. Only failing checks fetch examples.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, tee
from typing import Any, TypeAlias

from lakegate.checks.bitmaps import hash_key, integer_key, within_bounds
from lakegate.checks.columns import count_nulls
from lakegate.checks.definition import refuse
from lakegate.checks.explaining import named_in, read_bytes, reason
from lakegate.checks.history import Past, PastBatch, judge_band, measure_key
from lakegate.checks.questions import (
    AboutChange,
    AboutColumns,
    Aggregates,
    DuplicateRows,
    FailingRows,
    Filter,
    Finding,
    KeyQuestion,
    OrphanRows,
    QueryRows,
    Question,
    RowTotal,
    TotalBeside,
    is_about_rows,
    within,
)
from lakegate.checks.registry import find_check
from lakegate.checks.validation import Schemas, is_hidden, is_masked_in, names_masked, no_such_table, validate_checks
from lakegate.errors import CheckError, EngineError, EngineUnavailableError, LakegateError, QueryError
from lakegate.model.checks import (
    HIDDEN,
    AuditReport,
    Check,
    CheckResult,
    Evidence,
    Explanation,
    Method,
    Verdict,
    is_tolerated,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Schema
from lakegate.model.sqltext import sql_string
from lakegate.model.tables import OWN_BATCH, AddedFiles, AddedRows, IntegerKey, Rows, ScanResult
from lakegate.ports import Engine, Narrator
from lakegate.telemetry.metrics import AUDIT_SECONDS, measure

Others: TypeAlias = Callable[[TableIdentifier], tuple[Rows, ...]]
"""Gives where to read a table as it would be after publishing, without the rows that are audited; ``()`` when there are
no others: the table doesn't exist, or the audited rows are all of it."""

_LOG = logging.getLogger(__name__)
EXAMPLES = 10
"""Failing rows shown for each failing check that doesn't say how many."""

_MOST_VALUES = 10
_MOST_EXPLAINED = 50
"""Failing checks of which rows are shown: each takes a job, and has its rows in the report."""
_MOST_COLUMNS = 100
"""Columns of a row that is shown, if the table has more."""
_MOST_PASSES = 250  # earlier runs among which the last one is looked for that passed a check
_NOT_OF_A_RUN = "It judges what a run brings, not a published state or files."
_NO_BATCH = "Only new rows are compared with earlier batches; this run changed others, or released quarantined ones."
_LOOKED_UP_FROM = 2_000_000
"""Values to judge (rows by predicates) from which a sample of them saves more time than it takes."""
_APART_FROM = 1_000_000
"""Rows from which a column of text is read by itself, in which its files' dictionaries may save all rows."""
_APART_FROM_IN_FILE = 100_000  # the same, by file
_MOST_APART, _MOST_APART_VALUES = 8, 1_000
_NO_ROW = "FALSE"  # for when only the number of rows is asked for


def run_audit(
    *,
    run_id: str,
    rows: AddedRows,
    schema: Schema,
    added: AddedFiles,
    checks: Sequence[Check],
    engine: Callable[[], Engine],
    metadata_location: str,
    narrator: Narrator | None = None,
    others: Others | None = None,
    at: str | None = None,
    schemas: Schemas | None = None,
    explain: bool = False,
    past: Past | None = None,
) -> AuditReport:
    """Run all checks on the rows that a run added.

    Args:
        run_id: The run, for the report.
        rows: What the engine is to look at.
        schema: The table's columns on the branch.
        added: The manifests' view of the same rows.
        checks: In the order of the report.
        engine: Called at most once, and only when manifests leave something open or a check failed.
        metadata_location: The table metadata that is audited, for the report.
        narrator: Where to report progress.
        others: Gives where to read tables as they would be after publishing; needed by checks of scope ``table``.
        at: Hash of the commit that ``others`` reads at, for the report.
        schemas: Gives the schemas of those tables; the audited one's is ``schema``.
        explain: Whether to say how each check was answered, and why no cheaper way would do.
        past: What was before the batch; without it, no run is audited, and checks that compare with what was before are
            skipped.

    Returns:
        The report. A failed check is a result in it, never an exception.

    Raises:
        CheckError: When checks can't be asked of this table, or the engine refuses what the user wrote in one.
        EngineError: When the audit couldn't run, or the engine didn't see the rows that the manifests hold.
    """
    started = time.monotonic()
    known = None if schemas is None else lambda table: schema if table == rows.table else schemas(table)
    valid = validate_checks(checks, schema, known, masked=rows.masked)
    audit = _Audit(rows, schema, added, valid, engine, narrator, others, past)
    results = audit.results()
    return AuditReport(
        run_id=run_id,
        table=str(rows.table),
        branch=rows.ref,
        metadata_location=metadata_location,
        rows=audit.total,
        results=results,
        seconds=time.monotonic() - started,
        at=at if any(result.reads for result in results) else None,
        explanations=audit.explanations(results) if explain else (),
    )


def recheck(
    report: AuditReport, checks: Sequence[Check], moved: Collection[str], *, schema: Schema, at: str, **audit: Any
) -> AuditReport:
    """Answer again the checks of ``report`` that read tables which moved since, and keep the other results.

    Args:
        report: Of the same rows, by :func:`run_audit` or this function.
        checks: Those that the report answers, all of them and in its order.
        moved: Names of the tables that changed since ``report.at``.
        schema: The table's columns on the branch.
        at: Hash of the commit that other tables are read at now.
        audit: As for :func:`run_audit`, without the run and its metadata.

    Returns:
        A report that holds at ``at``. Unless a table moved that it reads, nothing is asked.

    Raises:
        LakegateError: As :func:`run_audit`.
        ValueError: When ``checks`` aren't those of the report.
    """
    asked = list(zip(validate_checks(checks, schema), report.results, strict=True))
    stale = {index: check for index, (check, result) in enumerate(asked) if set(result.reads) & set(moved)}
    fresh = run_audit(
        run_id=report.run_id,
        checks=tuple(stale.values()),
        metadata_location=report.metadata_location,
        schema=schema,
        at=at,
        **audit,
    )
    results = list(report.results)
    for index, result in zip(stale, fresh.results, strict=True):
        before = results[index]
        aside = {"quarantined": before.quarantined, "examples": before.examples, "detail": before.detail}
        kept = aside if before.quarantined and not result.blocks else {}
        results[index] = result.model_copy(update={"name": before.name, **kept})
    return report.model_copy(
        update={
            "results": tuple(results),
            "seconds": report.seconds + fresh.seconds,
            "at": at if report.reads else report.at,
        }
    )


def answer_from_manifest(question: Question, added: AddedFiles) -> Finding | None:
    """Answer a question from file metrics alone; ``None`` if they don't prove the answer."""
    if not added.complete:
        return None
    if isinstance(question, RowTotal):
        return question.judge(added.rows)
    if isinstance(question, (Aggregates, TotalBeside)):
        return _from_metrics(question, added) if isinstance(question, Aggregates) else None
    if isinstance(question, QueryRows) and not question.is_rows:
        return None  # a query may find something wrong with no rows at all
    in_batch = isinstance(question, DuplicateRows) and question.scope == "batch"
    if added.rows == 0 or (added.rows == 1 and in_batch):
        return Finding(0)
    failing: object = None
    if isinstance(question, FailingRows) and question.metrics is not None:
        with suppress(Exception):  # a user's function, and the scan answers the question as well
            failing = question.metrics(added)
    return Finding(failing) if type(failing) is int and 0 <= failing <= added.rows else None


def _from_metrics(question: Aggregates, added: AddedFiles) -> Finding | None:
    try:
        values = None if question.metrics is None else question.metrics(added)
        return None if values is None else question.judge(values, added.rows)
    except Exception:  # noqa: BLE001 - a user's function, and the scan answers the question as well
        return None


def _took(evidence: str, began: float) -> float:
    """Record the seconds since ``began``, and return the current time."""
    now = time.monotonic()
    measure(AUDIT_SECONDS, now - began, evidence=evidence)
    return now


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` with duplicates numbered.

    Example:
        >>> distinct_names(["a", "a", "a_2"])
        ('a', 'a_3', 'a_2')
    """
    taken: set[str] = set()
    distinct: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken or (candidate != name and candidate in names):
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate)
        distinct.append(candidate)
    return tuple(distinct)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was found for one check.

    ``total`` is the number of rows that it judged, if not all.
    """

    finding: Finding
    evidence: Evidence
    total: int | None = None
    examples: tuple[dict[str, Any], ...] = ()
    values: tuple[dict[str, Any], ...] = ()
    reads: tuple[str, ...] = ()


class _Audit:
    """One audit in progress. Each other table is located once, so that all questions see the same state of it."""

    def __init__(
        self,
        rows: AddedRows,
        schema: Schema,
        added: AddedFiles,
        checks: Sequence[Check],
        engine: Callable[[], Engine],
        narrator: Narrator | None,
        others: Others | None,
        past: Past | None,
    ) -> None:
        self._rows = rows
        self._past = past
        self._remembered = iter(() if past is None else past.batches())
        self._scanned = rows  # as questions about single rows read them
        self._added = added
        self._schema = schema
        self._checks = checks
        self._questions = [find_check(check.kind).ask(check, schema) for check in checks]
        self._filters = [find_check(check.kind).filter(check, schema) for check in checks]
        self._matching: dict[Filter, int] = {}  # how many rows match it
        self._asked: dict[tuple[int, Filter], FailingRows] = {}
        self._is_unique: dict[DuplicateRows, bool] = {}  # as the scan proved it, or didn't
        self._sampled: set[object] = set()  # keys of questions whose values were looked up
        self._jobs: dict[tuple[KeyQuestion, Filter | None], list[Method]] = {}  # of its own, in their order
        self._connect = engine
        self._narrator = narrator
        self._others = others
        self._located: dict[TableIdentifier, tuple[Rows, ...]] = {}
        self._total = added.rows if added.complete else None

    @property
    def total(self) -> int:
        """Number of rows that were judged."""
        return self._added.rows if self._total is None else self._total

    def results(self) -> tuple[CheckResult, ...]:
        """Answer all checks."""
        try:
            return self._results()
        except (EngineError, QueryError) as error:
            if not self._hides or "condition" not in error.context:
                raise  # "condition": Spark's words, as of lakegate.spark.failures
            raise type(error)(
                f"The audit of {self._rows.table} on {self._rows.ref} couldn't run: {self._told(error)}.",
                hint="Spark's message may quote values that audit.mask or examples=0 hide. "
                "Spark's log says where it failed.",
                **error.context,
            ) from None

    @cached_property
    def _hides(self) -> bool:
        """Whether some values mustn't be shown."""
        return bool(self._rows.masked) or any(check.examples == 0 for check in self._checks)

    def _told(self, error: LakegateError) -> str:
        """Return what the engine says is wrong, or only its name where its words may quote values that are hidden."""
        if not self._hides:
            return error.message
        return str(error.context.get("condition") or type(error).__name__)

    def _results(self) -> tuple[CheckResult, ...]:
        answers: dict[int, _Answer] = {}
        left: dict[int, Question] = {}
        began = time.monotonic()
        for index, question in enumerate(self._questions):
            where = self._filters[index]
            if where is not None and self._total == 0:
                self._matching[where] = 0
            elif where is not None:
                left[index] = question  # metrics of all rows don't say how many of them a filter leaves
                continue
            finding = self._known(question)
            if finding is None:
                left[index] = question
            else:
                answers[index] = _Answer(finding, "manifest", total=self._seen(index))
        began = _took("manifest", began)
        for index, question in left.items():
            self._locate(self._checks[index], question)
        found = (*self._scan(left), *self._aggregate(left), *self._ask_queries(left), *self._look_up(left))
        for index, finding in found:
            reads = tuple(map(str, self._other_tables(left[index])))
            answers[index] = _Answer(finding, "scan", total=self._seen(index), reads=reads)
        self._judge_bands(answers)
        if left:
            began = _took("scan", began)
        if any(self._verdict(index, answer) == "fail" for index, answer in answers.items()):
            self._add_examples(answers)
            _took("examples", began)
        names = distinct_names([check.name for check in self._checks])
        return tuple(
            self._result(index, name, answers[index], self._verdict(index, answers[index]))
            for index, name in enumerate(names)
        )

    def explanations(self, results: Sequence[CheckResult]) -> tuple[Explanation, ...]:
        """Say how the checks were answered that have these results."""
        return tuple(self._explained(index, result) for index, result in enumerate(results))

    def _explained(self, index: int, result: CheckResult) -> Explanation:
        question, where = self._questions[index], self._filters[index]
        fetched = bool(result.examples)
        is_query = isinstance(question, QueryRows) and question.by_user
        size = None if is_query else read_bytes((*result.columns, *named_in(where, self._schema)), self._added)
        if result.evidence != "scan":
            size = size if fetched else 0
            return Explanation(check=result.check, method="manifest", reason=None, jobs=fetched, bytes=size)
        why: str | None = reason(self._checks[index], question, where, self._schema, self._added)
        method: Method = "scan"
        jobs = 1 + (isinstance(question, FailingRows) and self._filtered(index).key in self._sampled)
        if is_query:
            jobs += bool(result.failing_rows)  # whose values were computed
        if isinstance(question, (DuplicateRows, OrphanRows)):
            own = self._jobs.get((question, where), [])
            in_scan = where is None and question in self._is_unique
            if own or in_scan:  # else the scan saw that its filter matches no row
                method, jobs = own[-1] if own else "bitmaps in the scan", len(own) + in_scan
            if method == "grouping" and (in_scan or len(own) > 1):
                by = "Hashes" if "hashes" in own else "Bitmaps"
                why = f"{by} didn't prove its key unique, so the rows that share a key were counted."
        return Explanation(check=result.check, method=method, reason=why, jobs=jobs + fetched, bytes=size)

    def _seen(self, index: int) -> int | None:
        """Return how many rows a check looked at, if it has a filter."""
        where = self._filters[index]
        return None if where is None else self._matching[where]

    def _verdict(self, index: int, answer: _Answer) -> Verdict:
        # A number of rows is judged even if it's 0.
        if answer.finding.skipped or (answer.total == 0 and not isinstance(self._questions[index], RowTotal)):
            return "skipped"
        if answer.finding.failed:
            return "fail"
        total = self.total if answer.total is None else answer.total
        tolerated = is_tolerated(self._checks[index].tolerance, answer.finding.failing_rows, total)
        return "pass" if tolerated else "fail"

    @cached_property
    def _engine(self) -> Engine:
        return self._connect()

    def _step(self, text: str) -> AbstractContextManager[object]:
        return nullcontext() if self._narrator is None else self._narrator.step(text)

    # Single rows ---------------------------------------------------------------------------------------------------

    def _scan(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer all questions about single rows, and about their number, in a pass that also counts filtered rows.

        It proves a key on the way, if the rows come in its order and aren't read one by one: Spark sorts them for that.
        Each other key takes a job of its own.
        """
        about_rows = {i: self._filtered(i) for i, q in questions.items() if isinstance(q, FailingRows)}
        about_total = {i: q for i, q in questions.items() if isinstance(q, RowTotal)}
        filters = list(dict.fromkeys(where for i in questions if (where := self._filters[i]) is not None))
        if not about_rows and not about_total and not filters:
            return
        distinct = list({question.key: question for question in about_rows.values()}.values())
        distinct += [FailingRows(where.sql, by_user=True, is_slow=where.is_slow) for where in filters]
        asked = [i for i in questions if i in about_rows or i in about_total or self._filters[i] is not None]
        if any(question.is_slow for question in distinct):
            self._scanned = self._rows.model_copy(update={"one_by_one": True})
        of_keys = [q for i, q in questions.items() if isinstance(q, DuplicateRows) and self._filters[i] is None]
        found = () if self._scanned.one_by_one else ((q, self._integer_key(q)) for q in of_keys)
        keys = ((question, key) for question, key in found if key is not None and key.is_ordered)
        proven, key = next(iter(keys), (None, None))
        beside = f", and duplicates of {', '.join(key.columns)}" if key else ""
        with self._step(f"scan {self._rows.table} for {_checks(len(asked))}{beside}"):
            counted = self._count(distinct or [FailingRows(_NO_ROW)], key, self._of_texts(about_rows))
        if proven is not None:
            self._is_unique[proven] = bool(counted.is_unique)
        self._matching |= dict(zip(filters, counted.failing[len(distinct) - len(filters) :], strict=False))
        failing = dict(zip((question.key for question in distinct), counted.failing, strict=False))
        yield from ((index, Finding(failing[question.key])) for index, question in about_rows.items())
        for index, total in about_total.items():
            seen = self._seen(index)
            yield index, total.judge(counted.total if seen is None else seen)

    def _filtered(self, index: int) -> FailingRows:
        """Return a question about single rows, asked of those that its check looks at."""
        question, where = self._questions[index], self._filters[index]
        assert isinstance(question, FailingRows)  # noqa: S101 - the caller's case
        if where is None:
            return question
        if (index, where) not in self._asked:
            self._asked[index, where] = replace(
                question,
                predicate=within(question.predicate, where),
                metrics=None,
                by_user=True,
                is_slow=question.is_slow or where.is_slow,
                text=None,
            )
        return self._asked[index, where]

    def _of_texts(self, questions: Mapping[int, FailingRows]) -> Sequence[FailingRows]:
        """Return the questions whose values are worth looking up; none whose values mustn't leave the engine."""
        if any(check.examples == 0 for check in self._checks):
            return []
        shown = (
            question
            for index, question in questions.items()
            if question.text is not None
            and not question.passing
            and not question.is_slow  # a sample is judged by one core
            and not is_masked_in(self._checks[index], self._schema, self._rows.masked)
        )
        found = list({question.key: question for question in shown}.values())
        return found if (self._total or 0) * len(found) >= _LOOKED_UP_FROM else []

    def _count(
        self, questions: Sequence[FailingRows], key: IntegerKey | None, of_texts: Sequence[FailingRows]
    ) -> ScanResult:
        try:
            predicates, only = self._with_known(questions, of_texts)
            options = {"only": only} if only else {}
            counted = self._engine.count_failing(self._scanned, predicates, key=key, **options)
        except (EngineError, QueryError) as error:
            self._blame(questions, error)
            raise
        return self._verified(counted, len(questions))

    def _with_known(
        self, questions: Sequence[FailingRows], of_texts: Sequence[FailingRows]
    ) -> tuple[Sequence[Any], Mapping[int, str]]:
        """Return the predicates, and by index what rows meet that may fail where only few are likely to.

        Predicates about texts are evaluated only for values that aren't known to pass. A sample's were found to pass by
        the engine itself, so looking them up is the same answer in less time.
        """
        known = {question.key: frozenset(question.passing) for question in questions}
        if of_texts:
            self._sampled.update(question.key for question in of_texts)
            asked = [(str(question.text), question.predicate) for question in of_texts]
            found = self._engine.passing_texts(self._scanned, asked)
            known |= {question.key: frozenset(texts) for question, texts in zip(of_texts, found, strict=True)}
        predicates: list[Any] = []
        only: dict[int, str] = {}
        for index, question in enumerate(questions):
            values, predicate = ", ".join(map(sql_string, sorted(known[question.key]))), question.predicate
            if values and self._is_apart(question, known[question.key]) and len(only) < _MOST_APART:
                only[index] = f"{question.text} NOT IN ({values})"
            elif values and not question.passing:
                predicate = f"IF({question.text} IN ({values}), FALSE, {predicate})"
            predicates.append(predicate)
        return predicates, only

    def _is_apart(self, question: FailingRows, known: Collection[str]) -> bool:
        """Return whether files' dictionaries may show that a column has no other texts than those.

        Dictionaries don't say where NULL is. Iceberg takes bytes that aren't UTF-8 for another text, which isn't ASCII.
        """
        column, files = question.text, [file for file in self._added.files if file.rows]
        return (
            column is not None
            and column.type.text == "string"
            and self._added.complete
            and not self._scanned.one_by_one
            and self._added.rows >= max(_APART_FROM, len(files) * _APART_FROM_IN_FILE)
            and all(file.path.endswith(".parquet") for file in files)
            and count_nulls(self._added, column) == 0
            and len(known) <= _MOST_APART_VALUES
            and all(text.isascii() for text in known)
        )

    def _verified(self, counted: ScanResult, questions: int, where: Filter | None = None) -> ScanResult:
        """Believe a count only if it saw the rows that are there: an audit never disagrees with the manifests."""
        if self._total is None and where is None:
            self._total = counted.total
        expected = self._total if where is None else self._matching[where]
        if counted.total != expected or len(counted.failing) != questions:
            raise EngineError(
                f"The audit of {self._rows.table} on {self._rows.ref} couldn't run: the engine looked at "
                f"{counted.total:,} rows where {expected:,} were added.",
                hint="Run it again. If that doesn't help, someone else wrote to the branch: discard it.",
                table=str(self._rows.table),
                branch=self._rows.ref,
            )
        return counted

    def _blame(self, questions: Sequence[FailingRows], error: EngineError | QueryError) -> None:
        """Find out whether what a user wrote broke the scan; then it's their check to repair, not a run to retry."""
        by_user = [question for question in questions if question.by_user]
        ours = [question.predicate for question in questions if not question.by_user] or [_NO_ROW]
        if not by_user or self._refusal(*ours) is not None:
            return
        refusals = {question.key: self._refusal(question.predicate) for question in by_user}
        culprits = [
            f"\n- {check}: {self._told(refusal)}"
            for index, check in enumerate(self._checks)
            if (refusal := next(filter(None, map(refusals.get, self._keys(index))), None)) is not None
        ]
        if culprits:
            raise CheckError(
                f"The engine can't evaluate {_checks(len(culprits))} on {self._rows.table}:{''.join(culprits)}",
                hint="Correct the expression; in Spark SQL, try_divide(…) and try_cast(… AS …) give NULL, not errors.",
                table=str(self._rows.table),
                branch=self._rows.ref,
            ) from (None if self._hides else error)

    def _keys(self, index: int) -> Iterator[object]:
        """Yield the keys of what a check asks of the scan: its filter, then what it asks of the rows left."""
        where = self._filters[index]
        if where is not None:
            yield where.sql
        if isinstance(self._questions[index], FailingRows):
            yield self._filtered(index).key

    def _refusal(self, *predicates: Any) -> EngineError | QueryError | None:
        try:
            self._engine.count_failing(self._scanned, predicates)
        except (EngineError, QueryError) as error:
            return error
        return None

    # The batch as a whole ------------------------------------------------------------------------------------------

    def _known(self, question: Question) -> Finding | None:
        """Answer what the schema or files' metrics prove."""
        if isinstance(question, AboutColumns):
            return question.judge(self._schema)
        if isinstance(question, AboutChange):
            if self._past is None:
                return Finding(0, _NOT_OF_A_RUN, skipped=True)
            return question.judge(self._past.before(), self._schema)
        return answer_from_manifest(question, self._added)

    def _aggregate(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer all questions about whole columns in one aggregation for each filter."""
        about = {index: question for index, question in questions.items() if isinstance(question, Aggregates)}
        for where in dict.fromkeys(self._filters[index] for index in about):
            these = {index: question for index, question in about.items() if self._filters[index] == where}
            if where is not None and not self._matching[where]:
                yield from ((index, Finding(0)) for index in these)
                continue
            wanted = list(dict.fromkeys(text for question in these.values() for text in question.expressions))
            with self._step(f"aggregate {self._rows.table} for {_checks(len(these))}"):
                total, values = self._engine.aggregate(self._looked_at(where), wanted)
            self._verified(ScanResult(total=total, failing=()), 0, where)
            known = dict(zip(wanted, values, strict=True))
            for index, question in these.items():
                yield index, self._judged(index, question, [known[text] for text in question.expressions], total)

    def _judged(self, index: int, question: Aggregates, values: Sequence[Any], total: int) -> Finding:
        try:
            return question.judge(values, total)
        except ValueError as error:
            check = self._checks[index]
            told = HIDDEN if is_hidden(check, self._schema, self._rows.masked) else str(error)
            raise refuse(check, told, "Select fewer rows with where=.") from None
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            check = self._checks[index]
            hides = is_hidden(check, self._schema, self._rows.masked)
            raised = type(error).__name__ if hides else repr(error)
            problem = f"its function raised {raised} as it judged."
            raise refuse(check, problem, "Correct the function.") from (None if hides else error)

    def _ask_queries(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer each question that takes a query of its own."""
        for index, question in questions.items():
            if not isinstance(question, QueryRows):
                continue
            where = self._filters[index]
            if where is not None and not self._matching[where]:
                yield index, Finding(0)
                continue
            check = self._checks[index]
            with self._step(f"query {self._rows.table} for {check.kind}"):
                try:
                    # A query of ours has no values that can't be computed.
                    options = {"computed": True} if question.by_user else {}
                    counted = self._engine.count_query(self._looked_at(where), question.sql, **options)
                except (EngineError, QueryError) as error:
                    if question.by_user and self._refusal(_NO_ROW) is None:
                        raise refuse(
                            check, f"the engine can't run it: {self._told(error)}", "Correct the query."
                        ) from (None if self._hides else error)
                    raise
            yield index, Finding(self._verified(counted, 1, where).failing[0])

    def _judge_bands(self, answers: dict[int, _Answer]) -> None:
        """Compare what was measured with earlier batches."""
        banded = {i: band for i, one in enumerate(self._questions) if (band := getattr(one, "band", None)) is not None}
        if not banded:
            return
        own = None if self._past is None else self._past.own()
        for index, band in banded.items():
            answer, check = answers[index], self._checks[index]
            if own is None or not own.is_batch:
                why = _NOT_OF_A_RUN if self._past is None else _NO_BATCH
                told = " ".join(filter(None, (answer.finding.detail, why)))
                finding = replace(answer.finding, detail=told, skipped=answer.finding.verdict == "pass")
                answers[index] = replace(answer, finding=finding)
                continue
            is_total = isinstance(self._questions[index], RowTotal) and check.where is None
            key = None if is_total else self._measure(check)
            finding = judge_band(answer.finding, band, key, self._batches(), own.at)
            evidence: Evidence = "journal" if answer.evidence == "manifest" else "scan"
            answers[index] = replace(answer, finding=finding, evidence=evidence)

    # Keys ----------------------------------------------------------------------------------------------------------

    def _look_up(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer each question about keys by a job of its own, or by two: what bitmaps can't prove is counted."""
        known: dict[tuple[KeyQuestion, Filter | None], Finding] = {}
        for index, question in questions.items():
            if isinstance(question, TotalBeside):
                yield index, self._compare_totals(question)
            if not isinstance(question, (DuplicateRows, OrphanRows)):
                continue
            where = self._filters[index]
            if where is not None and not self._matching[where]:
                known[question, where] = Finding(0)
            if (question, where) not in known:
                is_unique = isinstance(question, DuplicateRows) and self._prove(question, where)
                known[question, where] = Finding(0) if is_unique else self._count_keys(question, where)
            yield index, known[question, where]

    def _prove(self, question: DuplicateRows, where: Filter | None) -> bool:
        """Return whether bitmaps or hashes prove that no key occurs twice. If not, it may still be true."""
        if where is None and question in self._is_unique:
            return self._is_unique[question]
        key = self._integer_key(question, where)
        if key is None and question.scope == "batch":
            key = hash_key(question.columns, self._schema, self._added)
        if key is None:
            return False
        rows = self._looked_at(where)
        self._jobs.setdefault((question, where), []).append("hashes" if key.is_hash else "bitmaps")
        with self._step(f"look for duplicates of {', '.join(key.columns)} in {rows.table}"):
            return bool(self._verified(self._engine.count_failing(rows, (), key=key), 0, where).is_unique)

    def _integer_key(self, question: DuplicateRows, where: Filter | None = None) -> IntegerKey | None:
        key = integer_key(question.columns, self._schema, self._added)
        if key is None or question.scope == "batch":
            return key
        within = within_bounds(question.columns, self._schema, self._added)
        return key.model_copy(update={"others": self._beside(where), "within": within})

    def _count_keys(self, question: KeyQuestion, where: Filter | None) -> Finding:
        columns, rows = question.columns, self._looked_at(where)
        is_alone = isinstance(question, DuplicateRows) and question.scope == "batch"
        self._jobs.setdefault((question, where), []).extend(("grouping",) if is_alone else ("join", "join"))
        if isinstance(question, OrphanRows):
            with self._step(f"look up {', '.join(columns)} in {question.table}"):
                counted = self._engine.count_orphans(rows, columns, self._parents(question), question.other_columns)
            return Finding(self._verified(counted, 1, where).failing[0])
        if question.scope == "batch":
            with self._step(f"look for duplicates of {', '.join(columns)} in {rows.table}"):
                return Finding(self._verified(self._engine.count_duplicates(rows, columns), 1, where).failing[0])
        with self._step(f"look for duplicates of {', '.join(columns)} in all of {rows.table}"):
            counted = self._engine.count_known(rows, columns, self._beside(where))
        failing, known = self._verified(counted, 2, where).failing
        if not failing:
            return Finding(0)
        if not known:
            return Finding(failing, "The table holds none of these keys; they repeat within the batch.")
        return Finding(
            failing, f"The table already holds the keys of {'all' if known == failing else f'{known:,}'} of them."
        )

    def _compare_totals(self, question: TotalBeside) -> Finding:
        ours = self._count_beside(self._rows.table) + self._count_rows()
        theirs = ours if question.table == self._rows.table else self._count_beside(question.table)
        return question.judge(ours, theirs)

    def _count_rows(self) -> int:
        if self._total is None:
            self._verified(self._engine.count_failing(self._rows, (_NO_ROW,)), 1)
        return self.total

    def _count_beside(self, table: TableIdentifier) -> int:
        with self._step(f"count the rows of {table}"):
            counted = [self._engine.aggregate(rows, ())[0] for rows in self._located[table]]
        return sum(counted)

    def _looked_at(self, where: Filter | None) -> AddedRows:
        if where is None:
            return self._rows
        return self._rows.model_copy(update={"where": where.sql, "one_by_one": where.is_slow})

    def _beside(self, where: Filter | None) -> tuple[Rows, ...]:
        """Return the other rows of the audited table that a check reads; its filter applies to them, too."""
        found = self._located[self._rows.table]
        return found if where is None else tuple(one.model_copy(update={"where": where.sql}) for one in found)

    def _locate(self, check: Check, question: Question) -> None:
        """Locate the other rows that ``question`` is about, before anything is read."""
        for table in self._other_tables(question):
            if table not in self._located:
                self._locate_table(check, table)

    def _locate_table(self, check: Check, table: TableIdentifier) -> None:
        if self._others is None:
            raise refuse(check, "this audit sees the rows of the batch only.", "Ask for it with scope='batch'.")
        found = self._others(table)
        if not found and table != self._rows.table:
            raise no_such_table(check, table)
        self._located[table] = found

    def _other_tables(self, question: Question) -> tuple[TableIdentifier, ...]:
        """Return the tables that an answer depends on besides the batch."""
        if isinstance(question, OrphanRows):
            return (question.table,)
        if isinstance(question, TotalBeside):
            return tuple(dict.fromkeys((self._rows.table, question.table)))
        return (self._rows.table,) if isinstance(question, DuplicateRows) and question.scope == "table" else ()

    def _parents(self, question: OrphanRows) -> tuple[Rows, ...]:
        # A table that refers to itself: the batch's own rows are among those that are referred to.
        itself = (self._rows,) if question.table == self._rows.table else ()
        parents: tuple[Rows, ...] = (*self._located[question.table], *itself)
        if question.condition is None:
            return parents
        return tuple(one.model_copy(update={"where": question.condition}) for one in parents)

    # Examples ------------------------------------------------------------------------------------------------------

    def _add_examples(self, answers: dict[int, _Answer]) -> None:
        """Fetch examples for each check separately: if that fails for some, no verdict is lost."""
        failed = [i for i in range(len(self._questions)) if self._verdict(i, answers[i]) == "fail"]
        failed = [i for i in failed if self._has_examples(self._questions[i]) and self._shows(i)]
        failed.sort(key=lambda index: self._checks[index].severity == "warn")
        for index in failed[_MOST_EXPLAINED:]:
            answers[index] = self._shown(
                self._checks[index], answers[index], f"only {_MOST_EXPLAINED} failing checks get examples.", quiet=True
            )
        failed = sorted(failed[:_MOST_EXPLAINED])
        if not failed:
            return
        known: dict[object, tuple[dict[str, Any], ...] | str] = {}
        away: str | None = None
        with self._step(f"fetch examples for {_checks(len(failed))}"):
            for index in failed:
                question: object = self._questions[index]
                asked = self._filtered(index).key if isinstance(question, FailingRows) else question
                key = (asked, self._filters[index], self._shows(index))
                shown = known.get(key, away)
                if shown is None:
                    try:
                        shown = known[key] = self._fetch(index)
                    except EngineUnavailableError as error:
                        shown = away = error.message
                    except Exception as error:  # noqa: BLE001 - of the libraries below, too: see above
                        # Their messages quote values, which whoever reads the report may not be allowed to see.
                        kind = getattr(error, "context", {}).get("condition") or type(error).__name__
                        _LOG.debug("no examples: %s", kind, exc_info=not self._hides)
                        shown = known[key] = f"fetching them failed ({kind})."
                found = self._shown(self._checks[index], answers[index], shown)
                answers[index] = found if isinstance(shown, str) else replace(found, values=self._values(index, found))

    @staticmethod
    def _has_examples(question: Question) -> bool:
        return isinstance(question, QueryRows) or is_about_rows(question)

    def _shows(self, index: int) -> int:
        """Return the number of failing rows to show for a check."""
        number = self._checks[index].examples
        return EXAMPLES if number is None else number

    def _shown(
        self, check: Check, answer: _Answer, shown: tuple[dict[str, Any], ...] | str, *, quiet: bool = False
    ) -> _Answer:
        if not isinstance(shown, str):
            return replace(answer, examples=shown)
        if self._narrator is not None and not quiet:
            self._narrator.note(f"no examples for {check.name}: {shown}")
        detail = " ".join(filter(None, (answer.finding.detail, f"No examples can be shown: {shown}")))
        return replace(answer, finding=replace(answer.finding, detail=detail))

    def _values(self, index: int, answer: _Answer) -> tuple[dict[str, Any], ...]:
        """Return a check's failing values, each with its number of rows."""
        question = self._questions[index]
        is_shown = not is_masked_in(self._checks[index], self._schema, self._rows.masked)
        if not isinstance(question, FailingRows) or question.values_of is None or not is_shown or answer.values:
            return answer.values
        predicate = self._filtered(index).predicate
        sql = (
            f"SELECT {question.values_of} AS value, count(*) AS rows FROM {OWN_BATCH} WHERE {predicate} "  # noqa: S608
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MOST_VALUES}"
        )
        try:
            return tuple(self._engine.query_examples(self._rows, sql, _MOST_VALUES))
        except Exception:  # noqa: BLE001 - they're shown beside the rows; failing to fetch them loses no verdict
            return ()

    def _fetch(self, index: int) -> tuple[dict[str, Any], ...]:
        question, where, limit = self._questions[index], self._filters[index], self._shows(index)
        shown = {"shown": self._columns_shown(self._checks[index])}
        rows, engine = self._looked_at(where).model_copy(update=shown), self._engine
        if isinstance(question, FailingRows):
            scanned = self._scanned.model_copy(update=shown)
            return tuple(engine.examples(scanned, self._filtered(index).predicate, limit))
        if isinstance(question, QueryRows):
            if question.by_user and names_masked(question.sql, self._schema, rows.masked):
                rows = rows.model_copy(update={"masked": ("*",)})
            return tuple(engine.query_examples(rows, question.sql, limit))
        if isinstance(question, OrphanRows):
            others = self._parents(question)
            return tuple(engine.orphan_examples(rows, question.columns, others, question.other_columns, limit))
        if isinstance(question, DuplicateRows) and question.scope == "table":
            return tuple(engine.known_examples(rows, question.columns, self._beside(where), limit))
        columns = question.columns if isinstance(question, DuplicateRows) else ()
        return tuple(engine.duplicate_examples(rows, columns, limit)) if columns else ()

    def _columns_shown(self, check: Check) -> tuple[str, ...]:
        """Return the columns that examples from a wide table have: the check's own, then the first ones."""
        names = self._schema.names
        if len(names) <= _MOST_COLUMNS:
            return ()
        paths = (self._schema.resolve(column) for column in check.columns)
        own = [column.name for one in paths if one and (column := self._schema.find(one[0][0]))]
        return tuple(dict.fromkeys((*own, *names)))[:_MOST_COLUMNS]

    def _result(self, index: int, name: str, answer: _Answer, verdict: Verdict) -> CheckResult:
        check = self._checks[index]
        failing, detail = answer.finding.failing_rows, answer.finding.detail
        if verdict == "skipped" and detail is None:
            detail = f"No row of the batch matches {check.where}, so there was nothing to check."
        elif verdict == "pass" and failing:
            detail = f"{failing:,} failing row{'' if failing == 1 else 's'} tolerated (at most {check.tolerance})."
        if detail is not None and is_hidden(check, self._schema, self._rows.masked):
            detail = HIDDEN
        seen = self.total if answer.total is None else answer.total
        passed = self._last_pass(check) if verdict == "fail" else None
        breaking = failing if self._has_examples(self._questions[index]) else 0  # no row breaks a claim about all
        return CheckResult(
            name=name,
            check=str(check),
            columns=check.columns,
            severity=check.severity,
            verdict=verdict,
            failing_rows=failing,
            total_rows=seen,
            evidence=answer.evidence,
            examples=answer.examples,
            detail=detail,
            reads=answer.reads,
            tolerance=check.tolerance,
            description=check.description,
            owner=check.owner,
            tags=check.tags,
            value=None if is_hidden(check, self._schema, self._rows.masked) else answer.finding.value,
            sentence=_sentence(check, breaking, seen) if verdict == "fail" else None,
            values=answer.values,
            passed_run_id=None if passed is None else passed.run_id,
            passed_at=None if passed is None else passed.at,
            measure=None if answer.finding.value is None else self._measure(check),
        )

    def _last_pass(self, check: Check) -> PastBatch | None:
        text = str(check)
        return next((batch for batch in islice(self._batches(), _MOST_PASSES) if text in batch.passed), None)

    def _batches(self) -> Iterator[PastBatch]:
        """Return earlier batches, newest first. Each is read once, when it's first needed."""
        self._remembered, again = tee(self._remembered)
        return again

    @staticmethod
    def _measure(check: Check) -> str:
        options = {"min", "max", "deviations", "percent", "last", "weekday"}
        arguments = {name: value for name, value in check.arguments.items() if name not in options}
        return measure_key(check.kind, check.columns, arguments, check.where)


def _sentence(check: Check, failing: int, total: int) -> str:
    """Return what was found in one sentence."""
    claim = find_check(check.kind).describe(check)
    if not failing or failing > total:
        return f"It isn't true that {claim}."
    return (
        f"{failing:,} of {total:,} row{'' if total == 1 else 's'} {'breaks' if failing == 1 else 'break'} it: {claim}."
    )


def _checks(count: int) -> str:
    return f"{count} check{'' if count == 1 else 's'}"
