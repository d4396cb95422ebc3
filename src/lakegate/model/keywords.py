"""Unknown keywords are refused with the name that was probably meant, so that a typo can't leave a check out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from lakegate.model.schema import nearest

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)


def suggest_keyword(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return ``function``, whose ``TypeError`` for an unknown keyword suggests one. Python 3.13 does it by itself.

    Example:
        >>> suggest_keyword(lambda *, checks=(): None)(chekcs=["not_null(id)"])
        Traceback (most recent call last):
        TypeError: <lambda>() got an unexpected keyword argument 'chekcs'. Did you mean 'checks'?
    """
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
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
    """Decorate a class: :func:`suggest_keyword` for its public methods."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(cls, name, suggest_keyword(member))
    return cls


def unknown_keyword(function: str, keyword: str, *known: str) -> TypeError:
    """Return the error for a keyword that ``function`` doesn't know."""
    guess = nearest(keyword, known)
    hint = f". Did you mean '{guess}'?" if guess else ""
    return TypeError(f"{function}() got an unexpected keyword argument '{keyword}'{hint}")
