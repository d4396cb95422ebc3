"""The base of all values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value with strict fields: unknown keys are errors, equality is by content."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield what differs from the defaults: a run has some twenty fields that mostly say nothing."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            field = None if name is None else fields.get(name)
            if field is None or value != field.get_default(call_default_factory=True, validated_data={}):
                yield name, value
