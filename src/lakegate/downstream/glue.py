"""The AWS Glue Data Catalog: its tables point at the metadata on ``main``, for Athena, Redshift and EMR.

A table is moved by compare-and-swap: only from the metadata that lakegate or the event expects, and only if nobody
changed it since it was read. Parameters of the table record the state that lakegate left. They survive writes by Athena
or Spark, and then no longer match the table.

Source: https://docs.aws.amazon.com/glue/latest/webapi/API_UpdateTable.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from lakegate.config import GlueDownstream
from lakegate.downstream import DownstreamContext
from lakegate.errors import DownstreamError, DownstreamUnavailableError, LakegateError
from lakegate.model.downstream import ChangedTable, DownstreamEvent
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run
from lakegate.model.types import type_parts

TABLE, METADATA, COMMIT = "lakegate.table", "lakegate.metadata-location", "lakegate.commit"
"""Table parameters that record the lake's table, the metadata file that lakegate set, and the commit."""
ACTIONS = (
    "glue:GetDatabase",
    "glue:CreateDatabase",
    "glue:GetTable",
    "glue:CreateTable",
    "glue:UpdateTable",
    "glue:DeleteTable",
)
_ATTEMPTS = 4
_INPUT_FIELDS = {
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention", "StorageDescriptor",
    "PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TableType", "Parameters", "TargetTable",
}  # fmt: skip
"""Table fields that ``UpdateTable`` accepts. It drops those that it isn't given."""
_MISSING = "EntityNotFoundException"
_CONFLICTS = ("AlreadyExistsException", "ConcurrentModificationException", "VersionMismatchException")
_REFUSED = ("AccessDeniedException", "InvalidInputException", "ValidationException", "GlueEncryptionException")
_PERMISSIONS_HINT = "To see the permissions that the role needs, run: lakegate admin downstream policy NAME"
_TYPES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "time": "string",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
    "timestamp_ns": "timestamp",
    "timestamptz_ns": "timestamp",
    "string": "string",
    "uuid": "string",
    "binary": "binary",
}
_UNKNOWN_TYPE = "string"
"""For types that Glue doesn't know, such as ``variant``. Readers use the metadata file's types anyway."""
_UNUSUAL = re.compile(r"[^\w ./@$-]")


