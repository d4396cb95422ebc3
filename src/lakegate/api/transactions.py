"""Transactions that run again when another run has changed one of their tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar

from lakegate.components import Components
from lakegate.errors import NotReplayableError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref
from lakegate.model.request import OnFailure
from lakegate.model.run import Acceptance, Action, Run, new_run_id
from lakegate.wap.plan import contract_check
from lakegate.wap.publish_lock import redo
from lakegate.wap.transaction import Transaction, transaction

_Result = TypeVar("_Result")


def begin(
    components: Components,
    name: str | None = None,
    *,
    branch: str | None = None,
    on_failure: OnFailure | None = None,
    action: Action | None = None,
    acceptance: Acceptance | None = None,
    undoes: Callable[[Ref], Sequence[str]] = lambda _: (),
    tables: Sequence[str] = (),
) -> AbstractContextManager[Transaction]:
    """Return a transaction on ``main``, with the defaults of the settings and the checks of each table's settings."""
    run_id, defaults = new_run_id(), components.settings.ingest
    return transaction(
        components.context,
        run_id=run_id,
        name=name,
        branch=branch or f"{defaults.branch_prefix}/transaction_{run_id}",
        target=MAIN,
        configured=lambda table: configured_checks(components, table),
        on_failure=on_failure or defaults.on_failure,
        action=action,
        acceptance=acceptance,
        undoes=undoes,
        tables=tables,
    )


def run_transaction(
    components: Components,
    work: Callable[[Transaction], object],
    *,
    name: str | None = None,
    on_failure: OnFailure | None = None,
    action: Action | None = None,
    acceptance: Acceptance | None = None,
    undoes: Callable[[Ref], Sequence[str]] = lambda _: (),
    tables: Sequence[str] = (),
) -> Run:
    """Do ``work`` in a transaction, at most three times, and return its run.

    Args:
        acceptance: Publish even if a check fails.
        tables: Tables that it is about, for the journal until it has written some.
    """

    def attempt(tx: Transaction) -> Transaction:
        work(tx)
        return tx

    start = partial(
        begin,
        components,
        name,
        on_failure=on_failure,
        action=action,
        acceptance=acceptance,
        undoes=undoes,
        tables=tables,
    )
    return retry_conflicts(components, 3, start, attempt).run


def retry_conflicts(
    components: Components,
    attempts: int,
    start: Callable[[], AbstractContextManager[Transaction]],
    work: Callable[[Transaction], _Result],
) -> _Result:
    """Do ``work`` in a transaction, and again each time another run has changed one of its tables.

    Args:
        attempts: How often to try. From the third attempt on, other runs let this one publish first.
    """

    def attempt() -> _Result:
        with start() as tx:
            return work(tx)

    def note(error: NotReplayableError) -> str:
        return f"{error.context.get('table')} changed on main meanwhile; running it again on the new main."

    # Only this is worth another attempt: the publish itself rebases onto all other changes.
    return redo(components.context, MAIN, attempt, attempts=attempts, note=note)


def configured_checks(components: Components, table: TableIdentifier) -> tuple[Check, ...]:
    """Return all that a table's contract or settings require, the contract's columns included."""
    contract = components.contracts.find(table)
    columns = None if contract is None else contract_check(contract.terms)
    return (*([] if columns is None else [columns]), *components.contracts.checks_of(table))
