"""The sections of the settings, except those about who hears of runs."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from lakegate.config.types import (
    JSON,
    Count,
    Duration,
    Endpoint,
    FormatVersion,
    Interval,
    Memory,
    Number,
    Reference,
    Section,
    WebUrl,
)
from lakegate.model.batch import DELIMITERS, CsvOptions, is_csv_character, is_zone
from lakegate.model.checks import Tolerance
from lakegate.model.identifiers import validate_ref_name
from lakegate.model.quarantine import parse_limit
from lakegate.model.request import ModeName, OnBusy, OnChanged, OnFailure, SchemaMode, WriteMode
from lakegate.model.secrets import FORMS, is_reference

_JOURNAL_URL = re.compile(r"(?:sqlite|postgresql(?:\+pg8000)?)://")
_SECRET_PROPERTY = re.compile(r"token$|credential$|password|secret", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"^[^:/]+://[^@/]*:[^@]*@|[?&](?:password|passfile)=", re.IGNORECASE)


class CatalogSettings(Section):
    """The catalog. By default, the local stack's Nessie."""

    type: str = "nessie"
    """``nessie``; ``sql`` for the local stack without Nessie; ``iceberg`` for any catalog that PyIceberg knows.

    Or one that a package registers under ``lakegate.catalogs``.
    """
    name: str | None = None
    """With ``iceberg``: the catalog's name in ``.pyiceberg.yaml``, or in the rows of a SQL catalog."""
    properties: Annotated[dict[str, str], JSON] = Field(default_factory=dict)
    """With ``iceberg``: PyIceberg's properties of the catalog, such as ``type`` and ``uri``; secrets by reference."""
    uri: str | None = None
    """Nessie's API v2, such as ``https://nessie.example.com/api/v2``. Default: the local stack's."""
    warehouse: str | None = None
    """Root of the tables' files, a URI; required with ``catalog.uri``.

    Default: the property ``warehouse`` if that's a URI, else ``.lakegate/warehouse``.
    """
    token: str | None = None
    """Bearer token, by reference."""
    oauth2_token_endpoint: str | None = None
    """URL that issues access tokens for OAuth 2 client credentials, instead of ``catalog.token``."""
    oauth2_client_id: str | None = None
    """The client's id; required with the endpoint."""
    oauth2_client_secret: str | None = None
    """The client's secret, by reference; required with the endpoint."""
    oauth2_scope: str | None = None
    """Scopes to request, separated by spaces. Default: the server's."""
    timeout_s: Number = Field(default=30.0, gt=0)
    """Seconds to wait for one response."""

    @field_validator("properties")
    @classmethod
    def _refuse_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for key, given in value.items():
            is_secret = _SECRET_PROPERTY.search(key) or _PASSWORD_IN_URL.search(given)
            if is_secret and not is_reference(given):
                raise ValueError(f"'{key}' has a secret: put it in a variable or a file, and write {FORMS}")
        return value

    @model_validator(mode="after")
    def _check_uri(self) -> CatalogSettings:
        if self.is_target and self.uri is not None:
            raise ValueError(f"'uri' is Nessie's address: with type = \"{self.type}\", set 'properties'")
        return self

    @property
    def root(self) -> str | None:
        """Root of the tables' files, if the settings say so. PyIceberg's ``warehouse`` may be a name instead."""
        given = self.properties.get("warehouse", "")
        if self.warehouse is not None or not (given.startswith("/") or "://" in given):
            return self.warehouse
        return given if "://" in given else f"file://{given}"

    @property
    def is_target(self) -> bool:
        """Whether branches are in the journal, because the catalog has none."""
        return self.type in ("iceberg", "sql")

    @property
    def is_local(self) -> bool:
        """Whether the catalog is the local stack's."""
        return self.type == "sql" or (self.uri is None and not self.is_target)

    @property
    def needs_nessie(self) -> bool:
        """Whether the local stack has a Nessie."""
        return self.is_local and not self.is_target

    @property
    def place(self) -> str | None:
        """Where it is, without a secret; ``None`` if it's the local stack's."""
        return None if self.is_local else self.uri or self.name or self.properties.get("uri") or self.type


