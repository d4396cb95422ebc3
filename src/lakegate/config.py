"""Settings: ``lakegate.toml`` < ``LAKEGATE_*`` variables < flags. With none at all, everything works locally."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args
from urllib.parse import quote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from lakegate.errors import ConfigurationError, InputError, LakegateError
from lakegate.model.batch import DELIMITERS, CsvOptions, is_csv_character
from lakegate.model.checks import Tolerance
from lakegate.model.downstream import DownstreamKind, Event, Level
from lakegate.model.identifiers import TableIdentifier, validate_ref_name
from lakegate.model.quarantine import parse_limit
from lakegate.model.request import ModeName, OnBusy, OnChanged, OnFailure, SchemaMode, WriteMode
from lakegate.model.secrets import FORMS, SecretReference, is_loopback
from lakegate.model.words import nearest, parse_duration

FILE_NAME = "lakegate.toml"
HOME_NAME = ".lakegate"
ENV_PREFIX = "LAKEGATE_"
_REPORT_FIELDS = re.compile(r"\{(run_id|table|branch)\}")
_LONGEST_SNOWFLAKE_NAME = 255
_Parsed = TypeVar("_Parsed")
_PATHS = (("engine", "ca_file"), ("journal", "ca_file"), ("serve", "tls_certificate"), ("serve", "tls_key"))
"""Settings that are paths, except those that are used relative to the project's folder anyway."""
_FOR_EVERYONE = stat.S_ISVTX | stat.S_IWOTH
_JOURNAL_URL = re.compile(r"(?:sqlite|postgresql(?:\+pg8000)?)://")
_PASSWORD_IN_URL = re.compile(r"^[^:/]+://[^@/]*:[^@]*@|[?&](?:password|passfile)=", re.IGNORECASE)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


ChannelType = Literal["slack", "apprise"]


def _read_json(value: Any) -> Any:
    """Return a setting's value. The text of an environment variable is parsed as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("mustn't be text in lakegate.toml, and must be JSON in an environment variable") from None


def _parsed(parse: Callable[[str], _Parsed], value: str) -> _Parsed:
    """Return what ``parse`` makes of a value; its errors become Pydantic's, which name the setting."""
    try:
        return parse(value)
    except LakegateError as error:
        raise ValueError(" ".join(filter(None, (error.message, error.hint))).rstrip(".")) from None


def _refuse_boolean(value: Any) -> Any:
    if value is True or value is False:  # Pydantic would take them for 1 and 0
        raise ValueError("must be a number")
    return value


def _duration(value: str) -> str:
    _parsed(parse_duration, value)
    return value


def _interval(value: str) -> str:
    if not _parsed(parse_duration, value):
        raise ValueError("must be greater than zero")
    return value


