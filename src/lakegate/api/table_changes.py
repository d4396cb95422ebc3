"""Changes of whole tables on ``main``, each audited and published in a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lakegate.api.refs import get_table
from lakegate.api.transactions import run_transaction
from lakegate.components import Components
from lakegate.errors import InputError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.request import require_list
from lakegate.model.run import Run
from lakegate.wap.quarantine import renames_column, require_not_reserved
from lakegate.wap.transaction import Transaction


def evolve(components: Components, table: str, changes: Sequence[str], checks: Sequence[str | Check]) -> Run:
    """Change a table's columns or partitioning; see :meth:`lakegate.Lake.evolve_table`."""
    identifier = TableIdentifier.parse(table)
    statements = [f"ALTER TABLE {'.'.join(map(quote, identifier.parts))} {change}" for change in changes]
    if not all(map(renames_column, statements)):
        require_not_reserved(identifier)
    require_list("checks", checks)
    if not changes:
        raise InputError("No change was given.", hint="Pass one as in SQL, such as 'ADD COLUMN zone STRING'.")
    get_table(components, table)  # Spark isn't started for a table that doesn't exist

    def work(tx: Transaction) -> None:
        for statement in statements:
            tx.sql(statement)
        tx.check(table, *checks)

    return run_transaction(components, work, tables=(str(identifier),))


def delete_rows(components: Components, table: str, where: str) -> Run:
    """Delete rows; see :meth:`lakegate.Lake.delete_rows`."""
    identifier = _existing(components, table)
    return run_transaction(
        components,
        lambda tx: tx.delete(table, where),
        name=f"delete rows of {identifier}",
        tables=(str(identifier),),
    )


def truncate(components: Components, table: str) -> Run:
    """Delete all rows; see :meth:`lakegate.Lake.truncate_table`."""
    from lakegate.wap import table_changes

    context, identifier = components.context, _existing(components, table)
    return run_transaction(
        components,
        lambda tx: table_changes.truncate(context, tx, identifier),
        name=f"truncate {identifier}",
        tables=(str(identifier),),
        undoes=partial(table_changes.runs_in, context, identifier),
    )


def _existing(components: Components, table: str) -> TableIdentifier:
    identifier = TableIdentifier.parse(table)
    require_not_reserved(identifier)
    get_table(components, table)  # Spark isn't started for a table that doesn't exist
    return identifier
