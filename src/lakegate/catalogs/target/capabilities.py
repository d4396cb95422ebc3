"""What each product can do as a target: read in its source and documentation, or run in lakegate's own tests.

Endpoints that a server advertises prove nothing: some list ``transactions/commit`` and go through its tables one by
one. So a product that isn't known here gets what is safe without proof: each change of one table, checked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

from lakegate.catalogs.target.targets import Step
from lakegate.errors import InputError
from lakegate.model.base import Value

UNKNOWN = "an unknown product"


class Capabilities(Value):
    """What a target can do.

    Attributes:
        product: Its name.
        commit: How a table is changed: by Iceberg's requirements and updates, or by pointing it at another file.
        creates: Whether a table can be created together with its first rows.
        many: How several tables are changed. ``atomic but new ones``: at one moment, unless one of them is created.
        drop_keeps_files: Whether a table's files stay when it's dropped; ``None`` if only a scratch table shows it.
        renames: Whether a table keeps its identity under another name.
        newest_version: The newest format version that tables can have.
        location: Who decides where a new table is.
        staged_max_age_h: After so many hours, the product's own clean-up may delete files that it doesn't know.
        was_run: Whether lakegate's tests run with it, or with a program that stands for it.
    """

    product: str
    commit: Literal["swap", "requirements"] = "requirements"
    creates: bool = True
    many: Literal["atomic", "atomic but new ones", "per table"] = "per table"
    drop_keeps_files: bool | None = True
    renames: bool = True
    newest_version: int = 3
    location: Literal["ours", "the target's"] = "ours"
    staged_max_age_h: int = 72
    was_run: str = ""

    def described(self) -> dict[str, str]:
        """Return what it can do in words, and what isn't promised because of that."""
        together = "in one commit for every reader"
        apart = "one after the other: until the last one, other readers see a part (lakegate's don't)"
        many = {"atomic": together, "per table": apart, "atomic but new ones": f"{together}; if one is new, {apart}"}
        keeps = {True: "its files stay", False: "refused: its files would be deleted", None: "tried on a scratch table"}
        place = {"ours": "below the warehouse", "the target's": "refused where the catalog decides where it is"}
        new = f"published with its rows; {place[self.location]}" if self.creates else "create it there, empty"
        return {
            "product": self.product,
            "tested": self.was_run or "not run",
            "several tables": many[self.many],
            "new table": new,
            "dropped table": keeps[self.drop_keeps_files],
            "renamed table": "keeps its history" if self.renames else "refused",
            "format versions": f"up to {self.newest_version}",
            "staged files": f"publish within {self.staged_max_age_h} h: then the catalog's clean-up may delete them",
            "tables that a check reads": "what lakegate writes is noticed; others may change them before the publish",
        }

    def together(self, steps: Sequence[Step]) -> bool:
        """Return whether several tables can be changed at one moment for all readers."""
        if self.many == "per table" or not steps:
            return False
        if self.commit == "swap":
            return True
        changes = all(step.staged is not None and step.old_name is None for step in steps)
        return changes and (self.many == "atomic" or all(step.base is not None for step in steps))

    def check(self, step: Step) -> None:
        """Refuse a change that the product can't make.

        Raises:
            InputError: With what to do instead.
        """
        if step.base is None and not self.creates:
            raise self._cannot(step, "create a table together with its rows", f"Create {step.table} there, empty.")
        if step.old_name is not None and not self.renames:
            raise self._cannot(step, "rename a table", "Keep its name, or rename it there.")
        if step.staged is None and self.drop_keeps_files is False:
            raise self._cannot(step, "drop a table and keep its files, to be restored from", "Drop it there.")

    def _cannot(self, step: Step, what: str, hint: str) -> InputError:
        table = str(step.table)
        return InputError(f"{self.product} can't {what}: {table}.", hint=f"Nothing was changed. {hint}", table=table)


SQL_SWAP = Capabilities(product="Iceberg SQL catalog", commit="swap", many="atomic", was_run="on SQLite and Postgres")
_BY_PYICEBERG = {
    "SqlCatalog": Capabilities(
        product="Iceberg SQL catalog, by PyIceberg", newest_version=2, was_run="on SQLite and Postgres"
    ),
    # PyIceberg's rename creates a second table and drops the first.
    "GlueCatalog": Capabilities(
        product="AWS Glue", newest_version=2, renames=False, was_run="on MiniStack; not run on AWS"
    ),
    "HiveCatalog": Capabilities(product="Hive Metastore", newest_version=2, was_run="with Hive 2.3.10"),
}
_BY_REST: Mapping[str, Capabilities] = {
    "Polaris": Capabilities(
        product="Apache Polaris",
        many="atomic but new ones",
        drop_keeps_files=None,
        location="the target's",
        was_run="not run; its refusals were, as its source has them",
    ),
    "Lakekeeper": Capabilities(
        product="Lakekeeper",
        many="atomic",
        drop_keeps_files=None,
        was_run="not run; its refusals were, as its source has them",
    ),
    "S3 Tables": Capabilities(
        product="Amazon S3 Tables",
        creates=False,
        drop_keeps_files=False,
        renames=False,
        location="the target's",
        was_run="not run; its refusals were, as its documentation has them",
    ),
    "Glue": Capabilities(
        product="AWS Glue's Iceberg REST endpoint",
        creates=False,
        drop_keeps_files=None,
        renames=False,
        was_run="not run; its refusals were, as its documentation has them",
    ),
}


def by_pyiceberg(kind: str) -> Capabilities:
    """Return what a class of PyIceberg's catalogs can do, such as ``GlueCatalog``."""
    return _BY_PYICEBERG.get(kind) or Capabilities(
        product=f"PyIceberg's {kind}", newest_version=2, renames=False, drop_keeps_files=None
    )


def by_rest(uri: str, *, endpoints: Sequence[str], is_lakekeeper: Callable[[], bool]) -> Capabilities:
    """Return what a REST catalog can do.

    Args:
        endpoints: What its configuration lists: some paths are one product's alone.
        is_lakekeeper: Asks it for what only Lakekeeper has.
    """
    address = urlsplit(uri)
    host, path = address.hostname or "", address.path.rstrip("/")
    if host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        product = {"s3tables": "S3 Tables", "glue": "Glue"}.get(host.partition(".")[0])
    elif any("/polaris/v1/" in endpoint for endpoint in endpoints):
        product = "Polaris"
    elif path.endswith("/catalog") and is_lakekeeper():
        product = "Lakekeeper"
    else:
        product = None
    return _BY_REST[product] if product else Capabilities(product=UNKNOWN, drop_keeps_files=None)
