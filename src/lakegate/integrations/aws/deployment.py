"""A deployment on AWS: plan, deploy, status, destroy."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import lakegate.credentials
from lakegate.errors import InputError
from lakegate.integrations.aws.building import ImageBuilder, builder_stack, repositories
from lakegate.integrations.aws.clients import (
    DENIED,
    Clients,
    DeploymentError,
    DeploymentName,
    error_code,
    translate_errors,
)
from lakegate.integrations.aws.data import Data
from lakegate.integrations.aws.inspection import (
    TIMEOUT_S,
    function_image,
    function_status,
    last_errors,
    last_put_off,
    queue_depth,
    server_status,
    servers_running,
    smoke,
    start_server,
)
from lakegate.integrations.aws.package import contracts_in, file_sha256, settings_in
from lakegate.integrations.aws.parameters import (
    NAMES,
    Deployed,
    DeploymentInventory,
    DeploymentPlan,
    Smoke,
    Status,
    defaults,
    validated,
)
from lakegate.integrations.aws.sizing import idle_costs
from lakegate.integrations.aws.stack import NEW, ChangeSet, CloudStackState, Stack
from lakegate.ports import Narrator

_AUTHORITIES = Path(lakegate.credentials.__file__).with_name("rds.pem")
_ROLE = re.compile(r"arn:[a-z-]+:iam::\d{12}:role/[\w+=,.@/-]+")
_BUCKET = "AWS::S3::Bucket"
_SERVICE = "AWS::ECS::Service"
_ROLE_EXISTS = frozenset({"InvalidInput", "EntityAlreadyExists"})  # IAM's error codes, and an emulator's
_NO_ALARM_EMAIL = (
    "No --alarm-email: no one is alerted when files are given up or wait, on errors, when a server isn't running, or "
    "when a disk is full."
)


class Deployment:
    """One deployment, by its name.

    Args:
        role: ARN of the role for CloudFormation to assume; by default, the caller's own.
    """

    def __init__(
        self, name: str, clients: Clients, narrator: Narrator, *, role: str | None = None, poll_s: float = 2.0
    ) -> None:
        if role is not None and not _ROLE.fullmatch(role):
            raise InputError(
                f"'{role}' isn't the ARN of a role.", hint="Write it as arn:aws:iam::123456789012:role/NAME."
            )
        self.name = DeploymentName(name)
        self._clients = clients
        self._narrator = narrator
        self._poll_s = poll_s
        self._stack = Stack(clients.cloudformation, self.name.stack, narrator, role=role, poll_s=poll_s)
        self._data = Data(clients, self.name.stack, narrator, pause_s=poll_s)
        self._builder = builder_stack(self.name, clients, narrator, poll_s=poll_s)

    def plan(self, given: Mapping[str, str], package: Path, built: Mapping[str, str] | None = None) -> DeploymentPlan:
        """Return what :meth:`deploy` would do. Changes nothing.

        Args:
            given: Template parameters to set. Others keep their values.
            package: The function's zip, see :func:`lakegate.integrations.aws.package.build_package`.
            built: Parameters for the images to run, see :class:`lakegate.integrations.aws.building.Images`. Without an
                image, the function runs the zip.
        """
        values = self._values(given, package, built)
        with self._narrator.step(f"Planning stack {self.name.stack}"):
            prepared = self._stack.prepare(values)
            if prepared is not None:
                self._stack.discard(prepared)
        return self._plan_from(values, prepared)

    def deploy(
        self,
        given: Mapping[str, str],
        package: Path,
        built: Mapping[str, str] | None = None,
        *,
        approve: Callable[[DeploymentPlan], bool] = lambda _: True,
    ) -> Deployed:
        """Create or update the deployment; do nothing if it's up to date. Other arguments are as for :meth:`plan`.

        Args:
            approve: Called with the plan; returns whether to carry it out. Until then, nothing is created.

        Raises:
            DeploymentError: If a resource can't be created, after all changes were rolled back. Or if the function's
                code isn't the package.
        """
        values = self._values(given, package, built)
        with self._narrator.step(f"Planning stack {self.name.stack}"):
            prepared = self._stack.prepare(values)
        if prepared is None:
            state = self._stack.state()
        else:
            ready = False
            try:
                if approve(self._plan_from(values, prepared)):
                    self._put_code(package, values)
                    self._allow_servers(prepared)
                    ready = True
            finally:
                if not ready:  # declined, interrupted or refused, so leave nothing behind
                    self._stack.discard(prepared)
            if not ready:
                return Deployed(stack=self.name.stack, changed=False, declined=True)
            state = self._stack.execute(prepared)
        outputs = dict(state.outputs) if state else {}
        self._require_own_code(outputs, package, values["ImageUri"])
        changed, notes = prepared is not None, self._start_spark(state)
        return Deployed(stack=self.name.stack, changed=changed, outputs=outputs, notes=notes)

    def smoke(self, outputs: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> Smoke:
        """Ingest a test file; see :func:`lakegate.integrations.aws.inspection.smoke`."""
        return smoke(self._clients, outputs, self._services(), self._narrator, timeout_s=timeout_s, poll_s=self._poll_s)

    def status(self, *, errors: int = 5, drift: bool = False) -> Status:
        """Return the deployment's state.

        Args:
            errors: Maximum number of recent errors to return.
            drift: Whether CloudFormation should also detect changes made by others, which takes a while.
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
            servers=server_status(self._clients, self._services()),
            put_off=last_put_off(self._clients, outputs.get("LogGroup")),
            errors=last_errors(self._clients, outputs.get("LogGroup"), errors),
            drifted=self._stack.drifted() if drift else None,
        )

    def _services(self) -> tuple[str, ...]:
        return tuple(one.id for one in self._stack.resources() if one.type == _SERVICE and one.id)

    def parameters(self) -> dict[str, str]:
        """Return the deployed parameters; empty if there's no deployment."""
        state = self._stack.state()
        return dict(state.parameters) if state else {}

    def settings(self, folder: Path) -> Path | None:
        """Fetch the ``lakegate.toml`` of the deployed function into ``folder``; ``None`` if it has none."""
        content = self._beside_package("toml")
        if not content:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name.stack}.toml"
        path.write_bytes(content)
        return path

    def contracts(self, folder: Path) -> Path | None:
        """Fetch the contracts of the deployed function into a folder in ``folder``; ``None`` if it has none."""
        content = self._beside_package("contracts.json")
        if not content:
            return None
        path = folder / f"{self.name.stack}.contracts"
        path.mkdir(parents=True, exist_ok=True)
        texts: dict[str, str] = json.loads(content)
        for old in path.iterdir():
            if old.name not in texts:
                old.unlink()
        for name, text in texts.items():
            (path / Path(name).name).write_text(text, encoding="utf-8")
        return path

    def _beside_package(self, ending: str) -> bytes | None:
        given = self.parameters()
        package = given.get("CodeKey")
        return self._data.read(given["CodeBucket"], f"{package}.{ending}") if package else None

    def images(self, folder: Path) -> ImageBuilder:
        """Return the builder of this deployment's container images."""
        return ImageBuilder(self.name, self._clients, self._narrator, folder)

    def survey(self) -> DeploymentInventory:
        """Return everything that belongs to the deployment, including the data that :meth:`destroy` would delete."""
        state = self._stack.state()
        resources = self._stack.resources() if state else ()
        made = {one.id for one in resources if one.type == _BUCKET and one.id}
        # Find buckets by their tags, which AWS lists with a delay, and by their usual names.
        usual = {self.name.bucket(self._clients.account, self._clients.region), self._code_bucket}
        code = {self._code_bucket, state.parameters.get("CodeBucket") if state else None}
        found = (
            self._data.content(name, is_ours=name in made) for name in sorted({*made, *usual, *self._data.buckets()})
        )
        buckets = [one for one in found if one is not None]
        return DeploymentInventory(
            stack=self.name.stack,
            state=state.status if state else None,
            resources=resources,
            data=tuple(one for one in buckets if one.name not in code),
            code=tuple(one for one in buckets if one.name in code),
            tables=self._data.tables(),
            snapshots=self._data.snapshots(),
            repositories=tuple(one.name for one in repositories(self._clients, self.name.stack) if one.is_ours()),
            builder=self._builder.name if self._builder.state() else None,
        )

    def destroy(self, found: DeploymentInventory, *, keep_data: bool = False) -> None:
        """Delete the deployment. Parts that are already deleted are skipped.

        Args:
            keep_data: Keep the bucket of landing files and warehouse, the catalog's tables and a database snapshot.

        Raises:
            DeploymentError: If a resource can't be deleted; the message says which and why. A retry continues.
        """
        if keep_data:
            self._data.tag(one.name for one in found.data)
        # First the writers, then what they wrote.
        self._stack.delete()
        if found.builder:
            self._builder.delete()
        for repository in repositories(self._clients, self.name.stack):
            if repository.name in found.repositories:
                repository.delete()
        if not keep_data:
            for bucket in found.data:
                self._data.delete_bucket(bucket)
            self._data.delete_tables(found.tables)
            if found.databases or found.snapshots:
                self._data.delete_snapshots(self._data.snapshots())
        for bucket in found.code:
            self._data.delete_bucket(bucket)

    def _require_own_code(self, outputs: Mapping[str, str], package: Path, image: str) -> None:
        name = outputs.get("FunctionName")
        if image:
            running = function_image(self._clients, name)
            is_own = running is not None and running.rpartition("@")[2] == image.rpartition("@")[2]
            deployed = f"image that was deployed ({image})"
        else:
            found = function_status(self._clients, name)
            running = f"SHA-256 {found.code_sha256}" if found else None
            is_own = running == f"SHA-256 {base64.b64encode(file_sha256(package)).decode()}"
            deployed = f"package that was deployed ({package})"
        if running is None or is_own:
            return
        raise DeploymentError(
            f"Function {name} runs other code ({running}) than the {deployed}: someone replaced it, in the function "
            f"or in {'its repository' if image else f'bucket {self._code_bucket}'}.",
            # A concurrency of 0 wouldn't help: the queue would continue, and each refused call counts as an attempt.
            hint=f"Stop it: aws lambda list-event-source-mappings --function-name {name}, then "
            "aws lambda update-event-source-mapping --no-enabled --uuid UUID. Then find out who replaced it.",
            function=name,
        )

    @cached_property
    def _code_bucket(self) -> str:
        return self.name.code_bucket(self._clients.account, self._clients.region)

    def _plan_from(self, values: Mapping[str, str], prepared: ChangeSet | None) -> DeploymentPlan:
        if prepared is None:
            deployed = {name: value for name, value in self.parameters().items() if name in NAMES}
            known: Mapping[str, str] = {**defaults(), **deployed, **values}
        else:
            known = prepared.values
        return DeploymentPlan(
            stack=self.name.stack,
            is_new=prepared is not None and prepared.is_new,
            changes=() if prepared is None else prepared.changes,
            costs=idle_costs(known),
            warnings=() if known["AlarmEmail"] else (_NO_ALARM_EMAIL,),
        )

    def _allow_servers(self, prepared: ChangeSet) -> None:
        """Make AWS create the role that ECS uses in the account. Without it, the first service fails."""
        from botocore.exceptions import ClientError

        needs_none = prepared.values["CatalogUri"] and prepared.values["SparkUrl"]
        if needs_none or not any(one.type == _SERVICE and one.action == "add" for one in prepared.changes):
            return
        with translate_errors("creating the role AWSServiceRoleForECS"):
            try:
                self._clients.iam.create_service_linked_role(AWSServiceName="ecs.amazonaws.com")
            except ClientError as error:
                if error_code(error) in _ROLE_EXISTS:
                    return
                if error_code(error) not in DENIED:
                    raise
                self._narrator.note(
                    "These credentials can't create the role AWSServiceRoleForECS, which ECS needs to start servers: "
                    "aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com"
                )

    def _start_spark(self, state: CloudStackState | None) -> tuple[str, ...]:
        """Start Spark if it should always run but is stopped; return a note about that.

        After a change from on-demand to always, CloudFormation deletes the alarm that stops Spark last. The alarm may
        therefore stop Spark once more, and nothing else would start it again.
        """
        if state is None or state.parameters.get("Schedule") != "always" or state.parameters.get("SparkUrl"):
            return ()
        services = [one.id for one in self._stack.resources() if (one.resource, one.type) == ("SparkService", _SERVICE)]
        if not any(wanted == 0 for _, _, wanted in servers_running(self._clients, services)):
            return ()
        start_server(self._clients, services[0])
        return ("Spark was stopped; starting it takes a few minutes.",)

    def _put_code(self, package: Path, values: Mapping[str, str]) -> None:
        self._data.make_bucket(self._code_bucket)
        if not values["ImageUri"]:
            self._data.upload(package, self._code_bucket, values["CodeKey"])
        settings = settings_in(package)
        if settings is not None:
            self._data.write(settings, self._code_bucket, f"{values['CodeKey']}.toml")
        contracts = contracts_in(package)
        if contracts:
            self._data.write(json.dumps(contracts).encode(), self._code_bucket, f"{values['CodeKey']}.contracts.json")

    def _values(self, given: Mapping[str, str], package: Path, built: Mapping[str, str] | None) -> dict[str, str]:
        return {
            **validated(given),
            "CodeBucket": self._code_bucket,
            "CodeKey": f"function/{file_sha256(package).hex()}.zip",
            "DatabaseAuthority": database_authority(self._clients.region)
            or self._no_database({**self.parameters(), **given}),
            "ImageUri": "",
            **(built or {}),
        }

    def _no_database(self, chosen: Mapping[str, str]) -> str:
        on_postgres = not chosen.get("CatalogUri") and chosen.get("CatalogStore", "postgres") == "postgres"
        if on_postgres or not chosen.get("JournalUrl"):
            raise DeploymentError(
                f"The certificate of a database in {self._clients.region} can't be checked: this version of lakegate "
                "doesn't know RDS's certificate authority there.",
                hint="Update lakegate, choose another --region, or pass your own --journal-url and --catalog-uri.",
                region=self._clients.region,
            )
        return ""


def database_authority(region: str) -> str | None:
    """Return the PEM certificate of RDS's certificate authority in a region; ``None`` if the region is unknown.

    Example:
        >>> str(database_authority("eu-central-1")).splitlines()[0], database_authority("moon-1")
        ('-----BEGIN CERTIFICATE-----', None)
    """
    _, _, found = _AUTHORITIES.read_text(encoding="ascii").partition(f"# {region}\n")
    certificate, _, _ = found.partition("#")
    return certificate.strip() or None
