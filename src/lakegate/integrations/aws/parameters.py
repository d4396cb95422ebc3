"""The template's parameters as users give them: by an option each, which is named after the parameter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from lakegate.errors import InputError
from lakegate.model.base import Value

TEMPLATE = Path(__file__).with_name("template.yaml")


class Parameter(NamedTuple):
    """A parameter of the template. Its default is the template's.

    Attributes:
        name: As the template calls it.
        metavar: What its value is, in help.
        help: What it means.
        choices: The values that are allowed, when they are few.
        bare: What the option means without a value; with none, it needs one.
    """

    name: str
    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    bare: str | None = None

    @property
    def option(self) -> str:
        """The option of the command line.

        Example:
            >>> Parameter("CatalogUri", "URI", "").option
            '--catalog-uri'
        """
        return "--" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name).lower()


FILLED_IN = ("CodeBucket", "CodeKey", "DatabaseAuthority", "ImageUri", "SparkRepository")
"""Parameters that a deployment fills in itself."""

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        "BucketName",
        "NAME",
        "Bucket for landing files and the warehouse. Default: named after the deployment, account and region.",
    ),
    Parameter("LandingPrefix", "PREFIX", "Prefix of the keys to ingest. Default: landing/"),
    Parameter("Namespaces", "NAMES", "Namespaces that landing files may go to, comma-separated. Default: any."),
    Parameter(
        "Routes", "JSON", "Which table each file goes to: a list of routes. Default: PREFIX/NAMESPACE/TABLE/FILE."
    ),
    Parameter("NoncurrentDays", "DAYS", "How long overwritten and deleted objects can be restored. Default: 30"),
    Parameter("PythonVersion", "X.Y", "Python version of the function. Default: 3.12", ("3.12", "3.13", "3.14")),
    Parameter("Architecture", "NAME", "CPU architecture of the function. Default: x86_64", ("x86_64", "arm64")),
    Parameter("FunctionMemory", "MB", "Memory of the function. Default: 2048"),
    Parameter(
        "FunctionTimeout", "S", "Timeout of a call, in seconds. Default: 300", ("60", "120", "300", "600", "900")
    ),
    Parameter("BatchSize", "N", "Maximum number of notifications in a call. Default: 50"),
    Parameter("BatchWindow", "S", "Seconds to wait for more notifications before a call. Default: 10"),
    Parameter(
        "MaximumConcurrency", "N", "Maximum number of concurrent calls. Default: 2", ("2", "5", "10", "20", "50", "100")
    ),
    Parameter("ReservedConcurrency", "N", "Concurrency to reserve from the account's. Default: none"),
    Parameter(
        "MaxReceiveCount", "N", "How often to receive a notification before it becomes a dead letter. Default: 120"
    ),
    Parameter("LogDays", "DAYS", "How long to keep logs. Default: 30"),
    Parameter(
        "AlarmEmail", "ADDRESS", "Who gets alarms: dead letters, old messages, errors, stopped servers, a full disk."
    ),
    Parameter("SlackSecretArn", "ARN", "Secret with a Slack webhook, for alerts about rejected batches."),
    Parameter("SecretArns", "ARNS", "More secrets that the lakegate.toml of --settings refers to, comma-separated."),
    Parameter("CatalogUri", "URI", "Your own Nessie. Default: one is created."),
    Parameter("CatalogTokenArn", "ARN", "Secret with the bearer token of your own Nessie."),
    Parameter(
        "CatalogStore",
        "NAME",
        "Where the created Nessie stores its commits. Default: postgres",
        ("postgres", "dynamodb"),
    ),
    Parameter("CatalogImage", "IMAGE", "Container image of the created Nessie."),
    Parameter("CatalogClients", "CIDR", "Addresses from which your own Spark reaches the created Nessie."),
    Parameter("SparkUrl", "URL", "Your own Spark Connect server: sc://host:15002. Default: a small one is created."),
    Parameter("SparkTokenArn", "ARN", "Secret with the bearer token of your own Spark."),
    Parameter("SparkSize", "NAME", "Size of the created Spark. Default: small", ("small", "medium", "large")),
    Parameter(
        "Schedule",
        "WHEN",
        "Stop the created Spark while no files arrive, and start it on the first one. Default: always",
        ("always", "on-demand"),
        bare="on-demand",
    ),
    Parameter(
        "SparkImage",
        "IMAGE",
        "Container image of the created Spark. Default: the one that `lakegate aws image` built, if any.",
    ),
    Parameter(
        "SparkArchitecture", "NAME", "CPU architecture of the created Spark. Default: x86_64", ("x86_64", "arm64")
    ),
    Parameter(
        "JournalUrl", "URL", "Your own Postgres: postgresql://user@host:5432/name. Default: a database is created."
    ),
    Parameter("JournalPasswordArn", "ARN", "Secret with the password of your own Postgres."),
    Parameter("DatabaseImage", "IMAGE", "Container image with psql, which sets up the database of Nessie and journal."),
    Parameter("DatabaseClass", "CLASS", "Instance class of the created database. Default: db.t4g.micro"),
    Parameter("DatabaseGb", "GB", "Disk size of the created database. Default: 20"),
    Parameter("DatabaseMaxGb", "GB", "Maximum size to which that disk grows. Default: 100"),
    Parameter("VpcId", "ID", "Your own network. Default: one is created if anything needs it."),
    Parameter("SubnetIds", "IDS", "Two or more private subnets of your own network, comma-separated."),
    Parameter(
        "Egress",
        "WAY",
        "How the created network reaches AWS: a NAT gateway, or endpoints and servers' public addresses. Default: nat",
        ("nat", "endpoints"),
    ),
    Parameter("NetworkCidr", "CIDR", "Addresses of the created network. Default: 10.77.0.0/24"),
)


NAMES = frozenset({*FILLED_IN, *(parameter.name for parameter in PARAMETERS)})
"""All of them."""


@cache
def template(path: Path = TEMPLATE) -> Mapping[str, Any]:
    """Return a template as data, its short forms spelled out: ``!Ref X`` is ``{"Ref": "X"}``."""
    import yaml  # type: ignore[import-untyped]

    class Loader(yaml.SafeLoader):  # type: ignore[misc] # untyped, as said
        pass

    def spell_out(loader: Any, tag: str, node: Any) -> dict[str, Any]:
        if isinstance(node, yaml.ScalarNode):
            value = loader.construct_scalar(node)
        elif isinstance(node, yaml.SequenceNode):
            value = loader.construct_sequence(node, deep=True)
        else:
            value = loader.construct_mapping(node, deep=True)
        if tag == "GetAtt":
            value = value.split(".", 1)
        return {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": value}

    Loader.add_multi_constructor("!", spell_out)
    with path.open(encoding="utf-8") as source:
        loaded: Mapping[str, Any] = yaml.load(source, Loader)  # noqa: S506 - a SafeLoader
    return loaded


def template_body(path: Path = TEMPLATE) -> str:
    """Return a template as it is sent: CloudFormation takes 51,200 bytes, and more only from a bucket."""
    parameters = {
        name: {key: value for key, value in one.items() if key != "Description"}
        for name, one in template(path)["Parameters"].items()
    }
    return json.dumps({**template(path), "Parameters": parameters}, separators=(",", ":"))


def defaults() -> Mapping[str, str]:
    """Return what the template takes for each parameter that is not given."""
    return {name: str(one["Default"]) for name, one in template()["Parameters"].items() if "Default" in one}


def validated(given: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that were given, or raise what is wrong with them together.

    Raises:
        InputError: When one is unknown, or needs another one.

    Example:
        >>> validated({"VpcId": "vpc-0123456789abcdef0"})
        Traceback (most recent call last):
        lakegate.errors.InputError: --vpc-id and --subnet-ids go together.
    """
    known = {parameter.name: parameter for parameter in PARAMETERS}
    for name in given:
        if name not in known:
            raise InputError(f"The template has no parameter '{name}'.", parameter=name)
    if ("VpcId" in given) != ("SubnetIds" in given):
        raise InputError(
            "--vpc-id and --subnet-ids go together.", hint="Pass both, or neither to have a network created."
        )
    return dict(given)