def _matching(pattern: str, problem: str) -> AfterValidator:
    """Return a validator that refuses text that doesn't match ``pattern``."""
    compiled = re.compile(pattern)

    def validate(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(problem)
        return value

    return AfterValidator(validate)


def _reference(value: str) -> str:
    try:
        SecretReference.parse(value)
    except ValueError:
        raise ValueError(f"is a secret: put it in a variable or a file, and write {FORMS}") from None
    return value


def _table_name(value: str) -> str:
    _parsed(TableIdentifier.parse, value)
    return value


def _snowflake_name(value: str) -> str:
    if not 0 < len(value) <= _LONGEST_SNOWFLAKE_NAME or not value.isprintable():
        raise ValueError(f"must be a name of 1 to {_LONGEST_SNOWFLAKE_NAME} printable characters")
    return value


_JSON = BeforeValidator(_read_json)
Number = Annotated[float, BeforeValidator(_refuse_boolean)]
Count = Annotated[int, BeforeValidator(_refuse_boolean)]
FormatVersion = Annotated[Literal[2, 3], _JSON]
Duration = Annotated[str, AfterValidator(_duration)]
Interval = Annotated[str, AfterValidator(_interval)]
Memory = Annotated[
    str, _matching(r"[1-9][0-9]*[mg]", "must be a number followed by 'm' or 'g', such as '512m' or '4g'")
]
Endpoint = Annotated[
    str,
    _matching(
        r"(?i)https?://[^/@\s?#]+/?",
        "must be a URL such as 'https://store.example.com', without user, password and path",
    ),
]
WebUrl = Annotated[
    str,
    _matching(
        r"https?://[^/@\s?#]+(?:/[^@\s?#]*)?",
        "must be a URL such as 'https://lake.example.com', without user and password",
    ),
]
ShortName = Annotated[
    str, _matching(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", "must be letters, digits, '-' and '_', 63 at most")
]
SnowflakeAccount = Annotated[
    str,
    _matching(
        r"(?i)(?!.*\.snowflakecomputing\.)[a-z0-9][a-z0-9_.-]{0,254}",
        "must be an account identifier such as 'myorg-myaccount', without '.snowflakecomputing.com'",
    ),
]
Reference = Annotated[str, AfterValidator(_reference)]
"""Where a secret is: ``env:NAME``, ``file:/path`` or ``aws-secret:name#json-key``."""
TableName = Annotated[str, AfterValidator(_table_name)]
SnowflakeName = Annotated[str, AfterValidator(_snowflake_name)]


class CatalogSettings(_Section):
    """The catalog. Without ``uri``, the local stack's."""

    type: str = "nessie"
    """The implementation: ``nessie``, or one that a package registers under ``lakegate.catalogs``."""
    uri: str | None = None
    """Nessie's API v2, such as ``https://nessie.example.com/api/v2``. Default: the local stack's."""
    warehouse: str | None = None
    """Root of the tables' files, a URI; required with ``catalog.uri``. Default: ``.lakegate/warehouse``."""
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


class EngineSettings(_Section):
    """The Spark server. Without ``url``, the local stack's."""

    url: str | None = None
    """Spark Connect address, such as ``sc://host:15002``. Default: the local stack's."""
    token: str | None = None
    """Bearer token, by reference."""
    tls: bool | None = None
    """Whether to use TLS. lakegate never sends a token to another machine without it.

    Default: only if there's a token and Spark is on another machine.
    """
    ca_file: Path | None = None
    """CA certificates (PEM) to verify Spark's with. Default: ``SSL_CERT_FILE``, else the usual ones."""


class JournalSettings(_Section):
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

    ``lakegate gc`` deletes older ones. What runs did stays.
    """

    @field_validator("url")
    @classmethod
    def _refuse_password(cls, value: str | None) -> str | None:
        if value is not None and _PASSWORD_IN_URL.search(value):
            raise ValueError('must not contain a password; set journal.password = "env:NAME_OF_THE_VARIABLE"')
        if value is not None and not _JOURNAL_URL.match(value):
            raise ValueError("must be postgresql://user@host:5432/database or sqlite:///journal.db")
        return value


class LocalSettings(_Section):
    """The embedded stack. Memory is the JVM's maximum heap, such as ``512m`` or ``4g``."""

    nessie_memory: Memory = "512m"
    """Nessie's maximum heap: a number and ``m`` or ``g``."""
    spark_memory: Memory | None = None
    """Spark's maximum heap. Default: a quarter of the machine's memory, between 1g and 8g."""
    start_timeout_s: Number = Field(default=120.0, gt=0)
    """Seconds to wait for a server to respond after its start."""
    idle_stop: Duration = "1h"
    """Stop the servers when nothing has used them for this long. The next command restarts them. ``0s``: never."""


class MaintenancePolicy(_Section):
    """What ``lakegate maintain`` does to a table, and when."""

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
    """Defaults of ``lakegate maintain``, for tables that don't say otherwise."""

    gc: bool = True
    """Whether to run ``lakegate gc`` afterwards."""
    within: Interval | None = None
    """Start no new work in a round after this long. Default: until everything is done."""
    every: Interval | None = None
    """How often ``lakegate watch`` maintains the tables. Default: never."""


with warnings.catch_warnings():  # "schema" is also the name of a method of Pydantic 1
    warnings.filterwarnings("ignore", message='Field name "schema"')

    class IngestSettings(_Section):
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
        """How long to keep the branch of a rejected run before ``lakegate gc`` drops it."""
        branch_prefix: Annotated[str, AfterValidator(validate_ref_name)] = "wap"
        """Prefix of the names of the branches that runs write to."""

    class TableOptions(_Section):
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
        maintenance: MaintenancePolicy | None = None
        """What ``lakegate maintain`` does to this table, where it differs from the section ``maintenance``."""
        quarantine_limit: Tolerance | None = None
        """How many rows of a batch may be quarantined, such as ``100`` or ``"5%"``. With more, the batch is rejected.

        Default: any number.
        """

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


class PublishSettings(_Section):
    """How long to keep trying while others publish to the same tables."""

    attempts: Count = Field(default=40, ge=1)
    """How often to try the commit, if other commits to its tables keep getting in first."""
    timeout_s: Number = Field(default=120.0, gt=0)
    """Seconds after which to stop trying. The branch is kept, and ``lakegate publish`` tries again."""


class GcSettings(_Section):
    """What ``lakegate gc`` may delete."""

    keep: Duration = "3d"
    """How long to keep a file after the last commit that needed it, and how far back ``revert`` and ``restore`` go."""


class WatchSettings(_Section):
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
    routes: Annotated[tuple[str, ...] | None, _JSON] = None
    """Which table each file goes to: ``["landing/{namespace}/{table}/*.parquet"]``. As a variable, JSON."""


class ServeSettings(_Section):
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


class LogSettings(_Section):
    """How commands log to standard error."""

    format: Literal["text", "json"] = "text"
    """``text`` for people, or ``json`` with one object per line."""


class S3Settings(_Section):
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


class FunctionSettings(_Section):
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


class GcsSettings(_Section):
    """Where Google Cloud Storage is. Credentials come from Google's own configuration, never from here."""

    endpoint: Endpoint | None = None
    """Another store with Google's API. Without TLS, no credentials are sent to it.

    Default: ``STORAGE_EMULATOR_HOST``, or Google.
    """


class AdlsSettings(_Section):
    """Where Azure Data Lake Storage is. Credentials come from Azure's own configuration, never from here."""

    endpoint: Endpoint | None = None
    """Another store with Azure's Blob API, such as ``http://127.0.0.1:10000``; the account's name is appended.

    Default: the host in the URI.
    """


class StorageSettings(_Section):
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


class ChannelSettings(_Section):
    """A channel for alerts, and which alerts it gets."""

    name: ShortName
    """Its name in alerts and ``lakegate runs``."""
    type: ChannelType
    """``slack`` or ``apprise``."""
    url: Reference | None = None
    """URL to send alerts to, by reference."""
    token: Reference | None = None
    """Token of a Slack bot, by reference, instead of ``url``."""
    channel: str | None = None
    """The Slack channel that the bot posts to: its id, or ``#name``."""
    api_url: WebUrl | None = None
    """Another server with Slack's Web API. Default: Slack's."""
    events: tuple[Event, ...] = ("rejected", "failed", "quarantined", "given_up", "recovered", "late", "undelivered")
    """Events it gets: ``rejected``, ``failed``, ``quarantined``, ``given_up``, ``recovered``, ``published``, ``late``,
    ``undelivered``.

    Default: all but ``published``.
    """
    tables: tuple[str, ...] = ("*",)
    """Patterns of the tables it gets alerts about."""
    severity: Level = "info"
    """The lowest severity it gets: ``info``, ``warn`` or ``error``."""

    @model_validator(mode="after")
    def _check_kind(self) -> ChannelSettings:
        if self.type == "slack":
            if (self.url is None) == (self.token is None):
                raise ValueError(
                    "a channel of type 'slack' needs either 'url' (an incoming webhook) or 'token' (a bot)"
                )
            if (self.token is None) != (self.channel is None):
                raise ValueError("'token' and 'channel' must be set together")
        elif self.url is None:
            raise ValueError(f"a channel of type '{self.type}' needs 'url'")
        for name in ("token", "channel", "api_url"):
            if getattr(self, name) is not None and self.type != "slack":
                raise ValueError(f"'{name}' is for channels of type 'slack'")
        return self

    def concerns(self, tables: tuple[str, ...]) -> bool:
        """Return whether one of ``tables`` matches the channel's patterns.

        Example:
            >>> nyc = ChannelSettings(name="ops", type="slack", url="env:HOOK", tables=("nyc.*",))
            >>> nyc.concerns(("lab.runs", "nyc.trips")), nyc.concerns(("lab.runs",))
            (True, False)
        """
        # A transaction that failed before it wrote has no table, and is still worth an alert.
        return not tables or any(fnmatchcase(table, pattern) for table in tables for pattern in self.tables)


class NotifySettings(_Section):
    """Alerts about runs that ended, files that were given up, and tables that are late."""

    examples: bool = False
    """Whether alerts may contain rows of data."""
    report_url: str | None = None
    """URL of a run's report; ``{run_id}``, ``{table}`` and ``{branch}`` are filled in."""
    timeout_s: Number = Field(default=10.0, gt=0, le=300)
    """Seconds that all alerts about one run may take, including retries and fetching secrets."""
    group: Duration = "1h"
    """Send one message per kind of alert and table in this time. ``0s`` sends each."""
    late: Annotated[dict[TableName, Interval], _JSON] = Field(default_factory=dict)
    """How often each table should be published to: ``"nyc.trips" = "1d"``. As a variable, JSON."""
    channels: Annotated[tuple[ChannelSettings, ...], _JSON] = ()

    @field_validator("report_url")
    @classmethod
    def _validate_report_url(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s<>|\"{}@]+", _REPORT_FIELDS.sub("x", value)):
            raise ValueError("must be a URL such as 'https://lake.example.com/runs/{run_id}'")
        return value

    @field_validator("channels")
    @classmethod
    def _validate_channels(cls, value: tuple[ChannelSettings, ...]) -> tuple[ChannelSettings, ...]:
        names = [channel.name for channel in value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two channels are called '{twice}'")
        return value


class DownstreamSettings(_Section):
    """Settings that all downstream systems have. A class for each type follows."""

    type: str
    """Its type."""
    events: tuple[DownstreamKind, ...] = ("published", "reverted", "restored", "current")
    """Events it gets: ``published``, ``reverted``, ``restored``, ``current``, ``rejected``, ``failed``.

    Default: all but ``rejected`` and ``failed``.
    """
    tables: Annotated[tuple[str, ...], _JSON] = ("*",)
    """Patterns of the tables it gets events about."""
    timeout_s: Number = Field(default=10.0, gt=0, le=86_400)
    """Seconds to wait for a connection, and for the answer to each request.

    The publishing process waits for the whole delivery: one request of a webhook, two of OpenLineage.
    """
    give_up: Interval = "1d"
    """How long to retry a delivery before giving it up and sending an alert."""


class CommandDownstream(DownstreamSettings):
    """A command to run for each event: ``type = "command"``."""

    type: Literal["command"]
    """``command``."""
    argv: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """The program and its arguments, such as ``["dbt", "run"]``. No shell is involved."""
    cwd: Path | None = None
    """Folder to run it in. Default: the project's."""
    timeout_s: Number = Field(default=600.0, gt=0, le=86_400)
    """Seconds that one delivery may take. The publishing process waits no longer than that."""


class WebhookDownstream(DownstreamSettings):
    """A signed HTTP POST of each event as JSON: ``type = "webhook"``."""

    type: Literal["webhook"]
    """``webhook``."""
    url: Reference
    """URL to send events to, by reference."""
    secret: Reference | None = None
    """Key that signs them, by reference."""


class GlueDownstream(DownstreamSettings):
    """Tables in the AWS Glue Data Catalog, for Athena, Redshift and EMR: ``type = "glue"``."""

    type: Literal["glue"]
    """``glue``."""
    database: str | None = Field(default=None, pattern=r"^[a-z0-9_]{1,255}$")
    """Database for all tables. Default: one for each namespace, named like it, with ``_`` for each dot."""
    catalog_id: str | None = Field(default=None, pattern=r"^\d{12}$")
    """AWS account of the Data Catalog. Default: the credentials'."""
    region: str | None = None
    """Region of the Data Catalog. Default: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile's."""
    endpoint: Endpoint | None = None
    """Another server with Glue's API. Default: ``AWS_ENDPOINT_URL_GLUE``, ``AWS_ENDPOINT_URL`` or AWS."""
    on_conflict: Literal["refuse", "overwrite"] = "refuse"
    """What to do with a table that others changed in Glue: ``refuse`` to touch it, or ``overwrite`` their change."""
    on_drop: Literal["drop", "keep"] = "drop"
    """What to do in Glue with a table that was dropped: ``drop`` it, too, or ``keep`` its last state."""
    timeout_s: Number = Field(default=30.0, gt=0, le=86_400)
    """Seconds to wait for the answer to each request, which is tried twice.

    The publishing process waits for the whole delivery: two requests for a table, more if others change it meanwhile.
    """


class SnowflakeDownstream(DownstreamSettings):
    """Iceberg tables in Snowflake that follow the lake's: ``type = "snowflake"``.

    Names are case-sensitive. Snowflake stores names that were created without quotes in upper case.
    """

    type: Literal["snowflake"]
    """``snowflake``."""
    account: SnowflakeAccount
    """Account identifier, such as ``myorg-myaccount``."""
    url: Endpoint | None = None
    """Another address than ``https://ACCOUNT.snowflakecomputing.com``, such as PrivateLink's."""
    user: SnowflakeName
    """The user that lakegate signs in as, preferably of type ``SERVICE``."""
    private_key: Reference | None = None
    """The user's private key (PEM), by reference."""
    private_key_passphrase: Reference | None = None
    """Passphrase of an encrypted private key, by reference."""
    token: Reference | None = None
    """OAuth access token, or programmatic access token, by reference, instead of ``private_key``."""
    token_type: Literal["oauth", "programmatic"] = "oauth"  # noqa: S105 - a kind, no token
    """What ``token`` is: ``oauth`` or ``programmatic``."""
    role: SnowflakeName
    """The role that lakegate uses; it owns the schemas and tables that lakegate creates."""
    warehouse: SnowflakeName
    """The virtual warehouse that creates tables; the smallest will do."""
    database: SnowflakeName
    """Database of the tables."""
    external_volume: SnowflakeName = "LAKEGATE"
    """External volume whose location is the lake's warehouse."""
    catalog_integration: SnowflakeName = "LAKEGATE"
    """Catalog integration with ``CATALOG_SOURCE = OBJECT_STORE``."""
    case: Literal["keep", "upper"] = "keep"
    """Case of schema and table names: ``keep`` it as in the lake, or use ``upper`` case, so that queries need no
    quotes."""
    timeout_s: Number = Field(default=120.0, gt=0, le=86_400)
    """Seconds to wait for the answer to each statement. The publishing process waits for three at most for a table."""

    @model_validator(mode="after")
    def _check_sign_in(self) -> SnowflakeDownstream:
        if (self.private_key is None) == (self.token is None):
            raise ValueError("needs either 'private_key' or 'token'")
        if self.private_key_passphrase is not None and self.private_key is None:
            raise ValueError("'private_key_passphrase' needs 'private_key'")
        if self.url is not None and self.url.startswith("http:") and not is_loopback(urlsplit(self.url).hostname or ""):
            raise ValueError("'url' must start with https://")
        return self


class OpenlineageDownstream(DownstreamSettings):
    """An OpenLineage event for each run, to a server or to a file.

    The section ``openlineage`` is the downstream system of that name. For more, use ``type = "openlineage"``.
    """

    type: Literal["openlineage"]
    """``openlineage``."""
    events: Annotated[tuple[DownstreamKind, ...], _JSON] = ("published", "reverted", "restored", "rejected", "failed")
    """Events it gets: ``published``, ``reverted``, ``restored``, ``rejected``, ``failed``. Default: all of them."""
    url: WebUrl | None = None
    """The server's address, such as ``https://marquez.example.com``, without user and password."""
    endpoint: str = "api/v1/lineage"
    """Path on that server to send events to."""
    api_key: Reference | None = None
    """The server's API key, by reference; sent as a bearer token."""
    file: Path | None = None
    """File to append events to, one JSON object a line, instead of ``url``. Relative to the project's folder."""
    namespace: str = "lakegate"
    """Namespace of the jobs."""

    @model_validator(mode="after")
    def _check_place(self) -> OpenlineageDownstream:
        if (self.url is None) == (self.file is None):
            raise ValueError("OpenLineage events need either 'url' or 'file'")
        if self.api_key is not None and self.url is None:
            raise ValueError("'api_key' needs 'url'")
        is_open = self.url is not None and self.url.startswith("http:")
        if self.api_key is not None and is_open and not is_loopback(urlsplit(self.url or "").hostname or ""):
            raise ValueError("'url' must start with https:// if there's an 'api_key'")
        return self


AnyDownstream = Annotated[
    CommandDownstream | WebhookDownstream | GlueDownstream | SnowflakeDownstream | OpenlineageDownstream,
    Field(discriminator="type"),
]
"""The settings of a downstream system. A new type is a class above, a member here and an entry in
:data:`lakegate.downstream.TYPES`."""


OPENLINEAGE = "openlineage"
"""Name of the downstream system that the section ``openlineage`` sets up."""


class AuditSettings(_Section):
    """All audits, however they start."""

    mask: Annotated[tuple[str, ...], _JSON] = ()
    """Columns whose values never leave the engine in an audit: name patterns such as ``["email", "*_name"]``.
    The dashboard, reports and alerts hide them, like those of ``ui.masked``."""
    timeout_s: Number | None = Field(default=None, gt=0)
    """Seconds after which an audit is stopped. The run fails then, and its branch is kept. Default: no limit."""


class UiSettings(_Section):
    """The dashboard, ``lakegate ui``. Other machines need a login with OpenID Connect."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Count = Field(default=8484, ge=1, le=65_535)
    """Port to listen on."""
    url: WebUrl | None = None
    """Address at which people reach it, such as ``https://lake.example.com``; required for OpenID Connect."""
    examples: Count = Field(default=10, ge=0)
    """Maximum number of failing rows to show for each check. With 0, the dashboard shows none."""
    masked: Annotated[tuple[str, ...], _JSON] = ()
    """Columns whose values aren't shown: name patterns such as ``["email", "*_name"]``."""
    users: Annotated[tuple[str, ...], _JSON] = ("*",)
    """Who may see it: patterns of names or e-mail addresses, such as ``*@example.com``. Default: all who log in."""
    actors: Annotated[tuple[str, ...], _JSON] = ("*",)
    """Which of them may publish and discard with ``--allow-actions``. Default: all."""
    oidc_metadata_url: WebUrl | None = None
    """The provider's ``…/.well-known/openid-configuration``."""
    oidc_client_id: str | None = None
    """Id of the client at the provider; its redirect address is ``ui.url`` followed by ``/oauth2callback``."""
    oidc_client_secret: Reference | None = None
    """The client's secret, by reference."""
    cookie_secret: Reference | None = None
    """Key that signs the login cookie, by reference: at least 32 random characters."""


class Settings(_Section):
    """All settings of one project."""

    catalog: CatalogSettings = CatalogSettings()
    engine: EngineSettings = EngineSettings()
    journal: JournalSettings = JournalSettings()
    local: LocalSettings = LocalSettings()
    ingest: IngestSettings = IngestSettings()
    publish: PublishSettings = PublishSettings()
    gc: GcSettings = GcSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    watch: WatchSettings = WatchSettings()
    serve: ServeSettings = ServeSettings()
    log: LogSettings = LogSettings()
    function: FunctionSettings = FunctionSettings()
    s3: S3Settings = S3Settings()
    gcs: GcsSettings = GcsSettings()
    adls: AdlsSettings = AdlsSettings()
    notify: NotifySettings = NotifySettings()
    downstream: dict[ShortName, Annotated[AnyDownstream, _JSON]] = Field(default_factory=dict)
    """Systems to notify of each publish: ``[downstream.NAME]``. ``LAKEGATE_DOWNSTREAM_NAME`` holds one as JSON."""
    openlineage: OpenlineageDownstream | None = None
    audit: AuditSettings = AuditSettings()
    ui: UiSettings = UiSettings()
    tables: dict[TableName, TableSettings] = Field(default_factory=dict)

    @field_validator("openlineage", mode="before")
    @classmethod
    def _add_type(cls, value: Any) -> Any:
        return {"type": OPENLINEAGE, **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _add_openlineage(self) -> Settings:
        """Add the section ``openlineage`` to the downstream systems, so that there's one way to send events."""
        if (
            self.openlineage is not None
            and self.downstream.setdefault(OPENLINEAGE, self.openlineage) != self.openlineage
        ):
            raise ValueError("[openlineage] and [downstream.openlineage] are the same system: keep one of them")
        return self

    @property
    def storage(self) -> StorageSettings:
        """Where the object stores are: the sections ``s3``, ``gcs`` and ``adls``."""
        return StorageSettings(s3=self.s3, gcs=self.gcs, adls=self.adls)

    @property
    def run_url(self) -> str | None:
        """Template of links to runs: ``notify.report_url``, else their pages on the dashboard."""
        if self.notify.report_url is not None or self.ui.url is None:
            return self.notify.report_url
        return f"{self.ui.url.rstrip('/')}/run?run={{run_id}}"

    @property
    def masked(self) -> tuple[str, ...]:
        """Patterns of columns whose values are hidden, whichever section names them."""
        return (*self.ui.masked, *self.audit.mask)

    def link_to(self, run_id: str, table: str = "", branch: str = "") -> str | None:
        """Return a link to a run's page; ``None`` if no setting defines one."""
        return None if self.run_url is None else fill_link(self.run_url, run_id=run_id, table=table, branch=branch)

    def table(self, table: TableIdentifier) -> TableSettings:
        """Return the table's section, or defaults."""
        return self.tables.get(str(table), TableSettings())


def fill_link(template: str, **values: str) -> str:
    """Return a link with ``{run_id}``, ``{table}`` and ``{branch}`` filled in.

    Example:
        >>> fill_link("https://lake.example.com/{table}?run={run_id}", run_id="r1", table="a/b")
        'https://lake.example.com/a%2Fb?run=r1'
    """
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))
    return template


def find_home(start: Path | None = None) -> Path:
    """Return the project's folder: ``start`` or the nearest folder above it that is a project, else ``start``.

    A project that another user put into a folder for everyone, such as ``/tmp``, doesn't count: its settings could run
    commands. To use it anyway, pass ``--home``.

    Args:
        start: Where to start. Default: the current folder.

    Raises:
        InputError: The current folder no longer exists.
        ConfigurationError: ``start`` itself is such a folder, so a project can't be anywhere else.
    """
    try:
        here = (start or Path.cwd()).absolute()
    except FileNotFoundError:
        raise InputError(
            "The current folder no longer exists.", hint="Change to your project's folder, or pass --home."
        ) from None
    projects = (folder for folder in (here, *here.parents) if is_project(folder))
    home = next((folder for folder in projects if not _is_planted(folder)), here)
    if home == here and is_project(here) and _is_planted(here):
        raise ConfigurationError(
            f"Another user has put a lakegate project into {here}, a folder for everyone.",
            hint="Its settings could run commands. Work in a folder of your own; or, if you trust them, pass "
            f"--home {here}",
        )
    return home


def home_at(folder: str | Path) -> Path:
    """Return a project's folder as an absolute path without ``..``: the locations of its tables begin with it."""
    found = Path(folder).absolute()
    return found.resolve() if ".." in found.parts else found


def _is_planted(folder: Path) -> bool:
    """Return whether another user has put a project into a folder for everyone, as ``/tmp`` is."""
    if folder.stat().st_mode & _FOR_EVERYONE != _FOR_EVERYONE:
        return False
    owners = {path.lstat().st_uid for path in (folder / FILE_NAME, folder / HOME_NAME) if path.exists()}
    return not owners <= {os.geteuid(), 0}


def is_project(folder: Path) -> bool:
    """Return whether ``folder`` is a project's: whether it has ``lakegate.toml`` or ``.lakegate/``."""
    return (folder / FILE_NAME).is_file() or (folder / HOME_NAME).is_dir()


def load_settings(
    home: Path, *, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Read the settings of the project in ``home``.

    Args:
        env: Environment variables; ``LAKEGATE_ENGINE_URL`` sets ``engine.url``. Default: the process's.
        flags: Values that override all others, by dotted key: ``{"engine.url": "sc://…"}``. ``None`` is ignored.

    Raises:
        ConfigurationError: The file can't be read or parsed, a key is unknown, or a value isn't allowed.
    """
    path = home / FILE_NAME
    merged = _read_file(path)
    for variable, value in sorted((os.environ if env is None else env).items()):
        key = _key_of(variable)
        if key is not None:
            _put(merged, key, value)
    for dotted, value in (flags or {}).items():
        if value is not None:
            _put(merged, tuple(dotted.split(".")), value)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise _explain(error, path) from None


def override_settings(settings: Settings, flags: Mapping[str, str | None]) -> Settings:
    """Return settings with other values for some keys, given as for :func:`load_settings`."""
    for dotted, value in flags.items():
        if value is not None:
            section, key = dotted.split(".")
            changed = getattr(settings, section).model_copy(update={key: value})
            settings = settings.model_copy(update={section: changed})
    return settings


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return _with_paths(tomllib.loads(path.read_text(encoding="utf-8-sig")), path.parent)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Can't read {path}: {error}", file=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"{path} isn't valid TOML: {error}", hint="See https://toml.io.", file=str(path)
        ) from None


def _with_paths(tree: dict[str, Any], home: Path) -> dict[str, Any]:
    """Make paths relative to the project's folder, not to the one that a command runs in."""
    for section, key in _PATHS:
        given = tree.get(section)
        if isinstance(given, dict) and isinstance(given.get(key), str):
            given[key] = str(home / given[key])
    return tree


def _key_of(variable: str) -> tuple[str, str] | None:
    if not variable.startswith(ENV_PREFIX):
        return None
    section, _, name = variable.removeprefix(ENV_PREFIX).lower().partition("_")
    if section in Settings.model_fields:
        return (section, name) if section != "tables" and name else None
    # Other variables are the user's own, such as a token for `env:`. But a misspelled section is an error.
    guess = nearest(section, Settings.model_fields)
    if guess is not None and guess != "tables" and name in _known_keys((guess,)):
        raise ConfigurationError(
            f"{variable} doesn't match any setting.",
            hint=f"Did you mean {ENV_PREFIX}{guess.upper()}_{name.upper()}?",
            variable=variable,
        )
    return None


def _put(tree: dict[str, Any], key: tuple[str, ...], value: Any) -> None:
    for part in key[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigurationError(f"'{part}' must be a section of {FILE_NAME}, not a value.", setting=part)
    tree[key[-1]] = value


_EXPECTED = {
    "dict_type": "must be a table",
    "model_attributes_type": "must be a section",
    "missing": "is missing",
    "model_type": "must be a section",
    "string_type": "must be text",
    "tuple_type": 'must be a list, such as ["a", "b"]',
}
"""What Pydantic's kinds of errors expect, in TOML's terms."""


def _explain(error: ValidationError, path: Path) -> ConfigurationError:
    lines = []
    hint = None
    for problem in error.errors():
        location = tuple(str(part) for part in problem["loc"] if part != "[key]")
        # For a section with several types, Pydantic's location includes the type.
        dotted = ".".join((*location[:2], *location[3:]) if location[:1] == ("downstream",) else location)
        if problem["type"].startswith("union_tag"):
            types = [name for one in inner_models(AnyDownstream) for name in _type_names(one)]
            lines.append(f"'{dotted}.type' must be one of {', '.join(types)}")
        elif problem["type"] == "extra_forbidden":
            guess = nearest(location[-1], _known_keys(location[:-1]))
            lines.append(f"unknown key '{dotted}'" + (f" (did you mean '{guess}'?)" if guess else ""))
            hint = hint or f"Known keys there: {', '.join(sorted(_known_keys(location[:-1])))}."
        else:
            message = _EXPECTED.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
            message = message.replace("Input should be ", "must be ", 1)
            lines.append(f"'{dotted}': {message}" if dotted else message)
    return ConfigurationError(
        f"Settings ({path}, variables and options): {'; '.join(lines)}.", hint=hint, file=str(path)
    )


def _known_keys(location: tuple[str, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for at, part in enumerate(location):
        field = model.model_fields.get(part)
        inner = () if field is None else tuple(inner_models(field.annotation))
        # If a section can have several types, the location names the one it has.
        matching = (one for one in inner if set(location[at:]) & set(_type_names(one)))
        model = inner[0] if len(inner) == 1 else next(matching, model) if inner else model
    return list(model.model_fields)


def _type_names(model: type[BaseModel]) -> tuple[str, ...]:
    return get_args(model.model_fields["type"].annotation)


def inner_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for one in get_args(annotation):
        yield from inner_models(one)
