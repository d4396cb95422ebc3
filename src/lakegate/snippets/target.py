"""What a snippet reads: a table at one commit, where its files are, and how an engine reaches them."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword
from urllib.parse import urlsplit

from lakegate.config import CatalogSettings, StorageSettings
from lakegate.errors import InputError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.model.secrets import SecretReference
from lakegate.snippets import TITLES, Engine
from lakegate.storage.objects import Address, Service, canonical, is_remote


@dataclass(frozen=True)
class Target:
    """A table to read, at the commit that ``ref`` resolved to.

    Attributes:
        ref: Branch, tag or bare commit, and the commit read.
        metadata_location: Its metadata file, as the catalog spells it.
        has_deletes: Whether delete files may apply to its rows.
        catalog: How lakegate reaches the catalog; secrets are named only.
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
        """The metadata file as a URI that all engines read."""
        return uri(self.metadata_location)

    @property
    def variable(self) -> str:
        """The table's name as a variable of Python's."""
        found = self.table.name.replace("-", "_")
        return f"{found}_table" if iskeyword(found) or hasattr(builtins, found) else found

    @property
    def nessie_uri(self) -> str:
        """Address of Nessie's API."""
        return self.spark_options["uri"]

    @property
    def dotted(self) -> str:
        """Namespace and name, quoted for SQL: ``"nyc"."trips"``."""
        return ".".join(name(part) for part in self.table.parts)

    @property
    def is_pinned(self) -> bool:
        """Whether it can't change: a commit or a tag."""
        return self.ref.kind != "branch"

    @property
    def is_commit(self) -> bool:
        """Whether a bare commit is read, which only its hash names."""
        return self.ref.kind == "detached"

    @property
    def state(self) -> str:
        """What is read, in words: ``main at 1a2b3c``."""
        commit = self.ref.hash[:12]
        return f"commit {commit}" if self.is_commit else f"{self.ref.name} at {commit}"

    @property
    def warehouse_name(self) -> str:
        """By what a client of ``lakegate serve`` asks for this state."""
        if self.is_commit:
            return f"commit:{self.ref.hash}"
        if self.ref.kind == "tag":
            return f"tag:{self.ref.name}"
        if self.ref.name == "main":
            return "main"
        raise InputError(
            f"lakegate serve shows main, tags and commits of it, but not branch '{self.ref.name}'.",
            hint="Leave out --rest to read the branch by its metadata file.",
            ref=self.ref.name,
        )

    @property
    def service(self) -> Service | None:
        """Which object store the files are in; ``None`` on this machine."""
        return Address.parse(self.metadata_location).service if is_remote(self.metadata_location) else None

    def require_store(self, engine: Engine, *services: Service) -> None:
        """Check that a cloud service can reach the files."""
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
        """Return how Python libraries get credentials for the files, in one line; ``None`` on this machine."""
        match self.service:
            case "s3":
                return "Credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or a role."
            case "gcs":
                return "Credentials: GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login."
            case "adls":
                return 'Credentials: {"adls.account-key": os.environ["AZURE_STORAGE_KEY"]}, or an identity.'
        return None

    def token_variable(self) -> str | None:
        """Return the environment variable for the catalog's token; ``None`` without one."""
        if self.catalog.token is None:
            return None
        reference = SecretReference.parse(self.catalog.token)
        return reference.place if reference.scheme == "env" else "NESSIE_TOKEN"


def uri(location: str) -> str:
    """Return a location as a URI that all engines read: Hadoop writes ``file:/lake``.

    Example:
        >>> uri("file:/lake/t"), uri("/lake/t"), uri("S3A://lake/t")
        ('file:///lake/t', 'file:///lake/t', 's3://lake/t')
    """
    if is_remote(location):
        return canonical(location)
    return f"file:///{location.removeprefix('file:').lstrip('/')}"


def text(value: str) -> str:
    """Return a text as a literal of standard SQL."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """Return a name, quoted for standard SQL."""
    return '"' + value.replace('"', '""') + '"'


def python(value: object) -> str:
    """Return a text, or a dict of texts, as Python writes it; in ASCII, so that no character is mistaken."""
    return json.dumps(value)


def host(endpoint: str) -> str:
    """Return host and port of an endpoint."""
    return urlsplit(endpoint).netloc
