"""The base class of all values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

_LONGEST_PART = 200
"""Maximum length of a field's value in a ``repr``. A run's full ``repr`` would have thousands of characters."""


class Value(BaseModel):
    """A frozen value: unknown keys are errors, equality is by content."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield only fields that differ from their defaults, with long values shortened."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            field = None if name is None else fields.get(name)
            if field is None or value != field.get_default(call_default_factory=True, validated_data={}):
                yield name, _Brief(value)


class _Brief:
    """The ``repr`` of a value, shortened if it's long."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        value = self._value
        is_long = isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) > _LONGEST_PART
        text = "" if is_long else repr(value)
        if is_long or (isinstance(value, tuple) and len(text) > _LONGEST_PART):
            return f"({len(value):,} of {type(value[0]).__name__})"
        if len(text) <= _LONGEST_PART:
            return text
        return f"{type(value).__name__}(…)" if isinstance(value, Value) else f"{text[:_LONGEST_PART]}…"