class EngineSettings(Section):
    """The Spark server. Without ``url``, the local stack's."""

    url: str | None = None
    """Spark Connect address, such as ``sc://host:15002``. Default: the local stack's."""
    token: str | None = None
    """Bearer token, by reference."""
    tls: bool | None = None
    """Whether to use TLS. lakegate never sends a token to another machine without it.

    Default: only if there's a token and Spark is on another machine.
    """
    gate: WebUrl | None = None
    """Address of ``lakegate serve`` at which Spark finds the branches of a catalog that has none (``iceberg``).

    Only for a Spark on another machine: for one on this machine, lakegate serves it itself.
    """
    ca_file: Path | None = None
    """CA certificates (PEM) to verify Spark's with. Default: ``SSL_CERT_FILE``, else the usual ones."""


class JournalSettings(Section):
    """Where the journal is. Without ``url``: ``.lakegate/journal.db``."""

    url: str | None = None
    """Database: ``postgresql://user@host:5432/db``, without password, or ``sqlite:///file.db``.

    Default: ``.lakegate/journal.db``.
    """
    password: str | None = None
    """The database's password, by reference."""
    tls: bool | None = None
    """Whether to use TLS with Postgres and check its certificate. Default: TLS if the server offers it, unchecked."""
    ca_file: Path | None = None
    """CA certificates (PEM) to verify Postgres's with, instead of the usual ones."""
    max_connections: Count = Field(default=30, ge=2)
    """Maximum number of Postgres connections per process."""
    lease_s: Number = Field(default=60.0, gt=0)
    """Seconds without renewal after which a run's lease can be taken over."""
    park_s: Number = Field(default=3600.0, gt=0)
    """Seconds that a suspended run is left alone before it's finished or undone."""
    keep_detail: Duration | None = None
    """How long to keep steps, reports and alerts of runs that have ended, such as ``90d``. Default: forever.

    ``lakegate admin gc`` deletes older ones. What runs did stays.
    """

    @field_validator("url")
    @classmethod
    def _refuse_password(cls, value: str | None) -> str | None:
        if value is not None and _PASSWORD_IN_URL.search(value):
            raise ValueError('must not contain a password; set journal.password = "env:NAME_OF_THE_VARIABLE"')
        if value is not None and not _JOURNAL_URL.match(value):
            raise ValueError("must be postgresql://user@host:5432/database or sqlite:///journal.db")
        return value


class LocalSettings(Section):
    """The embedded stack. Memory is the JVM's maximum heap, such as ``512m`` or ``4g``."""

    nessie_memory: Memory = "512m"
    """Nessie's maximum heap: a number and ``m`` or ``g``."""
    spark_memory: Memory | None = None
    """Spark's maximum heap. Default: a quarter of the machine's memory, between 1g and 8g."""
    start_timeout_s: Number = Field(default=120.0, gt=0)
    """Seconds to wait for a server to respond after its start."""
    idle_stop: Duration = "1h"
    """Stop the servers when nothing has used them for this long. The next command restarts them. ``0s``: never."""


class MaintenancePolicy(Section):
    """What ``lakegate admin maintain`` does to a table, and when."""

    enabled: bool = True
    """Whether to maintain tables at all."""
    small_files: Count = Field(default=20, ge=2)
    """Compact when there are this many small files, counted in partitions with at least five."""
    small_file: Memory = "64m"
    """Files smaller than this are small: a number and ``m`` or ``g``."""
    average_file: Memory | None = None
    """Also compact when the average file is smaller than this. Default: whatever the average is."""
    delete_files: Count = Field(default=10, ge=1)
    """Also compact when a table has this many delete files."""
    expire: Duration = "30d"
    """Age at which snapshots expire. ``0s`` for never."""
    keep: Count = Field(default=10, ge=1)
    """Number of newest snapshots to keep, whatever their age."""


