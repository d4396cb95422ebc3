"""The template's parameters, each with a command line option, and the values that a deployment returns."""

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
    """A parameter of the template, which also holds its default.

    Attributes:
        metavar: The placeholder for its value in the help.
        choices: The allowed values, if there are only a few.
        bare: The value of the option without an argument; ``None`` if it needs one.
    """

    name: str
    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    bare: str | None = None

    @property
    def option(self) -> str:
        """The command line option.

        Example:
            >>> Parameter("CatalogUri", "URI", "").option
            '--catalog-uri'
        """
        return "--" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name).lower()


FILLED_IN = ("CodeBucket", "CodeKey", "DatabaseAuthority", "ImageUri", "SparkRepository")
"""Parameters that the deployment itself sets."""

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
"""Names of all parameters."""


@cache
def template(path: Path = TEMPLATE) -> Mapping[str, Any]:
    """Return a template as data, with short forms expanded: ``!Ref X`` becomes ``{"Ref": "X"}``."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML is untyped
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
    """Return a template as JSON without descriptions, to stay below CloudFormation's limit of 51,200 bytes."""
    parameters = {
        name: {key: value for key, value in one.items() if key != "Description"}
        for name, one in template(path)["Parameters"].items()
    }
    return json.dumps({**template(path), "Parameters": parameters}, separators=(",", ":"))


def defaults() -> Mapping[str, str]:
    """Return the template's default of each parameter."""
    return {name: str(one["Default"]) for name, one in template()["Parameters"].items() if "Default" in one}


def validated(given: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters if they're valid together, or raise an error.

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


class ResourceChange(Value):
    """The planned change of one resource.

    Attributes:
        action: ``add``, ``modify``, ``remove``, or another of CloudFormation's actions, such as ``import``.
        type: The resource's type: ``AWS::S3::Bucket``.
        replacement: Whether a modified resource is replaced: ``true``, ``false`` or ``conditional``.
    """

    action: str
    resource: str
    type: str
    replacement: str | None = None
    properties: tuple[str, ...] = ()

    @property
    def leaves_data(self) -> bool:
        """Whether the deployment stops using a resource with data. The data itself is kept."""
        is_other = self.action == "remove" or self.replacement in ("true", "conditional")
        return is_other and self.type in _HOLDS_DATA


class Cost(Value):
    """The monthly cost of one part of an idle deployment; ``None`` if the price is unknown."""

    part: str
    usd: float | None
    note: str = ""


class Saving(Value):
    """A way to reduce costs: the option, its effect, and the USD that it saves per month."""

    option: str
    what: str
    usd: float


class Costs(Value):
    """The monthly cost of an idle deployment.

    Attributes:
        unknown: The parts with unknown prices.
        prices_of: Year and month of the prices.
        source: The source of the prices, and what they exclude.
    """

    parts: tuple[Cost, ...]
    total_usd: float
    unknown: tuple[str, ...] = ()
    smaller: tuple[Saving, ...] = ()
    prices_of: str
    source: str


class DeploymentPlan(Value):
    """The plan of a deployment.

    Attributes:
        is_new: Whether it doesn't exist yet.
        changes: The change of each resource; empty if the deployment is up to date.
    """

    stack: str
    is_new: bool
    changes: tuple[ResourceChange, ...] = ()
    costs: Costs | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Smoke(Value):
    """The result of a smoke test: the test file's table and run, and how long it took."""

    table: str
    run_id: str
    seconds: float


class Deployed(Value):
    """The result of a deployment, and of its smoke test, if there was one."""

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
        base: The image that it was built on, with its digest; ``None`` if unknown.
        builder: What built it; ``None`` if unknown.
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
    """The function's state.

    Attributes:
        runtime: ``python3.12``.
        state: ``Active``, or why it isn't.
        code_sha256: Digest of its zip, in base64.
        modified_at: When it was last changed, in AWS's format.
    """

    name: str
    runtime: str
    state: str
    code_sha256: str
    modified_at: str


class ServerStatus(Value):
    """The state of a server on ECS.

    Attributes:
        wanted: Number of tasks that should run.
        stopped: When and why the last one stopped, within about an hour; ``None`` if none did.
    """

    name: str
    running: int
    wanted: int
    stopped: str | None = None


class LoggedError(Value):
    """A log line about an error."""

    time: datetime
    text: str


class Status(Value):
    """A deployment's state.

    Attributes:
        state: CloudFormation's state: ``UPDATE_COMPLETE``.
        reason: Why it's in that state, if something went wrong.
        waiting: Number of notifications in the queue.
        in_flight: Number of notifications that are in progress or postponed.
        dead: Number of dead letters.
        missing: Parts in the stack's outputs that no longer exist.
        put_off: The last file postponed in the past hours, and why.
        drifted: Resources that others changed; ``None`` if that wasn't checked.
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
    """A bucket and its size.

    Attributes:
        objects: Number of object versions and delete markers.
    """

    name: str
    objects: int
    size_bytes: int


class DeploymentInventory(Value):
    """Everything that belongs to a deployment.

    Attributes:
        state: CloudFormation's state; ``None`` if the stack doesn't exist.
        data: Buckets with landing files and warehouses, including those of earlier deployments.
        code: Buckets with functions' zips.
        tables: DynamoDB tables that hold the catalog's commits.
        snapshots: Database snapshots that an earlier deletion kept.
        builder: The stack that builds an image, or was left by an interrupted build.
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
        """Whether it has anything that can be rebuilt: zips or images."""
        return bool(self.code or self.repositories or self.builder)

    @property
    def is_empty(self) -> bool:
        """Whether there's nothing at all."""
        return self.state is None and not (self.data or self.has_code or self.tables or self.snapshots)

    @property
    def databases(self) -> tuple[str, ...]:
        """The stack's databases."""
        return tuple(one.id for one in self.resources if one.type == "AWS::RDS::DBInstance")

    @property
    def has_data(self) -> bool:
        """Whether it has anything that can't be rebuilt."""
        return bool(any(one.objects for one in self.data) or self.tables or self.snapshots or self.databases)