_HOLDS_DATA = frozenset({"AWS::S3::Bucket", "AWS::RDS::DBInstance", "AWS::DynamoDB::Table"})


class Change(Value):
    """What would become of one resource.

    Attributes:
        action: ``add``, ``modify``, ``remove``; also ``import``, ``dynamic`` and others of CloudFormation's.
        resource: Its name in the template.
        type: Its kind: ``AWS::S3::Bucket``.
        replacement: ``true``, ``false`` or ``conditional`` for one that is modified: whether it is made anew.
        properties: What of it changes.
    """

    action: str
    resource: str
    type: str
    replacement: str | None = None
    properties: tuple[str, ...] = ()

    @property
    def leaves_data(self) -> bool:
        """Whether it may part the deployment from data: that is kept, but nothing uses it any more."""
        is_other = self.action == "remove" or self.replacement in ("true", "conditional")
        return is_other and self.type in _HOLDS_DATA


class Cost(Value):
    """What one part of a deployment costs a month while nothing lands; ``None`` when its price isn't known."""

    part: str
    usd: float | None
    note: str = ""


class Saving(Value):
    """What would make a deployment cost less: the option, what it means, and what it saves a month."""

    option: str
    what: str
    usd: float


class Costs(Value):
    """What a deployment costs a month while nothing lands.

    Attributes:
        parts: Each part.
        total_usd: All of them whose price is known.
        unknown: The parts whose price isn't.
        smaller: What would make it less.
        prices_of: Year and month of the prices.
        source: Where they are from, and what they are without.
    """

    parts: tuple[Cost, ...]
    total_usd: float
    unknown: tuple[str, ...] = ()
    smaller: tuple[Saving, ...] = ()
    prices_of: str
    source: str