class MaintenanceSettings(MaintenancePolicy):
    """Defaults of ``lakegate admin maintain``, for tables that don't say otherwise."""

    gc: bool = True
    """Whether to run ``lakegate admin gc`` afterwards."""
    within: Interval | None = None
    """Start no new work in a round after this long. Default: until everything is done."""
    every: Interval | None = None
    """How often ``lakegate watch`` maintains the tables. Default: never."""


with warnings.catch_warnings():  # "schema" is also the name of a method of Pydantic 1
    warnings.filterwarnings("ignore", message='Field name "schema"')

    class IngestSettings(Section):
        """Defaults of ``lakegate ingest``."""

        on_failure: OnFailure = "keep"
        """``keep`` or ``drop`` the branch of a rejected batch."""
        on_changed: OnChanged = "refuse"
        """What to do with a file that was published before with other content.

        ``refuse`` it, ``append`` its rows, or ``replace`` the old ones.
        """
        on_busy: OnBusy = "wait"
        """What to do with a file that another run is ingesting: ``wait`` for that run, or ``skip`` the file."""
        schema: SchemaMode = "strict"  # type: ignore[assignment]
        """What to do with a batch whose columns differ from the table's.

        ``strict`` refuses it. ``evolve`` adds new columns to the table, widens types where nothing is lost, and writes
        NULL where a column is missing. ``ignore_extra`` leaves out columns that the table lacks.
        """
        wait_s: Number = Field(default=600.0, gt=0)
        """Seconds to wait for another run with the same file."""
        format_version: FormatVersion = 2
        """Iceberg format version of new tables: ``2``, which every engine reads, or ``3``."""
        keep_rejected: Duration = "7d"
        """How long to keep the branch of a rejected run before ``lakegate admin gc`` drops it.

        Beside a catalog without branches, ``2d`` by default: its clean-up may delete files that it doesn't know.
        """
        branch_prefix: Annotated[str, AfterValidator(validate_ref_name)] = "wap"
        """Prefix of the names of the branches that runs write to."""

    class TableOptions(Section):
        """Options of a table that both its section in the settings and its contract can set."""

        partition_by: tuple[str, ...] = ()
        """Transforms for a new table.

        ``c``, ``years(c)``, ``months(c)``, ``days(c)``, ``hours(c)``, ``bucket(16, c)``.
        """
        format_version: FormatVersion | None = None
        """As ``ingest.format_version``, for this table when it's created. Default: ``ingest.format_version``."""
        schema: SchemaMode | None = None  # type: ignore[assignment]
        """As ``ingest.schema``, for this table. Default: ``ingest.schema``."""
        write_mode: ModeName = "append"
        """What a batch does to existing rows.

        ``append`` adds its rows; ``overwrite`` replaces all rows of the table with them, ``replace-partitions`` those
        in the same partitions; ``upsert`` updates the rows with the same ``key`` and inserts the others.
        """
        key: tuple[str, ...] = ()
        """Columns that identify a row, for ``upsert``."""
        delete_when: str | None = None
        """For ``upsert``: predicate on the batch's rows, such as ``op = 'D'``. Where it's true, that key is deleted."""
        csv: CsvOptions = CsvOptions()
        """How to read CSV."""
        timezone: str | None = None
        """The zone that times without one are in, such as ``Europe/Berlin``, for columns of times with a zone."""
        maintenance: MaintenancePolicy | None = None
        """What ``lakegate admin maintain`` does to this table, where it differs from the section ``maintenance``."""
        quarantine_limit: Tolerance | None = None
        """How many rows of a batch may be quarantined, such as ``100`` or ``"5%"``. With more, the batch is rejected.

        Default: any number.
        """

        @field_validator("timezone")
        @classmethod
        def _check_timezone(cls, value: str | None) -> str | None:
            if value is not None and not is_zone(value):
                raise ValueError(f"'{value}' isn't a time zone; an example is Europe/Berlin")
            return value

        @field_validator("csv")
        @classmethod
        def _check_csv(cls, value: CsvOptions) -> CsvOptions:
            for name, text in (("delimiter", DELIMITERS.get(value.delimiter, value.delimiter)), ("quote", value.quote)):
                if not is_csv_character(text) and (text or name == "delimiter"):
                    raise ValueError(f"'{name}' must be one ASCII character, not {text!r}")
            return value

        @property
        def mode(self) -> WriteMode:
            """What a batch does to existing rows."""
            return WriteMode(name=self.write_mode, key=self.key, delete_when=self.delete_when)

        @model_validator(mode="after")
        def _check_mode(self) -> Self:
            if self.write_mode != "upsert" and (self.key or self.delete_when is not None):
                raise ValueError("'key' and 'delete_when' need write_mode = \"upsert\"")
            if self.write_mode == "upsert" and not self.key:
                raise ValueError("write_mode \"upsert\" needs 'key', the columns that identify a row")
            return self

        @field_validator("quarantine_limit", mode="before")
        @classmethod
        def _validate_limit(cls, value: object) -> Tolerance | None:
            return None if value is None else parse_limit(value)


