"""The sections about who hears of runs: channels for alerts, and downstream systems."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from lakegate.config.types import (
    JSON,
    Duration,
    Endpoint,
    Interval,
    Number,
    Reference,
    Section,
    ShortName,
    SnowflakeAccount,
    SnowflakeName,
    TableName,
    WebUrl,
)
from lakegate.model.downstream import DownstreamKind, Event, Level
from lakegate.model.secrets import is_loopback

_REPORT_FIELDS = re.compile(r"\{(run_id|table|branch)\}")
ChannelType = Literal["slack", "apprise"]


class ChannelSettings(Section):
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


class NotifySettings(Section):
    """Alerts about runs that ended, files that were given up, and tables that are late."""

    examples: bool = False
    """Whether alerts may contain rows of data."""
    report_url: str | None = None
    """URL of a run's report; ``{run_id}``, ``{table}`` and ``{branch}`` are filled in."""
    timeout_s: Number = Field(default=10.0, gt=0, le=300)
    """Seconds that all alerts about one run may take, including retries and fetching secrets."""
    group: Duration = "1h"
    """Send one message per kind of alert and table in this time. ``0s`` sends each."""
    late: Annotated[dict[TableName, Interval], JSON] = Field(default_factory=dict)
    """How often each table should be published to: ``"nyc.trips" = "1d"``. As a variable, JSON."""
    channels: Annotated[tuple[ChannelSettings, ...], JSON] = ()

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


class DownstreamSettings(Section):
    """Settings that all downstream systems have. A class for each type follows."""

    type: str
    """Its type."""
    events: tuple[DownstreamKind, ...] = ("published", "reverted", "restored", "current")
    """Events it gets: ``published``, ``reverted``, ``restored``, ``current``, ``rejected``, ``failed``.

    Default: all but ``rejected`` and ``failed``.
    """
    tables: Annotated[tuple[str, ...], JSON] = ("*",)
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
    events: Annotated[tuple[DownstreamKind, ...], JSON] = ("published", "reverted", "restored", "rejected", "failed")
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
