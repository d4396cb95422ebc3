"""The schemas of a batch's files: what each may hold, and where two of them differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from lakegate.errors import SchemaError
from lakegate.model.batch import SourceColumn
from lakegate.sources.inspection import Inspection
from lakegate.sources.paths import shown
from lakegate.sources.problems import Problem


def name_problems(path: str, names: Sequence[str]) -> Iterator[Problem]:
    """Yield what is wrong with the column names of one file: none, empty ones, the same one twice.

    Names that differ only by case are the same: Spark compares them so.
    """
    if not names:
        yield Problem(f"'{path}' has no columns.", "Write it again with columns.", path, SchemaError)
    empty = [str(index) for index, name in enumerate(names, start=1) if not name.strip()]
    if empty:
        yield Problem(
            f"'{path}': column {', '.join(empty)} has no name.", "Give every column a name.", path, SchemaError
        )
    by_lower: dict[str, list[str]] = {}
    for name in names:
        by_lower.setdefault(name.lower(), []).append(name)
    for same in by_lower.values():
        if len(same) > 1 and same[0].strip():
            listed = ", ".join(f"'{name}'" for name in same)
            yield Problem(
                f"'{path}' has {len(same)} columns of the same name: {listed} (case makes no difference).",
                "Rename or drop all but one of them.",
                path,
                SchemaError,
            )


def difference_problems(inspections: Sequence[Inspection], *, ordered: bool) -> Iterator[Problem]:
    """Yield one problem for each file whose columns are not those of most files.

    Args:
        inspections: The files.
        ordered: Whether the order of columns counts (it does where columns are matched by position, as in CSV).
    """
    if not inspections:
        return
    shapes = Counter(_shape(inspection.columns, ordered=ordered) for inspection in inspections)
    usual, _ = shapes.most_common(1)[0]
    reference = next(each for each in inspections if _shape(each.columns, ordered=ordered) == usual)
    for inspection in inspections:
        differences = tuple(differences_between(reference.columns, inspection.columns, ordered=ordered))
        if differences:
            path = shown(inspection.file.path)
            yield Problem(
                f"'{path}' does not have the columns of '{shown(reference.file.path)}': {'; '.join(differences)}.",
                "Ingest files of different columns one schema at a time, or write them again alike.",
                path,
                SchemaError,
            )


def differences_between(
    reference: Sequence[SourceColumn], other: Sequence[SourceColumn], *, ordered: bool = False
) -> Iterator[str]:
    """Yield each difference of ``other`` from ``reference`` in words; nullability and case never count.

    Example:
        >>> a = [SourceColumn(name="fee", type="double"), SourceColumn(name="id", type="int64")]
        >>> b = [SourceColumn(name="Fee", type="int64"), SourceColumn(name="zone", type="string")]
        >>> list(differences_between(a, b))
        ["'fee' is int64 instead of double", "'id' (int64) is missing", "'zone' (string) is additional"]
    """
    found = {column.name.lower(): column for column in other}
    for column in reference:
        same = found.pop(column.name.lower(), None)
        if same is None:
            yield f"'{column.name}' ({column.type}) is missing"
        elif same.type != column.type:
            yield f"'{column.name}' is {same.type} instead of {column.type}"
    yield from (f"'{column.name}' ({column.type}) is additional" for column in found.values())
    names, others = ([column.name.lower() for column in columns] for columns in (reference, other))
    if ordered and names != others and sorted(names) == sorted(others):
        yield f"the columns stand in another order ({', '.join(column.name for column in other)})"


def _shape(columns: Sequence[SourceColumn], *, ordered: bool) -> tuple[tuple[str, str], ...]:
    pairs = tuple((column.name.lower(), column.type) for column in columns)
    return pairs if ordered else tuple(sorted(pairs))
