"""Words that users type: durations, keywords, and suggestions for misspelt ones."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import wraps
from typing import ParamSpec, TypeVar

from lakegate.errors import ConfigurationError, SchemaError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)
_DURATION = re.compile(r"([0-9]{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta:
    """Parse a duration: a number and a unit, ``s``, ``m``, ``h``, ``d`` or ``w``.

    Example:
        >>> parse_duration("7d"), parse_duration("90 m")
        (datetime.timedelta(days=7), datetime.timedelta(seconds=5400))
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"Invalid duration '{text}'.", hint="Use a number and a unit: 30s, 15m, 12h, 7d, 2w.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to ``word``, ignoring case, for hints such as "did you mean".

    Example:
        >>> nearest("pasenger_count", ["passenger_count", "fare_amount"])
        'passenger_count'
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return ``Did you mean 'x'? `` as the start of a hint; empty if no candidate is close.

    Example:
        >>> did_you_mean("erorr", ["error", "warn"]) + "Use error or warn."
        "Did you mean 'error'? Use error or warn."
    """
    guess = nearest(word, candidates)
    return f"Did you mean '{guess}'? " if guess else ""


def unknown_column(problem: str, column: str, known: Sequence[str], **context: object) -> SchemaError:
    """Return the error for a column that doesn't exist. Its hint names the nearest one, and all that do.

    Example:
        >>> unknown_column("nyc.trips has no column 'fair'.", "fair", ["id", "fare"]).hint
        "Did you mean 'fare'? Columns: id, fare."
    """
    hint = f"{did_you_mean(column, known)}Columns: {', '.join(known)}."
    return SchemaError(problem, hint=hint, column=column, **context)


def suggest_keyword(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Wrap ``function`` so that its ``TypeError`` for an unknown keyword suggests the nearest one.

    From Python 3.13 on, Python does so itself, and ``function`` is returned unchanged. Functions that take
    ``**options`` must refuse unknown ones themselves.

    Example:
        >>> suggest_keyword(lambda *, checks=(): None)(chekcs=["not_null(id)"])
        Traceback (most recent call last):
        TypeError: <lambda>() got an unexpected keyword argument 'chekcs'. Did you mean 'checks'?
    """
    parameters = inspect.signature(function).parameters.values()
    if sys.version_info >= (3, 13) or any(one.kind is one.VAR_KEYWORD for one in parameters):
        return function
    known = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]

    @wraps(function)
    def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        for keyword in kwargs:
            if keyword not in known:
                raise unknown_keyword(function.__name__, keyword, *known)
        return function(*args, **kwargs)

    return checked


def suggest_keywords(cls: _Class) -> _Class:
    """Class decorator that applies :func:`suggest_keyword` to all public methods."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(cls, name, suggest_keyword(member))
    return cls


def unknown_keyword(function: str, keyword: str, *known: str) -> TypeError:
    """Return the error for a keyword that ``function`` doesn't know."""
    guess = nearest(keyword, known)
    hint = f". Did you mean '{guess}'?" if guess else ""
    return TypeError(f"{function}() got an unexpected keyword argument '{keyword}'{hint}")
