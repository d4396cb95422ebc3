"""Systems that learn of each publish: commands, webhooks, other catalogs.

To add a type, add a module beside :mod:`lakegate.downstream.webhook` with a function ``make(name, settings, around)``
that returns a :class:`lakegate.ports.Downstream`; one entry in :data:`lakegate.downstream.TYPES`; and a class
with its settings in :mod:`lakegate.config`, which is a member of ``AnyDownstream`` there. What's sent when, and how
often it's tried again, is the same for all (``lakegate.wap.downstream``).
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
class Type:
    """What is known of a type before it's loaded.

    Attributes:
        extra: The extra that installs what it needs; ``None`` if nothing more is needed.
        mirrors: Whether such a system points at the tables' metadata files. Only the newest state of a table matters to
            it then, and ``lakegate gc`` spares the state that it points at.
    """

    module: str
    extra: str | None = None
    mirrors: bool = False


@dataclass(frozen=True, slots=True)
class Around:
    """What a downstream system may need to know of the lake."""

    home: Path
    warehouse: str
    settings: Settings


TYPES: Mapping[str, Type] = {
    "command": Type("command"),
    "webhook": Type("webhook"),
    "glue": Type("glue", extra="aws", mirrors=True),
    "snowflake": Type("snowflake.target", extra="snowflake", mirrors=True),
    "openlineage": Type("openlineage", extra="openlineage"),
}
"""By the ``type`` of a section ``[downstream.NAME]``."""


def open_downstream(name: str, settings: DownstreamSettings, around: Around) -> Downstream:
    """Return the downstream system that a section of the settings describes.

    Raises:
        ConfigurationError: When its packages aren't installed, or a secret that it refers to isn't there.
    """
    return cast("Downstream", _module(name, settings).make(name, settings, around))


def policy_of(name: str, settings: DownstreamSettings) -> Mapping[str, Any]:
    """Return the IAM policy that notifying a downstream system needs.

    Raises:
        InputError: When this type needs none.
        ConfigurationError: As :func:`open_downstream` does.
    """
    make_policy = getattr(_module(name, settings), "policy", None)
    if make_policy is None:
        raise InputError(f"Downstream '{name}' is of type '{settings.type}', which needs no rights at AWS.")
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
