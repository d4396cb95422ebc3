"""Registers checks: ``@check`` makes one of a function, and :func:`find_check` finds it by name."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any, overload

from lakegate.checks.definition import BUILT_IN, CheckDefinition, P
from lakegate.errors import CheckError
from lakegate.model.checks import Scope
from lakegate.model.words import did_you_mean

GROUP = "lakegate.checks"
"""Entry point group in which other packages offer checks."""

_Definition = CheckDefinition[Any]
USERS: dict[str, _Definition] = {}
"""Checks of users that were defined in this process, by name and alias."""


@overload
def check(function: Callable[P, Any], /) -> CheckDefinition[P]: ...
@overload
def check(
    *,
    name: str | None = ...,
    example: str | None = ...,
    aliases: Sequence[str] = ...,
    parameter_aliases: Mapping[str, str] | None = ...,
    scopes: Sequence[Scope] = ...,
    each_column: bool = ...,
    finds_columns: bool = ...,
    nulls: str = ...,
    nans: str = ...,
    evidence: str = ...,
) -> Callable[[Callable[P, Any]], CheckDefinition[P]]: ...
def check(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function into a check. The function returns which rows *fail*.

    Its parameters are the check's: :data:`ColumnName` for columns, which must come first, then text, numbers, booleans
    and lists of them. Its docstring is the check's documentation. It's called before anything is written (and again for
    the audit), with columns quoted for SQL, and returns one of

    - Spark SQL as text, which is true for rows that fail. It's validated like ``sql('…')``;
    - a question: :class:`FailingRows` (which may say what file metrics prove), :class:`DuplicateRows`,
      :class:`OrphanRows` or :class:`RowTotal`.

    To refuse its arguments, it raises a :class:`ValueError`, whose text continues "is_iban(account): …".

    Args:
        function: The check's function; its name is the check's.
        options: ``name``: the check's name, if it isn't the function's. ``example``: a complete check, for hints and
            help. ``aliases``: other names of the check. ``parameter_aliases``: other names of parameters. ``scopes``:
            the supported scopes, the default first; passed to the function if it has a parameter ``scope``.
            ``each_column``: the text may name several columns, each of which makes a check. ``finds_columns``:
            :meth:`CheckDefinition.prepare` finds the columns in the arguments. ``nulls``, ``nans``, ``evidence``: for
            the reference page.

    Raises:
        TypeError: When the function's parameters can't be a check's, or another module's check has its name.

    Example:
        >>> from lakegate.checks import ColumnName
        >>> @check
        ... def is_even(column: ColumnName) -> str:
        ...     return f"{column} % 2 <> 0"
        >>> str(is_even("seats"))
        'is_even(seats)'
    """
    return partial(_define, options=options) if function is None else _define(function, options)


def _define(function: Callable[..., Any], options: Mapping[str, Any]) -> _Definition:
    definition: _Definition = CheckDefinition(function, **options)
    if not definition.__module__.startswith(BUILT_IN):
        _require_free_names(definition)
        USERS.update(dict.fromkeys((definition.name, *definition.aliases), definition))
    return definition


def find_check(name: str) -> _Definition:
    """Return a check's definition by its name or an alias.

    Built-in checks come first, then those of installed packages, then this process's.

    Raises:
        CheckError: If there is no such check, or another package's can't be loaded.

    Example:
        >>> find_check("in_range").signature
        'in_range(column, min, max, inclusive=True)'
    """
    if name in built_in():
        return _built_ins()[name]
    point = next(iter(_offered().select(name=name)), None)
    installed, defined = None if point is None else _load(point), USERS.get(name)
    if installed is not None and defined is not None and installed.__module__ != defined.__module__:
        raise CheckError(
            f"There are two checks called '{name}': one in {installed.__module__}, one in {defined.__module__}.",
            hint="Give one of them another name.",
            check=name,
        )
    found = _aliases().get(name) or installed or defined
    if found is not None:
        return found
    known = known_checks()
    raise CheckError(
        f"There is no check called '{name}'.",
        hint=did_you_mean(name, known) + f"Known checks: {', '.join(known)}.",
        check=name,
    )


def _require_free_names(definition: _Definition) -> None:
    """Refuse a user's check with the name of another one. Its own module may redefine it, as in a notebook."""
    for name in (definition.name, *definition.aliases):
        if name in built_in() or name in _aliases():
            raise TypeError(f"there is a built-in check '{name}'; give the function another name")
        defined = USERS.get(name)
        owner = None if defined is None else defined.__module__
        point = next(iter(_offered().select(name=name)), None)
        # An entry point may name what its package defines in another module of it.
        if point is not None and point.module.partition(".")[0] != definition.__module__.partition(".")[0]:
            owner = point.module
        if owner not in (None, definition.__module__):
            raise TypeError(f"there is a check '{name}' of {owner}; give the function another name")


def known_checks() -> tuple[str, ...]:
    """Return the names of all checks, built-in ones first."""
    others = {*_offered().names, *(one.name for one in USERS.values())} - set(built_in())
    return (*built_in(), *sorted(others))


@cache
def _offered() -> EntryPoints:
    """Return the checks that other packages offer. Takes about 20 ms, because it reads a file of each package."""
    return entry_points(group=GROUP)


@cache
def built_in() -> tuple[str, ...]:
    """Return the names of the built-in checks, those of :mod:`lakegate.checks.builtin`."""
    return tuple(sorted(_built_ins()))


@cache
def _built_ins() -> dict[str, _Definition]:
    folder = Path(__file__).with_name(BUILT_IN.rpartition(".")[2])
    modules = (import_module(f"{BUILT_IN}.{module.name}") for module in pkgutil.iter_modules([str(folder)]))
    found = (one for module in modules for one in vars(module).values() if isinstance(one, CheckDefinition))
    return {one.name: one for one in found}


@cache
def _aliases() -> dict[str, _Definition]:
    return {alias: one for one in _built_ins().values() for alias in one.aliases}


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
        f"The check '{point.name}' can't be used: {point.value} isn't a check of that name.",
        hint="The entry point must name a function decorated with @lakegate.checks.check, and have its name.",
        check=point.name,
    )
