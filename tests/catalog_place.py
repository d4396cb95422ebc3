"""A place on a catalog for one test of the catalog contract."""

from __future__ import annotations

from dataclasses import dataclass

from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.protocols import Catalog

PAGE_SIZE = 3
HERE = "file:///lake"
REMOTE = "s3://bucket/some where/lake"
NO_SUCH_HASH = "ab" * 32


@dataclass(frozen=True)
class Place:
    """A branch and a namespace of a test's own, made on a catalog that others may use at the same time."""

    catalog: Catalog
    branch: str
    namespace: str
    root: Ref
    warehouse: str

    def table(self, name: str) -> TableIdentifier:
        return TableIdentifier(namespace=(self.namespace,), name=name)

    def head(self) -> Ref:
        return self.catalog.get_ref(self.branch)

    def pointer(self, name: str, version: int = 0, content_id: str | None = None) -> TablePointer:
        return TablePointer(
            table=self.table(name),
            content_id=content_id,
            metadata_location=f"{self.warehouse}/{self.namespace}/{name}/v{version}.metadata.json",
            snapshot_id=version,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )

    def commit(
        self,
        *puts: TablePointer,
        base: Ref | None = None,
        deletes: tuple[str, ...] = (),
        unchanged: tuple[str, ...] = (),
        namespaces: tuple[tuple[str, ...], ...] = (),
        run_id: str | None = None,
    ) -> Ref:
        return self.catalog.commit(
            CommitRequest(
                branch=self.branch,
                base=(base or self.head()).hash,
                message="change",
                puts=puts,
                deletes=tuple(self.table(name) for name in deletes),
                unchanged=tuple(self.table(name) for name in unchanged),
                namespaces=namespaces,
                properties={} if run_id is None else {RUN_ID_PROPERTY: run_id},
            )
        )

    def create(self, name: str) -> Ref:
        return self.commit(self.pointer(name))

    def move(self, name: str, version: int, base: Ref | None = None) -> Ref:
        """Put a new version of a table, with the content id it has at ``base``."""
        base = base or self.head()
        pointer = self.catalog.get_table(self.table(name), base)
        assert pointer is not None
        return self.commit(self.pointer(name, version, pointer.content_id), base=base)

    def version(self, name: str, at: Ref | None = None) -> int | None:
        pointer = self.catalog.get_table(self.table(name), at or self.head())
        return None if pointer is None else pointer.snapshot_id