class PublishSettings(Section):
    """How long to keep trying while others publish to the same tables."""

    attempts: Count = Field(default=40, ge=1)
    """How often to try the commit, if other commits to its tables keep getting in first."""
    timeout_s: Number = Field(default=120.0, gt=0)
    """Seconds after which to stop trying. The branch is kept, and ``lakegate publish`` tries again."""


class GcSettings(Section):
    """What ``lakegate admin gc`` may delete."""

    keep: Duration = "3d"
    """How long to keep a file after the last commit that needed it, and how far back ``revert`` and ``restore`` go."""


class WatchSettings(Section):
    """Defaults of ``lakegate watch``."""

    every: Interval = "5m"
    """How often to scan everything; local folders also report new files through events."""
    settle_s: Number = Field(default=5.0, ge=0)
    """Seconds without changes before a file is ingested."""
    max_files: Count = Field(default=100, ge=1)
    """Maximum number of files in one run."""
    max_bytes: Count = Field(default=1 << 30, ge=1)
    """Maximum number of bytes in one run, unless a single file is larger."""
    max_tries: Count = Field(default=3, ge=1)
    """How often to try a file before giving it up until it changes."""
    routes: Annotated[tuple[str, ...] | None, JSON] = None
    """Which table each file goes to: ``["landing/{namespace}/{table}/*.parquet"]``. As a variable, JSON."""


class ServeSettings(Section):
    """Defaults of ``lakegate serve``."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but this machine's own needs ``serve.token``."""
    port: Count = Field(default=8181, ge=0, le=65_535)
    """Port to listen on; 0 for any free one."""
    token: Reference | None = None
    """Bearer token that clients must send, by reference. Default: none, for clients on this machine only."""
    tls_certificate: Path | None = None
    """The server's certificate chain (PEM), for TLS. Default: plain HTTP."""
    tls_key: Path | None = None
    """The certificate's private key (PEM)."""

    @model_validator(mode="after")
    def _check_tls(self) -> ServeSettings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("'tls_certificate' and 'tls_key' must be set together")
        return self


class LogSettings(Section):
    """How commands log to standard error."""

    format: Literal["text", "json"] = "text"
    """``text`` for people, or ``json`` with one object per line."""


