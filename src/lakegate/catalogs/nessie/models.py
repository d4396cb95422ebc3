"""Nessie's REST API v2 on the wire, as far as we use it.

Source: the OpenAPI document that a Nessie server carries (``META-INF/openapi/openapi.yaml``), version 0.99, spec 2.2.0.
Unknown fields are ignored, so that a newer server may say more.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Wire(BaseModel):
    """A part of an answer: frozen, lenient, in camel case on the wire."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Page(Wire):
    """What all answers share that come in pages."""

    has_more: bool = False
    token: str | None = None


class Configuration(Wire):
    """What a server says of itself (``GET /config``)."""

    default_branch: str = "main"
    max_supported_api_version: int
    actual_api_version: int | None = None
    spec_version: str | None = None
    no_ancestor_hash: str | None = None


class Reference(Wire):
    """A branch, a tag or a bare commit."""

    type: Literal["BRANCH", "TAG", "DETACHED"]
    name: str = ""
    hash: str


class ReferenceAnswer(Wire):
    """Answer to everything that reads or changes one reference."""

    reference: Reference


class ReferencesPage(Page):
    """Answer of ``GET /trees``."""

    references: tuple[Reference, ...]


class ContentKey(Wire):
    """A key: the elements of a namespace or of a table's name."""

    elements: tuple[str, ...]


class Content(Wire):
    """What a key holds. Fields that its type lacks are ``None``."""

    type: str
    id: str | None = None
    metadata_location: str | None = None
    snapshot_id: int | None = None
    schema_id: int | None = None
    spec_id: int | None = None
    sort_order_id: int | None = None


class KeyedContent(Wire):
    """A key with what it holds."""

    key: ContentKey
    content: Content


class ContentsAnswer(Wire):
    """Answer of ``POST /trees/{ref}/contents``; keys that do not exist are left out."""

    contents: tuple[KeyedContent, ...]
    effective_reference: Reference


class Entry(Wire):
    """A key as it is listed."""

    name: ContentKey
    type: str
    content: Content | None = None


class EntriesPage(Page):
    """Answer of ``GET /trees/{ref}/entries``."""

    entries: tuple[Entry, ...]


class Operation(Wire):
    """One operation of a commit in the history; only a ``PUT`` has content."""

    type: str
    key: ContentKey
    content: Content | None = None


class CommitMeta(Wire):
    """What a commit says of itself."""

    hash: str
    message: str = ""
    authors: tuple[str, ...] = ()
    commit_time: datetime
    all_properties: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    parent_commit_hashes: tuple[str, ...] = ()


class LogEntry(Wire):
    """One commit of a history."""

    commit_meta: CommitMeta
    operations: tuple[Operation, ...] | None = None


class HistoryPage(Page):
    """Answer of ``GET /trees/{ref}/history``."""

    log_entries: tuple[LogEntry, ...]


class CommitAnswer(Wire):
    """Answer of ``POST /trees/{branch}/history/commit``."""

    target_branch: Reference


class DiffEntry(Wire):
    """A key that stands differently on two references."""

    key: ContentKey
    from_: Content | None = Field(default=None, alias="from")
    to: Content | None = None


class DiffPage(Page):
    """Answer of ``GET /trees/{from}/diff/{to}``."""

    diffs: tuple[DiffEntry, ...]


class Conflict(Wire):
    """One reason why a change was refused."""

    conflict_type: str | None = None
    key: ContentKey | None = None
    message: str = ""


class ErrorDetails(Wire):
    """Details of an error, sent to clients that announce ``Nessie-Client-Spec: 2``."""

    conflicts: tuple[Conflict, ...] = ()


class NessieError(Wire):
    """Every error answer of Nessie."""

    status: int
    message: str = ""
    error_code: str
    error_details: ErrorDetails | None = None


JsonObject = dict[str, Any]
"""A request's body."""
