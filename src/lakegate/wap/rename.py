"""Plan the rename of a table in one commit, with its files, its history and the record of its ingested files."""

from __future__ import annotations

from lakegate.errors import AlreadyExistsError, IdentifierError, InputError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import quarantine_of
from lakegate.model.refs import Ref
from lakegate.model.run import UndoneTable
from lakegate.points import unknown_table
from lakegate.wap.context import Context
from lakegate.wap.quarantine import QUARANTINE_OF_PROPERTY, quarantine_table, require_not_reserved
from lakegate.wap.revert_plan import RevertPlan, TablePlan


def plan_rename(
    context: Context, old: TableIdentifier, new: TableIdentifier, head: Ref, *, reverts: tuple[str, ...] = ()
) -> RevertPlan:
    """Plan to rename a table together with its quarantine table.

    Args:
        reverts: The run whose rename this reverts.

    Raises:
        AlreadyExistsError: When the new name, or that of its quarantine table, is taken.
        ConfigurationError: When the new name is reserved.
        IdentifierError: When there's a quarantine table, and its new name would be too long.
        InputError: When the table is a quarantine table itself.
    """
    require_not_reserved(new)
    tables: dict[TableIdentifier, TablePlan] = {}
    renames = {old: new}
    try:
        renames[quarantine_of(old)] = quarantine_of(new)
    except IdentifierError:  # a name is too long to have one
        if quarantine_table(context, old, head) is not None:
            raise
    found = context.catalog.get_tables([*renames, *renames.values()], head)
    for then, name in renames.items():
        pointer = found[then]
        if pointer is None and then == old:
            raise unknown_table(context.catalog, str(old), head)
        if found[name] is not None:
            raise AlreadyExistsError(
                f"{old} can't be renamed: table {name} exists already.",
                hint=f"Choose another name, or drop that table first: lakegate table drop {name}",
                table=str(name),
            )
        if pointer is not None:
            metadata = context.reader.metadata(pointer)
            rows, files = metadata.rows, metadata.data_files or 0
            if then == old and QUARANTINE_OF_PROPERTY in metadata.properties:
                table = metadata.properties[QUARANTINE_OF_PROPERTY]
                raise InputError(
                    f"{old} can't be renamed: it's the quarantine table of {table}, and is renamed with it.",
                    hint=f"Rename the table: lakegate table rename {table} NAME",
                    table=str(old),
                )
            if then != old:
                pointer = context.editor.with_properties(pointer, {QUARANTINE_OF_PROPERTY: str(new)})
            gone = UndoneTable(table=str(then), rows=None if rows is None else -rows, data_files=-files, dropped=True)
            tables[then] = TablePlan(None, gone)
            moved = pointer.model_copy(update={"table": name, "content_id": None})
            tables[name] = TablePlan(moved, UndoneTable(table=str(name), rows=rows, data_files=files))
    return RevertPlan(
        message=f"Rename {old} to {new}",
        reverts=reverts,
        tables=tables,
        renames=tuple((str(then), str(name)) for then, name in renames.items() if then in tables),
    )
