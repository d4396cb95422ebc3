"""The docstrings below the fields of a model, which Python doesn't keep."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache

from pydantic import BaseModel


@cache
def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each field of a class and of those that it extends."""
    inherited = (
        field_docstrings(base) for base in model.__bases__ if base is not BaseModel and issubclass(base, BaseModel)
    )
    return {name: text for texts in (*inherited, _own_docstrings(model)) for name, text in texts.items()}


def _own_docstrings(model: type[BaseModel]) -> dict[str, str]:
    (cls,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(cls, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in zip(cls.body, cls.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
