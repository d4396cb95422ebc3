"""Contracts in other formats: reads ODCS and dbt's files, and writes ODCS."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from pathlib import Path

from lakegate.checks.registry import find_check
from lakegate.contracts.dbt import is_dbt, read_dbt
from lakegate.contracts.document import read_document, scalar
from lakegate.contracts.draft import Draft, entry, flow
from lakegate.contracts.odcs import OWN, OWN_OPTIONS, is_odcs, read_odcs
from lakegate.contracts.store import LoadedContract, parse_contract
from lakegate.errors import ConfigurationError, IdentifierError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier

WRITTEN = "v3.1.0"
"""The version of ODCS that is written."""
_LOGICAL_OF = {
    "boolean": "boolean", "int": "integer", "long": "integer", "float": "number", "double": "number", "date": "date",
    "timestamp": "timestamp", "timestamptz": "timestamp", "time": "time", "list": "array", "map": "object",
    "struct": "object", "decimal": "number",
}  # fmt: skip
_METRICS = {
    "not_null": "nullValues",
    "unique": "duplicateValues",
    "accepted_values": "invalidValues",
    "matches": "invalidValues",
}


def read_foreign(path: Path, *, namespace: str | None = None) -> list[Draft]:
    """Return a contract for each table in an ODCS contract or a dbt properties file.

    Args:
        namespace: The tables' namespace. Default: from the file.

    Raises:
        ConfigurationError: With file, line and column, if the file can't be read or has neither format.
    """
    document = read_document(path, aliases=True)
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


def write_odcs(contract: LoadedContract) -> str:
    """Return a contract as ODCS YAML. Checks without a library metric have type ``custom`` and lakegate's own syntax.

    :func:`~lakegate.contracts.odcs.read_odcs` reads it back as a contract with the same checks.
    """
    terms = contract.contract
    table = contract.table
    lines = [
        f"apiVersion: {WRITTEN}",
        "kind: DataContract",
        f"id: {uuid.uuid5(uuid.NAMESPACE_URL, f'lakegate:{table}')}",
        "version: 1.0.0",
        "status: active",
        f"name: {scalar(str(table))}",
    ]
    if terms.owner is not None:
        lines += ["team:", f"  name: {scalar(terms.owner)}"]
    lines += ["schema:", f"  - name: {scalar(table.name)}", f"    physicalName: {scalar(str(table))}"]
    lines += ["    physicalType: table", *_about(terms.description, terms.tags, indent=4)]
    if terms.columns:
        lines += ["    properties:", *_properties(contract)]
    listed = {column.name for column in terms.columns}
    rest = [one for one in contract.checks if len(one.columns) != 1 or one.columns[0] not in listed]
    lines += _rules(rest, None, terms.owner, indent=4)
    # From the first transform on, so that the order is kept: the columns' own marks come first.
    transforms = dropwhile(lambda one: "(" not in one, terms.partition_by)
    left: list[tuple[str, object]] = [("partition_by", one) for one in transforms]
    options = terms.model_dump(mode="json", include=set(OWN_OPTIONS), exclude_defaults=True)
    left += [(f"{OWN}{key}", value) for key, value in options.items()]
    lines += _custom(left, indent=4)
    if terms.freshness is not None:
        text = terms.freshness.strip()  # validated: a number and the letter of a unit
        lines += ["slaProperties:", "  - property: frequency", f"    value: {int(text[:-1])}", f"    unit: {text[-1]}"]
    return "\n".join(lines) + "\n"


def _custom(properties: Sequence[tuple[str, object]], *, indent: int) -> list[str]:
    space = " " * indent
    lines = [f"{space}customProperties:"] if properties else []
    for key, value in properties:
        lines += [f"{space}  - property: {key}", f"{space}    value: {flow(value)}"]
    return lines


def _properties(contract: LoadedContract) -> Iterator[str]:
    terms = contract.contract
    partitions = [one for one in terms.partition_by if "(" not in one]
    for column in terms.columns:
        yield from [f"      - name: {scalar(column.name)}", *_about(column.description, column.tags, indent=8)]
        if column.type is not None:
            yield from [f"        {key}: {scalar(value)}" for key, value in _types_of(column.type).items()]
            if column.type == "timestamptz":
                yield from ["        logicalTypeOptions:", "          timezone: true"]
        if column.required:
            yield "        required: true"
        yield from _custom([(f"{OWN}was", list(column.was))] if column.was else [], indent=8)
        if column.name in partitions:
            position = partitions.index(column.name) + 1
            yield from ["        partitioned: true", f"        partitionKeyPosition: {position}"]
        said = Check(kind="not_null", columns=(column.name,), owner=terms.owner) if column.required else None
        own = [one for one in contract.checks if one.columns == (column.name,) and one != said]
        yield from _rules(own, column.name, terms.owner, indent=8)


def _types_of(kind: str) -> dict[str, str]:
    word = re.match(r"[a-z]+", kind)
    physical = "real" if kind == "float" else kind  # in SQL, a float may be a double
    return {"logicalType": _LOGICAL_OF.get(word[0] if word else "", "string"), "physicalType": physical}


def _about(description: str | None, tags: tuple[str, ...], *, indent: int) -> list[str]:
    space = " " * indent
    lines = [] if description is None else [f"{space}description: {scalar(description)}"]
    return lines + ([f"{space}tags: [{', '.join(map(scalar, tags))}]"] if tags else [])


def _rules(checks: list[Check], column: str | None, owner: str | None, *, indent: int) -> list[str]:
    space = " " * indent
    lines = [f"{space}quality:"] if checks else []
    for check in checks:
        plain = check.model_copy(update={"owner": None}) if check.owner == owner else check
        rule = _as_metric(plain, column)
        if rule is None:
            implementation = entry(plain, in_column=False)
            rule = {"type": "custom", "engine": "lakegate", "implementation": implementation}
        first, *more = [f"{key}: {value}" for key, value in rule.items()]
        lines += [f"{space}  - {first}", *(f"{space}    {one}" for one in more)]
    return lines


def _as_metric(check: Check, column: str | None) -> dict[str, str] | None:
    """Return a check as an ODCS metric (keys with YAML values); ``None`` if a metric can't express it."""
    options = find_check(check.kind).options_of(check)
    tolerance, severity = options.pop("tolerance", 0), options.pop("severity", "error")
    known_options = {key: options.pop(key) for key in ("name", "description", "tags") if key in options}
    is_of_batch = options.pop("scope", "batch") == "batch"
    # The metric for duplicates is about all rows of the table.
    if options or severity == "quarantine" or (check.kind == "unique" and is_of_batch):
        return None
    rule = _row_count(check) if check.kind == "row_count" else _count_of_failing(check, column, tolerance)
    if rule is None:
        return None
    rule |= {"severity": "warning"} if severity == "warn" else {}
    texts = {key: value for key, value in known_options.items() if key != "tags"}
    rule |= {key: scalar(value) for key, value in texts.items()}
    if "tags" in known_options:
        rule["tags"] = f"[{', '.join(map(scalar, known_options['tags']))}]"
    return rule


