"""A deployment on AWS: what it would change, making it, how it is, deleting it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from lakegate.aws.clients import Clients
from lakegate.aws.data import Data
from lakegate.aws.errors import DeploymentError
from lakegate.aws.looking import function_status, last_errors, queue_depth
from lakegate.aws.names import DeploymentName
from lakegate.aws.package import settings_in
from lakegate.aws.parameters import validated
from lakegate.aws.stack import NEW, Stack
from lakegate.aws.values import Deployed, Plan, Status, Survey
from lakegate.protocols import Narrator

_BUCKET = "AWS::S3::Bucket"
_CHUNK = 1 << 20


class Deployment:
    """One deployment, by its name.

    Args:
        name: Its name: ``demo``.
        clients: The services of AWS, see :func:`lakegate.aws.clients.open_clients`.
        narrator: Told of progress.
        poll_s: Seconds between two looks at what CloudFormation does.

    Raises:
        InputError: When the name cannot be one.
    """

    def __init__(self, name: str, clients: Clients, narrator: Narrator, *, poll_s: float = 2.0) -> None:
        self.name = DeploymentName(name)
        self._clients = clients
        self._narrator = narrator
        self._stack = Stack(clients.cloudformation, self.name.stack, narrator, poll_s=poll_s)
        self._data = Data(clients, self.name.stack, narrator)

    def plan(self, given: Mapping[str, str], package: Path) -> Plan:
        """Return what :meth:`deploy` would do. Nothing is changed.

        Args:
            given: Values of the template's parameters; what is not given stays as it is.
            package: The function's zip, see :func:`lakegate.aws.package.build_package`.

        Raises:
            LakegateError: When AWS refuses, or cannot serve; see :func:`lakegate.aws.errors.translated`.
        """
        values = self._values(given, package)
        with self._narrator.step(f"Planning stack {self.name.stack}"):
            prepared = self._stack.prepare(values)
            if prepared is None:
                return Plan(stack=self.name.stack, is_new=False)
            self._stack.discard(prepared)
        return Plan(stack=self.name.stack, is_new=prepared.is_new, changes=prepared.changes)

    def deploy(
        self, given: Mapping[str, str], package: Path, *, approve: Callable[[Plan], bool] = lambda _: True
    ) -> Deployed:
        """Make the deployment what it is to be; when it is that already, do nothing.

        Args:
            given: As for :meth:`plan`.
            package: Likewise.
            approve: Shown what is about to be done; it is done when that returns ``True``.

        Raises:
            DeploymentError: When a resource cannot be made; everything is as it was before then.
            LakegateError: When AWS refuses, or cannot serve.
        """
        values = self._values(given, package)
        self._data.make_bucket(self._code_bucket)
        self._data.upload(package, self._code_bucket, values["CodeKey"])
        settings = settings_in(package)
        if settings is not None:
            self._data.write(settings, self._code_bucket, _settings_key(values["CodeKey"]))
        with self._narrator.step(f"Planning stack {self.name.stack}"):
            prepared = self._stack.prepare(values)
        if prepared is None:
            state = self._stack.state()
            return Deployed(stack=self.name.stack, changed=False, outputs=dict(state.outputs) if state else {})
        if not approve(Plan(stack=self.name.stack, is_new=prepared.is_new, changes=prepared.changes)):
            self._stack.discard(prepared)
            return Deployed(stack=self.name.stack, changed=False)
        end = self._stack.execute(prepared)
        return Deployed(stack=self.name.stack, changed=True, outputs=dict(end.outputs))

    def status(self, *, errors: int = 5, drift: bool = False) -> Status:
        """Return the deployment as it is.

        Args:
            errors: How many of the last errors to return.
            drift: Also have CloudFormation look for what was changed by others, which takes a while.

        Raises:
            DeploymentError: When there is none.
        """
        state = self._stack.state()
        if state is None or state.status == NEW:
            raise DeploymentError(
                f"There is no stack {self.name.stack} in {self._clients.region}.",
                hint=f"lakegate aws deploy --name {self.name.name}, or check --region and --profile.",
                stack=self.name.stack,
            )
        outputs = state.outputs
        waiting, in_flight = queue_depth(self._clients, outputs.get("QueueUrl"))
        dead, _ = queue_depth(self._clients, outputs.get("DeadLettersUrl"))
        function = function_status(self._clients, outputs.get("FunctionName"))
        found = {"QueueUrl": waiting, "DeadLettersUrl": dead, "FunctionName": function}
        return Status(
            stack=self.name.stack,
            state=state.status,
            reason=state.reason or None,
            parameters={name: value for name, value in state.parameters.items() if value},
            outputs=dict(outputs),
            waiting=waiting,
            in_flight=in_flight,
            dead=dead,
            function=function,
            missing=tuple(outputs[name] for name, part in found.items() if part is None and name in outputs),
            errors=last_errors(self._clients, outputs.get("LogGroup"), errors),
            drifted=self._stack.drifted() if drift else None,
        )

    def parameters(self) -> dict[str, str]:
        """Return what it was deployed with; nothing when it was not."""
        state = self._stack.state()
        return dict(state.parameters) if state else {}

    def settings(self, folder: Path) -> Path | None:
        """Fetch the ``lakegate.toml`` that the deployed function has; ``None`` when it has none.

        Args:
            folder: Where to write it; is made.

        Raises:
            LakegateError: When AWS refuses, or cannot serve.
        """
        package = self.parameters().get("CodeKey")
        content = package and self._data.read(self._code_bucket, _settings_key(package))
        if not content:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name.stack}.toml"
        path.write_bytes(content)
        return path

    def survey(self) -> Survey:
        """Return all that belongs to the deployment, with what :meth:`destroy` would delete of data."""
        state = self._stack.state()
        resources = self._stack.resources() if state else ()
        made = next((one.id for one in resources if one.type == _BUCKET and one.id), None)
        bucket = made or self.name.bucket(self._clients.account, self._clients.region)
        return Survey(
            stack=self.name.stack,
            state=state.status if state else None,
            resources=resources,
            data=self._data.content(bucket, is_ours=made is not None),
            code=self._data.content(self._code_bucket),
            tables=self._data.tables(),
            snapshots=self._data.snapshots(),
        )

    def destroy(self, found: Survey, *, keep_data: bool = False) -> None:
        """Delete the deployment; what is gone already is no error.

        Args:
            found: What :meth:`survey` returned.
            keep_data: Leave the bucket of landing and warehouse, the catalog's tables and a snapshot of the database.

        Raises:
            DeploymentError: When a resource cannot be deleted, naming it and why. Run again, it goes on.
        """
        # First what writes, then what was written.
        self._stack.delete()
        if not keep_data:
            if found.data:
                self._data.delete_bucket(found.data)
            self._data.delete_tables(found.tables)
            if found.databases or found.snapshots:
                self._data.delete_snapshots(self._data.snapshots())
        if found.code:
            self._data.delete_bucket(found.code)

    @cached_property
    def _code_bucket(self) -> str:
        return self.name.code_bucket(self._clients.account, self._clients.region)

    def _values(self, given: Mapping[str, str], package: Path) -> dict[str, str]:
        return {**validated(given), "CodeBucket": self._code_bucket, "CodeKey": _key(package)}


def _settings_key(package: str) -> str:
    return f"{package}.toml"


def _key(package: Path) -> str:
    digest = hashlib.sha256()
    with package.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return f"function/{digest.hexdigest()}.zip"
