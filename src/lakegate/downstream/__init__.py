"""Downstream systems, which are notified of each publish: commands, webhooks, other catalogs.

To add a type:

- add a module next to :mod:`lakegate.downstream.webhook`, with a function ``make(name, settings, context)`` that
  returns a :class:`lakegate.ports.Downstream`;
- add an entry to :data:`lakegate.downstream.TYPES`;
- add a settings class to :mod:`lakegate.config`, and to ``AnyDownstream`` there.

``lakegate.wap.downstream`` decides what is sent when, and how often it's retried, for all types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from lakegate.config import DownstreamSettings, Settings
from lakegate.errors import ConfigurationError, InputError
from lakegate.ports import Downstream


@dataclass(frozen=True, slots=True)
class DownstreamType:
    """A type of downstream system, as known before its module is loaded.

    Attributes:
        extra: The extra that installs its packages; ``None`` if it needs none.
        mirrors: Whether such a system points at the tables' metadata files. If so, only the newest state of a table
            matters to it, and ``lakegate admin gc`` keeps the state that it points at.
    """

    module: str
    extra: str | None = None
    mirrors: bool = False


@dataclass(frozen=True, slots=True)
class DownstreamContext:
    """Facts about the lake that a downstream system may need."""

    home: Path
    warehouse: str
    settings: Settings


TYPES: Mapping[str, DownstreamType] = {
    "command": DownstreamType("command"),
    "webhook": DownstreamType("webhook"),
    "glue": DownstreamType("glue", extra="aws", mirrors=True),
    "snowflake": DownstreamType("snowflake", extra="snowflake", mirrors=True),
    "openlineage": DownstreamType("openlineage", extra="openlineage"),
}
"""The types, by the ``type`` of a section ``[downstream.NAME]``."""


def open_downstream(name: str, settings: DownstreamSettings, context: DownstreamContext) -> Downstream:
    """Return the downstream system that a section of the settings describes.

    Raises:
        ConfigurationError: Its packages aren't installed, or a secret that it refers to doesn't exist.
    """
    return cast("Downstream", _module(name, settings).make(name, settings, context))


def policy_of(name: str, settings: DownstreamSettings) -> Mapping[str, Any]:
    """Return the IAM policy that notifying a downstream system needs.

    Raises:
        InputError: This type needs no policy.
    """
    make_policy = getattr(_module(name, settings), "policy", None)
    if make_policy is None:
        raise InputError(f"Downstream '{name}' is of type '{settings.type}', which needs no AWS permissions.")
    return cast("Mapping[str, Any]", make_policy(settings))


def _module(name: str, settings: DownstreamSettings) -> ModuleType:
    kind: str = settings.type
    found = TYPES[kind]
    try:
        return import_module(f"lakegate.downstream.{found.module}")
    except ModuleNotFoundError as error:
        if found.extra is None or (error.name or "").startswith("lakegate"):
            raise
        raise ConfigurationError(
            f"Downstream systems of type '{kind}' need {error.name}, which isn't installed.",
            hint=f"pip install 'lakegate[{found.extra}]'",
            package=error.name,
            setting=f"downstream.{name}",
        ) from None
