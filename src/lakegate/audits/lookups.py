"""Questions about keys: what they are asked of, and what the engine's counts mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from lakegate.audits.columns import refuse
from lakegate.audits.references import no_such_table
from lakegate.audits.rule import DuplicateRows, Finding, OrphanRows, Question
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.tables import AddedRows, Rows, ScanResult
from lakegate.protocols import Engine

Others: TypeAlias = Callable[[TableIdentifier], tuple[Rows, ...]]
"""Gives where to read a table as it would be after publishing, without the rows that are audited; ``()`` when there are
no others: the table does not exist, or the audited rows are all of it."""

KeyQuestion: TypeAlias = DuplicateRows | OrphanRows


class Lookups:
    """Asks the engine about keys of ``rows``. Each table is located once, so that all questions see one state of it."""

    def __init__(self, rows: AddedRows, others: Others | None) -> None:
        self._rows = rows
        self._others = others
        self._located: dict[TableIdentifier, tuple[Rows, ...]] = {}

    def locate(self, check: Check, question: Question) -> None:
        """Find the other rows that ``question`` is about, before anything is read.

        Raises:
            CheckError: When there is no such table, or this audit sees the batch only.
        """
        table = self._other_table(question)
        if table is None or table in self._located:
            return
        if self._others is None:
            raise refuse(check, "this audit sees the rows of the batch only.", "Ask for it with scope='batch'.")
        found = self._others(table)
        if not found and table != self._rows.table:
            raise no_such_table(check, table)
        self._located[table] = found

    def reads(self, question: Question) -> tuple[str, ...]:
        """Return the tables whose state beside the batch the answer rests on."""
        table = self._other_table(question)
        return () if table is None else (str(table),)

    def doing(self, question: KeyQuestion) -> str:
        """Return what :meth:`ask` does, for narration."""
        columns = ", ".join(question.columns)
        if isinstance(question, OrphanRows):
            return f"look up {columns} in {question.table}"
        where = "all of " if question.scope == "table" else ""
        return f"look for duplicates of {columns} in {where}{self._rows.table}"

    def ask(self, engine: Engine, question: KeyQuestion) -> ScanResult:
        """Count failing rows; only the first count is theirs."""
        if isinstance(question, OrphanRows):
            return engine.count_orphans(
                self._rows, question.columns, self._parents(question.table), question.other_columns
            )
        if question.scope == "table":
            return engine.count_known(self._rows, question.columns, self._located[self._rows.table])
        return engine.count_duplicates(self._rows, question.columns)

    def examples(self, engine: Engine, question: KeyQuestion, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` failing rows, or keys for duplicates within the batch."""
        if isinstance(question, OrphanRows):
            return engine.orphan_examples(
                self._rows, question.columns, self._parents(question.table), question.other_columns, limit
            )
        if question.scope == "table":
            return engine.known_examples(self._rows, question.columns, self._located[self._rows.table], limit)
        return engine.duplicate_examples(self._rows, question.columns, limit)

    def _other_table(self, question: Question) -> TableIdentifier | None:
        if isinstance(question, OrphanRows):
            return question.table
        return self._rows.table if isinstance(question, DuplicateRows) and question.scope == "table" else None

    def _parents(self, table: TableIdentifier) -> tuple[Rows, ...]:
        # A table that refers to itself: the batch's own rows are among those that are referred to.
        itself = (self._rows,) if table == self._rows.table else ()
        return (*self._located[table], *itself)


def counts(question: KeyQuestion) -> int:
    """Return how many counts an answer to ``question`` has."""
    return 2 if isinstance(question, DuplicateRows) and question.scope == "table" else 1


def judge(question: KeyQuestion, counted: ScanResult) -> Finding:
    """Return what the engine's counts mean."""
    failing = counted.failing[0]
    if counts(question) == 1 or not failing:
        return Finding(failing)
    known = counted.failing[1]
    if not known:
        return Finding(failing, "The table holds none of these keys; they repeat within the batch.")
    return Finding(
        failing, f"The table already holds the keys of {'all' if known == failing else f'{known:,}'} of them."
    )