class GlueTarget:
    """Implements :class:`lakegate.ports.Downstream` with a Data Catalog."""

    def __init__(self, client: Any, settings: GlueDownstream) -> None:
        self._glue = client
        self._settings = settings
        self._catalog = {} if settings.catalog_id is None else {"CatalogId": settings.catalog_id}

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Point each table of the event at its metadata, or drop it.

        Raises:
            DownstreamError: Glue denies access, or somebody else changed a table.
        """
        del run
        if event.commit is None:
            return
        for table in event.tables:
            if table.after is None:
                self._drop(table)
            else:
                self._point_at(table, table.after, event.commit)

    def test(self) -> str:
        """Check read access. Write access can't be checked without writing."""
        database = self._settings.database or "default"
        exists = self._call("get_database", Name=database) is not None
        self._call("get_table", DatabaseName=database, Name="lakegate")
        found = f"Database {database} {'exists' if exists else 'will be created when it is needed'}"
        return f"Glue answers in {self._glue.meta.region_name}. {found}."

    def _point_at(self, table: ChangedTable, location: str, commit: str) -> None:
        if not location.startswith(("s3://", "s3a://")):
            raise DownstreamError(
                f"{table.table} isn't on S3, the only storage that Glue's engines read.",
                hint='Send only tables that are on S3: tables = ["namespace.*"].',
            )
        database, name = self.names(table.table)
        for _ in range(_ATTEMPTS):
            found = self._find(database, name)
            if found is None:
                done = self._create(database, _table_input(None, name, table, location, commit))
            elif _parameters(found).get("metadata_location") == location and _is_as_left(found, table.table):
                return
            else:
                self._require_unchanged(found, table)
                done = self._update(database, found, _table_input(found, name, table, location, commit))
            if done:
                return
        raise DownstreamUnavailableError(f"Others keep changing {database}.{name} in Glue; it will be retried.")

    def _drop(self, table: ChangedTable) -> None:
        database, name = self.names(table.table)
        found = self._find(database, name)
        if found is None or self._settings.on_drop == "keep":
            return
        self._require_unchanged(found, table)
        self._call("delete_table", DatabaseName=database, Name=name)

    def names(self, table: str) -> tuple[str, str]:
        """Return a table's database and name in Glue, which are lower case."""
        identifier = TableIdentifier.stored(table)
        return self._settings.database or "_".join(identifier.namespace).lower(), identifier.name.lower()

    def _require_unchanged(self, found: Mapping[str, Any], table: ChangedTable) -> None:
        """Refuse to touch a table unless it's as lakegate left it, or as the event expects it."""
        parameters = _parameters(found)
        is_ours = parameters.get(TABLE) in (None, table.table)
        where = parameters.get("metadata_location")
        is_expected = is_ours and where is not None and where in (table.before, table.after)
        if is_expected or _is_as_left(found, table.table) or self._settings.on_conflict == "overwrite":
            return
        place = f"{found.get('DatabaseName', '')}.{found['Name']}"
        if parameters.get("table_type", "").upper() != "ICEBERG":
            what = f"Table {place} in Glue isn't an Iceberg table, and isn't lakegate's"
        elif parameters.get(TABLE) not in (None, table.table):
            what = f"Table {place} in Glue belongs to {parameters[TABLE]}"
        else:
            what = f"Somebody else changed table {place} in Glue: it points at {where}"
        raise DownstreamError(
            f"{what}. {table.table} wasn't updated there.",
            hint='To overwrite it: on_conflict = "overwrite". Otherwise drop or rename it in Glue.',
            table=table.table,
        )

    def _find(self, database: str, name: str) -> Mapping[str, Any] | None:
        answer = self._call("get_table", DatabaseName=database, Name=name)
        table: Mapping[str, Any] | None = None if answer is None else answer["Table"]
        return table

    def _create(self, database: str, table: Mapping[str, Any]) -> bool:
        """Create a table. Return whether it didn't exist yet."""
        if self._call("get_database", Name=database) is None:
            self._attempt("create_database", DatabaseInput={"Name": database, "Description": "Kept by lakegate."})
        return self._attempt("create_table", DatabaseName=database, TableInput=table)

    def _update(self, database: str, found: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
        """Update a table. Return whether nobody changed it since it was read."""
        version = {"VersionId": found["VersionId"]} if found.get("VersionId") else {}
        # Archiving a version for each publish would exhaust the account's quota.
        return self._attempt("update_table", DatabaseName=database, TableInput=table, SkipArchive=True, **version)

    def _attempt(self, method: str, **given: Any) -> bool:
        try:
            return self._call(method, **given) is not None
        except _ConflictError:
            return False

    def _call(self, method: str, **given: Any) -> Any:
        """Return Glue's answer; ``None`` if the object doesn't exist."""
        try:
            return getattr(self._glue, method)(**self._catalog, **given)
        except ClientError as error:
            code, text = str(error.response["Error"].get("Code")), str(error.response["Error"].get("Message", ""))
            if code == _MISSING:
                return None
            if code in _CONFLICTS:
                raise _ConflictError(f"Glue says {code}.") from None
            raise _to_lakegate_error(method, code, text) from None
        except ParamValidationError as error:
            raise DownstreamError(f"Glue rejected this: {error}.") from None
        except BotoCoreError as error:
            raise DownstreamUnavailableError(f"Can't reach AWS: {error}.") from None


class _ConflictError(LakegateError):
    """Somebody else changed the table first."""


def _to_lakegate_error(method: str, code: str, text: str) -> LakegateError:
    action = f"glue:{''.join(word.title() for word in method.split('_'))}"
    message = f"Glue answers {action} with {code}: {text.rstrip('.')}."
    if code in _REFUSED:
        return DownstreamError(message, hint=_PERMISSIONS_HINT if code == "AccessDeniedException" else None)
    return DownstreamUnavailableError(message)


def _parameters(found: Mapping[str, Any]) -> Mapping[str, str]:
    parameters: Mapping[str, str] = found.get("Parameters") or {}
    return parameters


def _is_as_left(found: Mapping[str, Any], table: str) -> bool:
    """Return whether a table in Glue is still as lakegate left it."""
    parameters = _parameters(found)
    where = parameters.get("metadata_location")
    return where is not None and parameters.get(METADATA) == where and parameters.get(TABLE) == table


def _table_input(
    found: Mapping[str, Any] | None, name: str, table: ChangedTable, location: str, commit: str
) -> dict[str, Any]:
    """Return the table as Iceberg's own catalogs write it, keeping what others added to it."""
    kept = {key: value for key, value in (found or {}).items() if key in _INPUT_FIELDS and value not in (None, "")}
    before = None if found is None else _parameters(found).get("metadata_location")
    parameters = {
        **kept.get("Parameters", {}),
        "table_type": "ICEBERG",
        "metadata_location": location,
        TABLE: table.table,
        METADATA: location,
        COMMIT: commit,
    }
    if before is not None and before != location:
        parameters["previous_metadata_location"] = before
    storage = dict(kept.get("StorageDescriptor", {}))
    if table.table_schema is not None:
        storage["Columns"] = [
            {"Name": column.name.lower(), "Type": glue_type(column.type)} for column in table.table_schema.columns
        ]
    if table.location is not None:
        storage["Location"] = table.location
    return {**kept, "Name": name, "TableType": "EXTERNAL_TABLE", "Parameters": parameters, "StorageDescriptor": storage}


def policy(settings: GlueDownstream) -> dict[str, Any]:
    """Return the IAM policy of the role that notifies Glue."""
    account, region = settings.catalog_id or "*", settings.region or "*"
    database = settings.database or "*"
    resources = ("catalog", f"database/{database}", f"table/{database}/*")
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": list(ACTIONS),
                "Resource": [f"arn:aws:glue:{region}:{account}:{one}" for one in resources],
            }
        ],
    }


