"""Building container images: with an engine on this machine, or otherwise with CodeBuild."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from lakegate.errors import ConfigurationError, LakegateError, RetryableError
from lakegate.integrations.aws.clients import Clients, DeploymentError, DeploymentName, translated
from lakegate.integrations.aws.data import Data
from lakegate.integrations.aws.images import CONTAINER, PLATFORMS, ImageSource, Repository, new_tag, spark_source
from lakegate.integrations.aws.package import Architecture, zip_folder
from lakegate.integrations.aws.parameters import BuiltImage, defaults
from lakegate.integrations.aws.stack import Stack
from lakegate.ports import Narrator

Builder = Literal["auto", "docker", "finch", "podman", "codebuild"]

ENGINES: tuple[Builder, ...] = ("docker", "finch", "podman")
BUILDER_TEMPLATE = CONTAINER / "builder.yaml"
_SCRIPT = "build.sh"
_RESOLVED = "base"
_BUILD_TIMEOUT_S = 7200.0
_ANSWER_TIMEOUT_S = 60.0
_LAST_LINES = 200


class Images(NamedTuple):
    """The images that a deployment runs.

    Attributes:
        is_built: Whether all exist; a missing one has a digest of zeros.
    """

    values: Mapping[str, str]
    notes: tuple[str, ...] = ()
    is_built: bool = True


@dataclass(frozen=True, slots=True)
class _Order:
    """An image to build: its files in ``folder``, where to push it, and where to log."""

    source: ImageSource
    folder: Path
    image: str
    repository_arn: str
    log: Path


class ImageBuilder:
    """Builds images of one deployment and pushes them to its repositories.

    Args:
        poll_s: Seconds between two requests about a build of CodeBuild.
    """

    def __init__(
        self, name: DeploymentName, clients: Clients, narrator: Narrator, folder: Path, *, poll_s: float = 5.0
    ) -> None:
        self._name = name
        self._clients = clients
        self._narrator = narrator
        self._folder = folder
        self._poll_s = poll_s
        self._data = Data(clients, name.stack, narrator)
        self._bucket = name.code_bucket(clients.account, clients.region)

    def find(self, source: ImageSource) -> BuiltImage | None:
        """Return the newest image of that content, with the record of its build; ``None`` if there is none."""
        built = Repository(self._clients, self._name.stack, source.kind).newest(source)
        record = built and self._data.read(self._bucket, _record_key(built))
        if built is None or not record:
            return built
        known = json.loads(record)
        return built.model_copy(update={name: known.get(name) for name in ("base", "builder")})

    def spark(self, given: Mapping[str, str], deployed: Mapping[str, str]) -> Images:
        """Return Spark's image, with a note unless it was built for this version.

        Args:
            given: Values of the template's parameters for this deployment.
        """
        deployed = {**defaults(), **deployed}
        chosen = {**deployed, **given}
        if given.get("SparkImage") or chosen["SparkUrl"]:
            return Images({"SparkRepository": ""})
        has_ours, stock = bool(deployed["SparkRepository"]), defaults()["SparkImage"]
        if deployed["SparkImage"] != stock and not has_ours and "SparkImage" not in given:
            return Images({})  # theirs, from an earlier deployment
        architecture = cast("Architecture", chosen["SparkArchitecture"])
        built = self.find(spark_source(architecture))
        if built is not None:
            return Images({"SparkImage": built.uri, "SparkRepository": built.repository_arn})
        command = f"lakegate aws image --name {self._name.name} --architecture {architecture}"
        if has_ours and architecture == deployed["SparkArchitecture"]:
            note = (
                f"Spark keeps the image that another lakegate built ({deployed['SparkImage']}), with its jars. "
                f"Build this version's, then deploy again: {command}"
            )
            return Images({}, (note,))
        note = (
            f"Spark runs {stock} and downloads its jars at each start: it can't start while Docker Hub or Maven "
            f"Central can't be reached, and what they send isn't checked. Build its image, then deploy again: {command}"
        )
        return Images({"SparkImage": stock, "SparkRepository": ""}, (note,))

    def function(self, source: ImageSource, builder: Builder = "auto", *, build: bool = True) -> Images:
        """Return the function's image, which is built unless it exists."""
        built = self.find(source)
        if built is None and not build:
            registry = f"{self._clients.account}.dkr.ecr.{self._clients.region}.amazonaws.com"
            uri = f"{registry}/{self._name.stack}/function@sha256:{'0' * 64}"
            note = "The function's image isn't built yet; `lakegate aws deploy` builds it."
            return Images({"ImageUri": uri}, (note,), is_built=False)
        return Images({"ImageUri": (built or self.build(source, builder)).uri})

    def build(self, source: ImageSource, builder: Builder = "auto") -> BuiltImage:
        """Build an image, push it, and record the base that it was built on.

        Args:
            builder: What builds it. ``auto``: the first engine that runs on this machine, otherwise CodeBuild.

        Raises:
            ConfigurationError: The requested engine isn't running.
            DeploymentError: It can't be built or pushed; with the end of the builder's output.
        """
        engine = None if builder == "codebuild" else _engine(builder)
        repository = Repository(self._clients, self._name.stack, source.kind)
        self._data.make_bucket(self._bucket)
        made = repository.make()
        tag = new_tag(source)
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="image-") as scratch:
            order = _Order(
                source=source,
                folder=Path(scratch),
                image=f"{made['repositoryUri']}:{tag}",
                repository_arn=made["repositoryArn"],
                log=self._folder / f"image-{source.kind}.log",
            )
            source.write(order.folder)
            base = self._with_codebuild(order) if engine is None else self._with_engine(engine, order)
        used = {"base": base, "builder": "codebuild" if engine is None else Path(engine).name}
        built = repository.pushed(source, tag).model_copy(update=used)
        self._data.write(built.model_dump_json(indent=1).encode(), self._bucket, _record_key(built))
        return built

    def _with_engine(self, engine: str, order: _Order) -> str:
        registry = order.image.partition("/")[0]
        with translated("signing in to the registry"):
            token = self._clients.ecr.get_authorization_token()["authorizationData"][0]["authorizationToken"]
        password = base64.b64decode(token).decode().partition(":")[2]
        signing_in = [engine, "login", "--username", "AWS", "--password-stdin", registry]
        variables = {
            "ENGINE": engine,
            "PLATFORM": PLATFORMS[order.source.architecture],
            "BASE": order.source.base,
            "IMAGE": order.image,
        }
        with (
            self._narrator.step(f"Building the image of {order.source.kind} with {Path(engine).name}"),
            order.log.open("wb") as log,
        ):
            done = subprocess.run(
                signing_in, input=password.encode(), check=False, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                if done.returncode == 0:
                    done = subprocess.run(
                        ["sh", _SCRIPT],  # noqa: S607 - where sh is, the system knows
                        cwd=order.folder,
                        env={**os.environ, **variables},
                        stdin=subprocess.DEVNULL,
                        check=False,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
            finally:  # the password is good for twelve hours
                subprocess.run([engine, "logout", registry], check=False, capture_output=True)
        if done.returncode:
            raise _failed(Path(engine).name, order, order.log.read_text(encoding="utf-8", errors="replace"))
        return (order.folder / _RESOLVED).read_text(encoding="utf-8")

    def _with_codebuild(self, order: _Order) -> str:
        key = f"image/{order.image.rpartition(':')[2]}.zip"
        zipped = order.folder / "source.zip"
        zip_folder(order.folder, zipped)
        given = {
            "SourceBucket": self._bucket,
            "SourceKey": key,
            "RepositoryArn": order.repository_arn,
            "Image": order.image,
            "Base": order.source.base,
            "Architecture": order.source.architecture,
        }
        stack = builder_stack(self._name, self._clients, self._narrator, poll_s=self._poll_s)
        self._clear(stack)
        try:
            self._data.upload(zipped, self._bucket, key)
            prepared = stack.prepare(given)
            if prepared is None:
                raise DeploymentError(f"Stack {stack.name}, which builds images, was just created by someone else.")
            project = stack.execute(prepared).outputs["Project"]
            return self._built(project, order)
        finally:
            stack.delete()
            with translated(f"deleting the image's source from bucket {self._bucket}"):
                self._clients.s3.delete_object(Bucket=self._bucket, Key=key)

    def _clear(self, stack: Stack) -> None:
        """Delete what an interrupted build left behind, unless another build is in progress."""
        found = stack.state()
        if found is None:
            return
        project = found.outputs.get("Project")
        goes_on = found.status.endswith("_IN_PROGRESS")
        if project and not goes_on:
            with translated("looking at builds of images"):
                ids = self._clients.codebuild.list_builds_for_project(projectName=project)["ids"]
                builds = self._clients.codebuild.batch_get_builds(ids=ids[:1])["builds"] if ids else []
            goes_on = any(one["buildStatus"] == "IN_PROGRESS" for one in builds)
        if goes_on:
            raise RetryableError(
                f"Another image of {self._name.stack} is being built (stack {stack.name}).",
                hint="Wait until it's done.",
                stack=stack.name,
            )
        stack.delete()

    def _built(self, project: str, order: _Order) -> str:
        """Run the build, and return the base image that it used."""
        codebuild = self._clients.codebuild
        with translated("starting the build"):
            build = codebuild.start_build(projectName=project)["build"]
        try:
            deadline = time.monotonic() + _BUILD_TIMEOUT_S
            with self._narrator.step(f"Building the image of {order.source.kind} with CodeBuild"):
                while build["buildStatus"] == "IN_PROGRESS":
                    if time.monotonic() > deadline:
                        raise RetryableError("CodeBuild didn't finish within two hours.", hint="Try again.")
                    time.sleep(self._poll_s)
                    with translated("following the build"):
                        build = codebuild.batch_get_builds(ids=[build["id"]])["builds"][0]
        finally:
            with suppress(LakegateError):
                order.log.write_text(self._said(build), encoding="utf-8")
            if build["buildStatus"] == "IN_PROGRESS":
                with suppress(LakegateError), translated("stopping the build"):
                    codebuild.stop_build(id=build["id"])
        if build["buildStatus"] != "SUCCEEDED":
            phases = (
                context.get("message", "") for one in build.get("phases", ()) for context in one.get("contexts", ())
            )
            reason = next((text for text in phases if text.strip()), build["buildStatus"])
            said = order.log.read_text(encoding="utf-8") if order.log.is_file() else ""
            raise _failed("CodeBuild", order, f"{said}\n{reason}")
        exported = {one["name"]: one.get("value", "") for one in build.get("exportedEnvironmentVariables", ())}
        return exported.get("RESOLVED") or order.source.base

    def _said(self, build: Any) -> str:
        logs = build.get("logs", {})
        if not logs.get("groupName") or not logs.get("streamName"):
            return ""
        with translated("reading the build's log"):
            events = self._clients.logs.get_log_events(
                logGroupName=logs["groupName"], logStreamName=logs["streamName"], limit=_LAST_LINES
            )["events"]
        return "".join(event["message"] for event in events)


def builder_stack(name: DeploymentName, clients: Clients, narrator: Narrator, *, poll_s: float) -> Stack:
    """Return the stack of CodeBuild's project, which exists while an image is built."""
    # No deployment's stack has such a name: theirs begin with lakegate-.
    called = f"build-{name.stack}"
    return Stack(clients.cloudformation, called, narrator, poll_s=poll_s, template=BUILDER_TEMPLATE)


def _engine(wanted: Builder) -> str | None:
    """Return the engine to build with; ``None`` for ``auto`` if none is running."""
    for name in ENGINES if wanted == "auto" else (wanted,):
        path = shutil.which(name)
        if path and _answers(path):
            return path
    if wanted == "auto":
        return None
    raise ConfigurationError(
        f"{wanted} isn't installed here or isn't running.", hint="Start it, or choose --builder codebuild."
    )


def _answers(engine: str) -> bool:
    """Return whether an engine's server runs: its command alone builds nothing."""
    try:
        asked = subprocess.run([engine, "info"], check=False, capture_output=True, timeout=_ANSWER_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _failed(builder: str, order: _Order, said: str) -> DeploymentError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = " ".join(lines[-3:])[-400:] or "no output"
    hint = f"Full log: {order.log}."
    if "exec format error" in said:
        hint = f"This machine can't run programs for {order.source.architecture}. Pass --builder codebuild. {hint}"
    elif "toomanyrequests" in said:
        hint = (
            f"Docker Hub's rate limit is reached: retry later, or pass --base with an image of another registry. {hint}"
        )
    elif builder != "CodeBuild":
        hint += " To build on AWS, pass --builder codebuild."
    return DeploymentError(f"{builder} couldn't build {order.image}: {last}", hint=hint, image=order.image)


def _record_key(built: BuiltImage) -> str:
    return f"image/{built.kind}/{built.tag}.json"
