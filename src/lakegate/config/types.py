"""The types of settings: text and numbers that are checked, and what a section is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
)

from lakegate.errors import LakegateError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.secrets import FORMS, SecretReference
from lakegate.model.words import parse_duration

_LONGEST_SNOWFLAKE_NAME = 255
_Parsed = TypeVar("_Parsed")


class Section(BaseModel):
    """A section of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def _read_json(value: Any) -> Any:
    """Return a setting's value. The text of an environment variable is parsed as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("mustn't be text in lakegate.toml, and must be JSON in an environment variable") from None


def parsed(parse: Callable[[str], _Parsed], value: str) -> _Parsed:
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
    parsed(parse_duration, value)
    return value


def _interval(value: str) -> str:
    if not parsed(parse_duration, value):
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
    parsed(TableIdentifier.parse, value)
    return value


def _snowflake_name(value: str) -> str:
    if not 0 < len(value) <= _LONGEST_SNOWFLAKE_NAME or not value.isprintable():
        raise ValueError(f"must be a name of 1 to {_LONGEST_SNOWFLAKE_NAME} printable characters")
    return value


JSON = BeforeValidator(_read_json)
Number = Annotated[float, BeforeValidator(_refuse_boolean)]
Count = Annotated[int, BeforeValidator(_refuse_boolean)]
FormatVersion = Annotated[Literal[2, 3], JSON]
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
