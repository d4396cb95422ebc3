"""The table that a snippet reads: its commit, the location of its files, and how engines reach them."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword

from lakegate.config import CatalogSettings, StorageSettings
from lakegate.errors import InputError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.model.secrets import SecretReference
from lakegate.snippets import TITLES, Engine
from lakegate.storage.objects import ObjectAddress, Service, canonical, is_remote


@dataclass(frozen=True)
class SnippetTarget:
    """A table to read, at the commit that ``ref`` resolved to.

    Attributes:
        ref: Branch, tag or commit, with the hash to read.
        metadata_location: The table's metadata file, as the catalog spells it.
        has_deletes: Whether delete files may apply to its rows.
        catalog: How lakegate reaches the catalog. Secrets are only references.
        spark_options: Options of a Spark catalog on ``ref``, without credentials.
    """

    table: TableIdentifier
    ref: Ref
    metadata_location: str
    location: str
    has_deletes: bool
    warehouse: str
    storage: StorageSettings
    catalog: CatalogSettings
    spark_options: Mapping[str, str]

    @property
    def metadata(self) -> str:
        """The metadata file as a URI that all engines accept."""
        return file_uri(self.metadata_location)

    @property
    def variable(self) -> str:
        """The table's name as a Python variable."""
        found = self.table.name.replace("-", "_")
        return f"{found}_table" if iskeyword(found) or hasattr(builtins, found) else found

    @property
    def nessie_uri(self) -> str:
        """URI of Nessie's API."""
        return self.spark_options["uri"]

    @property
    def dotted(self) -> str:
        """Namespace and name, quoted for SQL: ``"nyc"."trips"``."""
        return ".".join(quoted(part) for part in self.table.parts)

    @property
    def is_pinned(self) -> bool:
        """Whether the ref is a commit or a tag, which never changes."""
        return self.ref.kind != "branch"

    @property
    def is_commit(self) -> bool:
        """Whether the ref is a bare commit, named only by its hash."""
        return self.ref.kind == "detached"

    @property
    def state(self) -> str:
        """The ref and commit in words: ``main at 1a2b3c``."""
        commit = self.ref.hash[:12]
        return f"commit {commit}" if self.is_commit else f"{self.ref.name} at {commit}"

    @property
    def warehouse_name(self) -> str:
        """The warehouse name of this state for clients of ``lakegate serve``."""
        if self.is_commit:
            return f"commit:{self.ref.hash}"
        if self.ref.kind == "tag":
            return f"tag:{self.ref.name}"
        if self.ref.name == "main":
            return "main"
        raise InputError(
            f"lakegate serve shows main, its tags and its commits, but not branch '{self.ref.name}'.",
            hint="Leave out --rest to read the branch by its metadata file.",
            ref=self.ref.name,
        )

    @property
    def service(self) -> Service | None:
        """The object store that holds the files; ``None`` if they're on this machine."""
        return ObjectAddress.parse(self.metadata_location).service if is_remote(self.metadata_location) else None

    def require_store(self, engine: Engine, *services: Service) -> None:
        """Raise if a cloud service can't reach the files."""
        if self.service not in services:
            where = "on this machine" if self.service is None else f"in {self.metadata_location.split('/', 3)[2]}"
            raise InputError(
                f"{TITLES[engine]} can't read the files of {self.table}, which are {where}.",
                hint='Keep tables in an object store: [catalog] warehouse = "s3://bucket/lake". '
                "Or choose an engine that runs here, such as --engine duckdb.",
                table=str(self.table),
            )

    def pyiceberg_properties(self) -> dict[str, str]:
        """Return the properties that PyIceberg needs to find the store, without credentials."""
        s3, gcs = self.storage.s3, self.storage.gcs
        if self.service == "s3":
            found = {"s3.endpoint": s3.endpoint, "s3.region": s3.region}
            return {key: value for key, value in found.items() if value}
        return {"gcs.service.host": gcs.endpoint} if self.service == "gcs" and gcs.endpoint else {}

    def credentials(self) -> str | None:
        """Return a line about how Python libraries find credentials for the files; ``None`` on this machine."""
        match self.service:
            case "s3":
                return "Credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or a role."
            case "gcs":
                return "Credentials: GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login."
            case "adls":
                return 'Credentials: {"adls.account-key": os.environ["AZURE_STORAGE_KEY"]}, or an identity.'
        return None

    def token_variable(self) -> str | None:
        """Return the environment variable for the catalog's token; ``None`` if it needs none."""
        if self.catalog.token is None:
            return None
        reference = SecretReference.parse(self.catalog.token)
        return reference.place if reference.scheme == "env" else "NESSIE_TOKEN"


def file_uri(location: str) -> str:
    """Return a location as a URI that all engines accept. Hadoop writes ``file:/lake``.

    Example:
        >>> file_uri("file:/lake/t"), file_uri("/lake/t"), file_uri("S3A://lake/t")
        ('file:///lake/t', 'file:///lake/t', 's3://lake/t')
    """
    if is_remote(location):
        return canonical(location)
    return f"file:///{location.removeprefix('file:').lstrip('/')}"


def quoted_text(value: str) -> str:
    """Return a standard SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


def quoted(value: str) -> str:
    """Return an identifier, quoted for standard SQL."""
    return '"' + value.replace('"', '""') + '"'


def python_literal(value: object) -> str:
    """Return a string, or a dict of strings, as a Python literal."""
    # JSON's escapes for characters beyond 16 bits mean something else in Python.
    return json.dumps(value, ensure_ascii=False)