class Plan(Value):
    """What a deployment would do.

    Attributes:
        stack: Name of the stack.
        is_new: Whether there is none yet.
        changes: What would become of each resource; none when all is as wanted.
        costs: What it costs while nothing lands.
        warnings: What should be known before.
        notes: What else one should know.
    """

    stack: str
    is_new: bool
    changes: tuple[Change, ...] = ()
    costs: Costs | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Smoke(Value):
    """A file that went through a deployment: the table it was published to, its run, and how long it took."""

    table: str
    run_id: str
    seconds: float


class Deployed(Value):
    """What a deployment did.

    Attributes:
        stack: Name of the stack.
        changed: Whether anything was.
        declined: Whether it was not approved.
        outputs: Names and addresses of what is there.
        smoke: The file that was sent through it; ``None`` when none was.
        notes: What else one should know.
    """

    stack: str
    changed: bool
    declined: bool = False
    outputs: dict[str, str] = Field(default_factory=dict)
    smoke: Smoke | None = None
    notes: tuple[str, ...] = ()


class BuiltImage(Value):
    """A container image in this account's registry.

    Attributes:
        kind: ``spark`` or ``function``.
        architecture: The processor that it is for.
        uri: What to run, by its digest.
        digest: The digest alone.
        tag: The tag that it was pushed by; it names this image for ever.
        repository: The repository that it is in.
        repository_arn: Its ARN.
        pushed_at: When it was pushed.
        size_bytes: Its size, packed.
        base: The image that it was built on, by the digest that this had then; ``None`` when that is not known.
        builder: What built it; likewise.
    """

    kind: str
    architecture: str
    uri: str
    digest: str
    tag: str
    repository: str
    repository_arn: str
    pushed_at: datetime
    size_bytes: int
    base: str | None = None
    builder: str | None = None


