"""From the name of a check to its definition."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from lakegate.checks import builtin
from lakegate.checks.definition import USERS, CheckDefinition
from lakegate.errors import CheckError
from lakegate.model.schema import nearest

GROUP = "lakegate.checks"
"""Entry point group in which other packages offer checks."""

_Definition = CheckDefinition[Any]


def find_check(name: str) -> _Definition:
    """Return the definition of a check by its name or an alias: ours first, then installed ones, then this process's.

    Raises:
        CheckError: When there is no such check, or another package's can't be loaded.

    Example:
        >>> find_check("in_range").signature
        'in_range(column, min, max, inclusive=True)'
    """
    if name in built_in():
        return _built_in(name)
    installed, defined = _installed(name), USERS.get(name)
    if installed is not None and defined is not None and installed.__module__ != defined.__module__:
        raise CheckError(
            f"There are two checks called '{name}': one of {installed.__module__}, one of {defined.__module__}.",
            hint="Give one of them another name.",
            check=name,
        )
    found = _aliases().get(name) or installed or defined
    if found is not None:
        return found
    known = known_checks()
    close = nearest(name, known)
    raise CheckError(
        f"There is no check called '{name}'.",
        hint=(f"Did you mean '{close}'? " if close else "") + f"Known checks: {', '.join(known)}.",
        check=name,
    )


def require_free_names(definition: _Definition) -> None:
    """Refuse a user's check with a name of another one; its own module may define it again, as in a notebook.

    Raises:
        TypeError: When a name or an alias is taken.
    """
    for name in (definition.name, *definition.aliases):
        if name in built_in() or name in _aliases():
            raise TypeError(f"there is a built-in check '{name}'; give the function another name")
        defined = USERS.get(name)
        owner = None if defined is None else defined.__module__
        point = next(iter(entry_points(group=GROUP, name=name)), None)
        # An entry point may name what its package defines in another module of it.
        if point is not None and point.module.partition(".")[0] != definition.__module__.partition(".")[0]:
            owner = point.module
        if owner not in (None, definition.__module__):
            raise TypeError(f"there is a check '{name}' of {owner}; give the function another name")


def known_checks() -> tuple[str, ...]:
    """Return the names of all checks, ours first."""
    others = {*entry_points(group=GROUP).names, *(one.name for one in USERS.values())} - set(built_in())
    return (*built_in(), *sorted(others))


@cache
def built_in() -> tuple[str, ...]:
    """Return the names of the checks that come with lakegate: those of the files in :mod:`lakegate.checks.builtin`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(builtin.__path__)))


@cache
def _built_in(name: str) -> _Definition:
    definition: _Definition = getattr(import_module(f"{builtin.__name__}.{name}"), name)
    return definition


@cache
def _aliases() -> dict[str, _Definition]:
    return {alias: _built_in(name) for name in built_in() for alias in _built_in(name).aliases}


def _installed(name: str) -> _Definition | None:
    point = next(iter(entry_points(group=GROUP, name=name)), None)
    return None if point is None else _load(point)


@cache
def _load(point: EntryPoint) -> _Definition:
    try:
        definition = point.load()
    except Exception as error:
        raise CheckError(
            f"The check '{point.name}' can't be loaded from {point.value}: {error}",
            hint="Repair or uninstall the package that offers it.",
            check=point.name,
        ) from error
    if isinstance(definition, CheckDefinition) and point.name in (definition.name, *definition.aliases):
        return definition
    raise CheckError(
        f"The check '{point.name}' can't be used: {point.value} is not a check of that name.",
        hint="The entry point must name a function decorated with @lakegate.checks.check, and be called like it.",
        check=point.name,
    )