class S3Settings(Section):
    """Where S3 is. Credentials come from AWS's own configuration, never from here."""

    endpoint: Endpoint | None = None
    """An S3-compatible store, such as ``https://s3.example.com``.

    Default: ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``, the profile's, or AWS.
    """
    region: str | None = None
    """Region of the buckets. Default: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile's."""
    path_style: bool = False
    """Whether to put the bucket in the path, not in the host name."""
    bucket_owner: str | None = Field(default=None, pattern=r"^\d{12}$")
    """AWS account that all buckets must belong to; S3 refuses requests to other accounts' buckets. Default: any."""
    writer_role: str | None = Field(default=None, pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/\S+$")
    """Role whose keys the gate lends to writers that can't have their requests signed, such as DuckDB and Trino.

    They may read the warehouse, and write new files into the folders of their branch. Default: none.
    """


class FunctionSettings(Section):
    """The AWS Lambda function that ingests the files that events announce."""

    margin_s: Number = Field(default=15.0, gt=0)
    """How many seconds before its timeout the function stops and leaves its work to the next call.

    Keep it above ``notify.timeout_s``, so that there's time for alerts about a run that ends at the last moment.
    """
    retry_s: Count = Field(default=60, ge=0, le=43_200)
    """Seconds until SQS delivers the message of a failed file again."""
    longest_retry_s: Count = Field(default=14_400, ge=0, le=43_200)
    """Maximum seconds until SQS delivers a message again while Spark, Nessie or the journal is unavailable.

    The delay starts at 30, grows by half with each delivery up to an hour, and by a tenth from the 30th on.
    """


class GcsSettings(Section):
    """Where Google Cloud Storage is. Credentials come from Google's own configuration, never from here."""

    endpoint: Endpoint | None = None
    """Another store with Google's API. Without TLS, no credentials are sent to it.

    Default: ``STORAGE_EMULATOR_HOST``, or Google.
    """


class AdlsSettings(Section):
    """Where Azure Data Lake Storage is. Credentials come from Azure's own configuration, never from here."""

    endpoint: Endpoint | None = None
    """Another store with Azure's Blob API, such as ``http://127.0.0.1:10000``; the account's name is appended.

    Default: the host in the URI.
    """


class StorageSettings(Section):
    """Where the object stores are."""

    s3: S3Settings = S3Settings()
    gcs: GcsSettings = GcsSettings()
    adls: AdlsSettings = AdlsSettings()


class TableSettings(TableOptions):
    """Settings of one table: ``[tables."nyc.trips"]``, a short form of its contract."""

    checks: tuple[str, ...] = ()
    """Checks for every ingest."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Columns to rename: ``{ "name in files" = "name in table" }``."""

    @field_validator("columns")
    @classmethod
    def _validate_columns(cls, value: dict[str, str]) -> dict[str, str]:
        names: dict[str, str] = {}
        for old, new in value.items():
            if not old or not new:
                raise ValueError("a column name is empty")
            if names.setdefault(old.lower(), new) != new:
                raise ValueError(f"'{old}' can't be both '{names[old.lower()]}' and '{new}'; case doesn't matter")
        return value


class AuditSettings(Section):
    """All audits, however they start."""

    mask: Annotated[tuple[str, ...], JSON] = ()
    """Columns whose values never leave the engine in an audit: name patterns such as ``["email", "*_name"]``.
    The dashboard, reports and alerts hide them, like those of ``ui.masked``."""
    timeout_s: Number | None = Field(default=None, gt=0)
    """Seconds after which an audit is stopped. The run fails then, and its branch is kept. Default: no limit."""


class UiSettings(Section):
    """The dashboard, ``lakegate ui``. Other machines need a login with OpenID Connect."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Count = Field(default=8484, ge=1, le=65_535)
    """Port to listen on."""
    url: WebUrl | None = None
    """Address at which people reach it, such as ``https://lake.example.com``; required for OpenID Connect."""
    examples: Count = Field(default=10, ge=0)
    """Maximum number of failing rows to show for each check. With 0, the dashboard shows none."""
    masked: Annotated[tuple[str, ...], JSON] = ()
    """Columns whose values aren't shown: name patterns such as ``["email", "*_name"]``."""
    users: Annotated[tuple[str, ...], JSON] = ("*",)
    """Who may see it: patterns of names or e-mail addresses, such as ``*@example.com``. Default: all who log in."""
    actors: Annotated[tuple[str, ...], JSON] = ("*",)
    """Which of them may publish and discard with ``--allow-actions``. Default: all."""
    oidc_metadata_url: WebUrl | None = None
    """The provider's ``…/.well-known/openid-configuration``."""
    oidc_client_id: str | None = None
    """Id of the client at the provider; its redirect address is ``ui.url`` followed by ``/oauth2callback``."""
    oidc_client_secret: Reference | None = None
    """The client's secret, by reference."""
    cookie_secret: Reference | None = None
    """Key that signs the login cookie, by reference: at least 32 random characters."""