def make(name: str, settings: GlueDownstream, context: DownstreamContext) -> GlueTarget:
    """Return the Data Catalog that a section of the settings describes. Uses AWS's default credentials chain."""
    del context
    config = Config(
        connect_timeout=min(settings.timeout_s, 10),
        read_timeout=settings.timeout_s,
        retries={"mode": "standard", "max_attempts": 2},
    )
    try:
        client = boto3.Session().client(
            "glue", region_name=settings.region, endpoint_url=settings.endpoint, config=config
        )
    except (BotoCoreError, ValueError) as error:
        raise DownstreamUnavailableError(
            f"Downstream '{name}' can't be opened here: {error}.",
            hint="Provide credentials and a region in the usual ways: a role, AWS_PROFILE, AWS_REGION.",
        ) from None
    return GlueTarget(client, settings)


def glue_type(text: str) -> str:
    """Return an Iceberg type as Glue writes it.

    Example:
        >>> glue_type("long"), glue_type("decimal(10, 2)"), glue_type("fixed[16]")
        ('bigint', 'decimal(10,2)', 'binary')
        >>> glue_type("struct<id: long, tags: list<string>, `a: b`: map<string, timestamptz>>")
        'struct<id:bigint,tags:array<string>,a_ b:map<string,timestamp>>'
    """
    kinds = [(_UNUSUAL.sub("_", name).lower(), glue_type(kind)) for name, kind in type_parts(text)]
    if text.startswith("struct<"):
        return f"struct<{','.join(f'{name}:{kind}' for name, kind in kinds)}>"
    if kinds:
        return f"{'array' if text.startswith('list<') else 'map'}<{','.join(kind for _, kind in kinds)}>"
    if text.startswith("decimal("):
        return text.replace(" ", "")
    return "binary" if text.startswith("fixed") else _TYPES.get(text, _UNKNOWN_TYPE)
