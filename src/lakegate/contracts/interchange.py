"""Contracts in other formats: ODCS contracts and dbt's properties files."""

from __future__ import annotations

from pathlib import Path

from lakegate.contracts.dbt import is_dbt, read_dbt
from lakegate.contracts.document import read_document
from lakegate.contracts.draft import Draft
from lakegate.contracts.odcs import is_odcs, read_odcs
from lakegate.contracts.store import parse_contract
from lakegate.errors import ConfigurationError, IdentifierError
from lakegate.model.identifiers import TableIdentifier


def read_foreign(path: Path, *, namespace: str | None = None) -> list[Draft]:
    """Return a contract for each table in an ODCS contract or a dbt properties file.

    Args:
        namespace: The tables' namespace. Default: from the file.

    Raises:
        ConfigurationError: With file, line and column, if the file can't be read or has neither format.
    """
    document = read_document(path)
    if is_odcs(document):
        drafts = read_odcs(document, namespace=namespace)
    elif is_dbt(document):
        drafts = read_dbt(document, namespace=namespace)
    else:
        raise ConfigurationError(
            f"{path} is neither an ODCS contract nor a properties file of dbt.",
            hint="An ODCS contract has 'apiVersion', dbt's file 'models', 'seeds', 'snapshots' or 'sources'.",
            file=str(path),
        )
    if not drafts:
        raise ConfigurationError(f"{path} describes no table.", file=str(path))
    first: dict[str, int] = {}
    for draft in drafts:
        if draft.table in first:
            raise ConfigurationError(
                f"{path}:{draft.line}: {draft.table} is already described on line {first[draft.table]}, and a table "
                "has one contract.",
                hint="Remove one of them, or choose another --namespace." if namespace else "Remove one of them.",
                file=str(path),
                line=draft.line,
            )
        first[draft.table] = draft.line
        try:
            TableIdentifier.parse(draft.table)
        except IdentifierError as error:
            raise ConfigurationError(
                f"{path}:{draft.line}: {error.message}", hint=error.hint, file=str(path), line=draft.line
            ) from None
        parse_contract(draft.text(path.name), name=f"the contract translated from {path}, line {draft.line}")
    return drafts