def _row_count(check: Check) -> dict[str, str] | None:
    if not check.arguments.keys() <= {"min", "max"}:  # a comparison with earlier batches
        return None
    low, high = check.arguments.get("min"), check.arguments.get("max")
    if low is not None and high is not None:
        limit = {"mustBe": str(low)} if low == high else {"mustBeBetween": f"[{low}, {high}]"}
    else:
        limit = {"mustBeLessOrEqualTo": str(high)} if low is None else {"mustBeGreaterOrEqualTo": str(low)}
    return {"metric": "rowCount", **limit}


def _count_of_failing(check: Check, column: str | None, tolerance: int | str) -> dict[str, str] | None:
    metric = _METRICS.get(check.kind)
    if metric is None or (column is None and check.kind != "unique"):
        return None
    rule, arguments = {"metric": metric}, dict(check.arguments)
    if check.kind == "unique" and column is None:
        rule["arguments"] = f"{{properties: [{', '.join(map(scalar, check.columns))}]}}"
    if check.kind == "accepted_values":
        rule["arguments"] = f"{{validValues: [{', '.join(map(scalar, arguments.pop('values')))}]}}"
    if check.kind == "matches":
        rule["arguments"] = f"{{pattern: {scalar(arguments.pop('pattern'))}}}"
    if arguments:
        return None
    rule["mustBeLessOrEqualTo" if tolerance else "mustBe"] = str(tolerance).removesuffix("%")
    return rule | ({"unit": "percent"} if isinstance(tolerance, str) else {})
