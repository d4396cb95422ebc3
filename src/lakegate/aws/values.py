"""What a deployment is asked about, as values."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from lakegate.model.base import Value

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


class Plan(Value):
    """What a deployment would do.

    Attributes:
        stack: Name of the stack.
        is_new: Whether there is none yet.
        changes: What would become of each resource; none when all is as wanted.
    """

    stack: str
    is_new: bool
    changes: tuple[Change, ...] = ()


class Deployed(Value):
    """What a deployment did.

    Attributes:
        stack: Name of the stack.
        changed: Whether anything had to be.
        outputs: Names and addresses of what is there.
    """

    stack: str
    changed: bool
    outputs: dict[str, str] = Field(default_factory=dict)


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
        in_flight: Notifications that a call works on.
        dead: Notifications that were given up.
        function: The function; ``None`` when there is none.
        missing: Parts that the stack tells of and that are not there: deleted by others, or with the stack just now.
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
        data: The bucket of landing and warehouse; ``None`` when there is none.
        code: The bucket of functions' zips; likewise.
        tables: Tables of DynamoDB that hold the catalog's commits.
        snapshots: Snapshots of the database that were left by an earlier deletion.
    """

    stack: str
    state: str | None
    resources: tuple[Resource, ...] = ()
    data: BucketContent | None = None
    code: BucketContent | None = None
    tables: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there."""
        return self.state is None and not (self.data or self.code or self.tables or self.snapshots)

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases that the stack holds."""
        return tuple(one.id for one in self.resources if one.type == "AWS::RDS::DBInstance")

    @property
    def has_data(self) -> bool:
        """Whether anything is there that cannot be made again."""
        return bool((self.data and self.data.objects) or self.tables or self.snapshots or self.databases)
