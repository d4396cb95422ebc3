"""The base of all values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value with strict fields: unknown keys are errors, equality is by content."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