class FunctionStatus(Value):
    """The function as it is.

    Attributes:
        name: Its name.
        runtime: ``python3.12``.
        state: ``Active``, or what keeps it from that.
        code_sha256: Digest of its zip, in base64, as AWS tells it.
        modified_at: When it was last changed, as AWS tells it.
    """

    name: str
    runtime: str
    state: str
    code_sha256: str
    modified_at: str


class ServerStatus(Value):
    """A server on ECS as it is.

    Attributes:
        name: Its service's.
        running: Tasks that run.
        wanted: Tasks that are to run.
        stopped: When and why the last one stopped, of about the last hour; ``None`` when none did.
    """

    name: str
    running: int
    wanted: int
    stopped: str | None = None


class LoggedError(Value):
    """One line of the logs that tells of an error."""

    time: datetime
    text: str


class Status(Value):
    """A deployment as it is.

    Attributes:
        stack: Name of the stack.
        state: CloudFormation's: ``UPDATE_COMPLETE``.
        reason: Why it is in that state, when something went wrong.
        parameters: What it was deployed with.
        outputs: Names and addresses of what is there.
        waiting: Notifications in the queue.
        in_flight: Notifications that a call works on, or that were put off and come again.
        dead: Notifications that were given up.
        function: The function; ``None`` when there is none.
        missing: Parts that the stack tells of and that are not there: deleted by others, or with the stack just now.
        servers: Nessie and Spark, where they are made.
        put_off: The last file that was put off, of some hours, and why; ``None`` when none was.
        errors: The last errors of its logs.
        drifted: Resources that were changed by others; ``None`` when that was not asked.
    """

    stack: str
    state: str
    reason: str | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    outputs: dict[str, str] = Field(default_factory=dict)
    waiting: int | None = None
    in_flight: int | None = None
    dead: int | None = None
    function: FunctionStatus | None = None
    missing: tuple[str, ...] = ()
    servers: tuple[ServerStatus, ...] = ()
    put_off: LoggedError | None = None
    errors: tuple[LoggedError, ...] = ()
    drifted: tuple[str, ...] | None = None


class Resource(Value):
    """One resource of a stack."""

    resource: str
    type: str
    id: str


class BucketContent(Value):
    """A bucket with what is in it.

    Attributes:
        name: The bucket.
        objects: Versions of objects and marks of deletion in it.
        size_bytes: Their size.
    """

    name: str
    objects: int
    size_bytes: int


class Survey(Value):
    """All that belongs to a deployment.

    Attributes:
        stack: Name of the stack.
        state: CloudFormation's; ``None`` when there is no stack (any more).
        resources: What the stack holds.
        data: The buckets of landing and warehouse: the stack's, and those that it had earlier.
        code: The buckets of functions' zips.
        tables: Tables of DynamoDB that hold the catalog's commits.
        snapshots: Snapshots of the database that were left by an earlier deletion.
        repositories: Repositories of container images.
        builder: Stack that builds an image, or was left by a build that was cut short.
    """

    stack: str
    state: str | None
    resources: tuple[Resource, ...] = ()
    data: tuple[BucketContent, ...] = ()
    code: tuple[BucketContent, ...] = ()
    tables: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    builder: str | None = None

    @property
    def has_code(self) -> bool:
        """Whether anything is there that can be made again: zips, images."""
        return bool(self.code or self.repositories or self.builder)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there."""
        return self.state is None and not (self.data or self.has_code or self.tables or self.snapshots)

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases that the stack holds."""
        return tuple(one.id for one in self.resources if one.type == "AWS::RDS::DBInstance")

    @property
    def has_data(self) -> bool:
        """Whether anything is there that cannot be made again."""
        return bool(any(one.objects for one in self.data) or self.tables or self.snapshots or self.databases)
