"""Settings of who is told of runs, where, and of what."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lakegate.model.base import Value
from lakegate.model.durations import parse_duration
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.references import FORMS, SecretReference

Event = Literal["rejected", "failed", "given_up", "recovered", "published", "late"]
"""What a channel may ask for. A run that recovery ended is ``recovered`` as well as what it came to."""
Level = Literal["info", "warn", "error"]
LEVELS: tuple[Level, ...] = ("info", "warn", "error")
"""From the least to the most severe."""
ChannelType = Literal["slack", "webhook", "apprise"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_REPORT_FIELDS = re.compile(r"\{(run_id|table|branch)\}")


def read_json(value: Any) -> Any:
    """Return a setting's value; text, which is all that a variable can hold, is read as JSON.

    Raises:
        ValueError: When it is text and no JSON.

    Example:
        >>> read_json('["a", "b"]'), read_json(("a", "b"))
        (['a', 'b'], ('a', 'b'))
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("must be JSON when it is set by a variable") from None


class ChannelSettings(Value):
    """One place that is told, and what of."""

    name: str
    """What messages and ``lakegate runs`` call it."""
    type: ChannelType
    url: str | None = None
    """Where messages go, by reference. An incoming webhook of Slack, any web address, Apprise's URL."""
    token: str | None = None
    """Bot token of a Slack app, by reference; instead of ``url``."""
    channel: str | None = None
    """Slack's channel that the bot writes to: its id, or ``#name``."""
    api_url: str | None = None
    """Address of another server than Slack's that speaks its Web API."""
    secret: str | None = None
    """What a ``webhook``'s messages are signed with, by reference."""
    events: tuple[Event, ...] = ("rejected", "failed", "given_up", "recovered", "late")
    tables: tuple[str, ...] = ("*",)
    """Patterns; a message goes out when one of its tables fits one of them."""
    severity: Level = "info"
    """The least that is told."""

    @field_validator("name")
    @classmethod
    def _validate_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("must be letters, digits, '-' and '_', 63 at most")
        return value

    @field_validator("url", "token", "secret")
    @classmethod
    def _require_reference(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                SecretReference.parse(value)
            except ValueError:
                raise ValueError(f"is a secret: put it in a variable or a file, and write {FORMS}") from None
        return value

    @field_validator("api_url")
    @classmethod
    def _validate_api_url(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/@\s?#]+(?:/[^@\s?#]*)?", value):
            raise ValueError("must be a URL such as 'https://slack.example.com/api/', without user and password")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> ChannelSettings:
        if self.type == "slack":
            if (self.url is None) == (self.token is None):
                raise ValueError(
                    "a channel of type 'slack' needs either 'url' (an incoming webhook) or 'token' (a bot)"
                )
            if (self.token is None) != (self.channel is None):
                raise ValueError("'token' and 'channel' go together")
        elif self.url is None:
            raise ValueError(f"a channel of type '{self.type}' needs 'url'")
        for name, kind in (("token", "slack"), ("channel", "slack"), ("api_url", "slack"), ("secret", "webhook")):
            if getattr(self, name) is not None and self.type != kind:
                raise ValueError(f"'{name}' is for channels of type '{kind}'")
        return self

    @property
    def has_threads(self) -> bool:
        """Whether later messages can be put under an earlier one."""
        return self.token is not None

    def concerns(self, tables: tuple[str, ...]) -> bool:
        """Tell whether one of ``tables`` is among those that the channel asks for.

        Example:
            >>> nyc = ChannelSettings(name="ops", type="webhook", url="env:HOOK", tables=("nyc.*",))
            >>> nyc.concerns(("lab.runs", "nyc.trips")), nyc.concerns(("lab.runs",))
            (True, False)
        """
        # A transaction that failed before it wrote has no table; what is the matter with it is still to be told.
        return not tables or any(fnmatchcase(table, pattern) for table in tables for pattern in self.tables)


class NotifySettings(Value):
    """Who is told of runs that ended, of files that were given up, and of tables that are late."""

    examples: bool = False
    """Whether messages may hold rows of the data."""
    report_url: str | None = None
    """Where a report of a run can be seen; ``{run_id}``, ``{table}`` and ``{branch}`` are filled in."""
    timeout_s: float = Field(default=10.0, gt=0, le=300)
    """Seconds that telling everyone of one run may take, further tries and fetching secrets included."""
    group: str = "1h"
    """For how long one message stands for all that say the same of a table, which are counted; ``0s``: for itself."""
    late: dict[str, str] = Field(default_factory=dict)
    """How often something should be published to a table, by its name: ``"1d"``."""
    channels: tuple[ChannelSettings, ...] = ()

    @field_validator("late", "channels", mode="before")
    @classmethod
    def _read_variable(cls, value: Any) -> Any:
        return read_json(value)

    @field_validator("report_url")
    @classmethod
    def _validate_report_url(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s<>|\"{}@]+", _REPORT_FIELDS.sub("x", value)):
            raise ValueError("must be a URL such as 'https://lake.example.com/runs/{run_id}'")
        return value

    @field_validator("group")
    @classmethod
    def _validate_group(cls, value: str) -> str:
        parse_duration(value)
        return value

    @field_validator("late")
    @classmethod
    def _validate_late(cls, value: dict[str, str]) -> dict[str, str]:
        for table, every in value.items():
            TableIdentifier.parse(table)
            if not parse_duration(every):
                raise ValueError(f"'{table}' must be given a length of time that is longer than nothing")
        return value

    @field_validator("channels")
    @classmethod
    def _validate_channels(cls, value: tuple[ChannelSettings, ...]) -> tuple[ChannelSettings, ...]:
        names = [channel.name for channel in value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two channels are called '{twice}'")
        return value
