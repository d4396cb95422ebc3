"""Container images: find this version's image, or build it with a local container engine or CodeBuild."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from lakegate.errors import ConfigurationError, LakegateError, RetryableError
from lakegate.integrations.aws.clients import (
    GONE,
    STACK_TAG,
    Clients,
    DeploymentError,
    DeploymentName,
    not_ours,
    translate_errors,
)
from lakegate.integrations.aws.data import Data
from lakegate.integrations.aws.package import Architecture, file_sha256, zip_folder
from lakegate.integrations.aws.parameters import BuiltImage, defaults
from lakegate.integrations.aws.stack import Stack
from lakegate.model.artifacts import ICEBERG, S3_ARTIFACTS, ivy_module
from lakegate.ports import Narrator

Kind = Literal["spark", "function"]

CONTAINER = Path(__file__).with_name("container")
SPARK_JARS = (ICEBERG, *S3_ARTIFACTS)
"""The jars in Spark's image, the same as in a local stack with tables on S3."""
PLATFORMS: Mapping[Architecture, str] = {"x86_64": "linux/amd64", "arm64": "linux/arm64"}

_BASE = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)
_INDEXES = ("image.index.v1+json", "manifest.list.v2+json")


@dataclass(frozen=True, slots=True)
class ImageSource:
    """The source of an image.

    Attributes:
        package: The function's zip, whose content goes into the function's image.
    """

    kind: Kind
    architecture: Architecture
    base: str
    package: Path | None = None

    @property
    def stem(self) -> str:
        """Prefix of the image's tag, derived from the content and independent of the base image.

        Example:
            >>> spark_source("x86_64").stem.rpartition("-")[0]
            'x86_64'
        """
        digest = hashlib.sha256()
        for name, content in sorted(self._files().items()):
            digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        if self.package is not None:
            digest.update(file_sha256(self.package))
        return f"{self.architecture}-{digest.hexdigest()[:16]}"

    def write(self, folder: Path) -> None:
        """Write the builder's input into ``folder``: ``Dockerfile``, ``build.sh`` and their files."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self._files().items():
            (folder / name).write_bytes(content)
        if self.package is not None:
            with zipfile.ZipFile(self.package) as archive:
                archive.extractall(folder / "function")

    def _files(self) -> dict[str, bytes]:
        files = {
            "Dockerfile": (CONTAINER / f"{self.kind}.Dockerfile").read_bytes(),
            "build.sh": (CONTAINER / "build.sh").read_bytes(),
        }
        if self.kind == "spark":
            sums = "".join(f"{jar.sha256}  {jar.file_name}\n" for jar in SPARK_JARS)
            files |= {
                "fetch-jars.sh": (CONTAINER / "fetch-jars.sh").read_bytes(),
                "jars.xml": ivy_module(SPARK_JARS).encode(),
                "jars.sha256": sums.encode(),
            }
        return files


def spark_source(architecture: Architecture, base: str | None = None) -> ImageSource:
    """Return the source of Spark's image: Spark with the jars that the local stack pins."""
    return ImageSource("spark", architecture, base or _base("spark"))


def function_source(architecture: Architecture, python: str, package: Path) -> ImageSource:
    """Return the source of the function's image: AWS's image for that Python version with the zip's content."""
    image = _base("function").rpartition(":")[0]
    return ImageSource("function", architecture, f"{image}:{python}", package)


def _base(kind: Kind) -> str:
    """Return the base image that a Dockerfile names."""
    [base] = _BASE.findall((CONTAINER / f"{kind}.Dockerfile").read_text(encoding="utf-8"))
    return str(base)


class Repository:
    """The ECR repository for one kind of a deployment's images. Its tags are immutable."""

    def __init__(self, clients: Clients, stack: str, kind: Kind) -> None:
        self.name = f"{stack}/{kind}"
        self._kind = kind
        self._clients = clients
        self._stack = stack

    def describe(self) -> Any:
        """Return ECR's description of the repository; ``None`` if it doesn't exist."""
        with translate_errors(f"looking at repository {self.name}", unless=GONE):
            return self._clients.ecr.describe_repositories(repositoryNames=[self.name])["repositories"][0]
        return None

    def is_ours(self) -> bool:
        """Return whether it exists and has the deployment's tag."""
        found = self.describe()
        if found is None:
            return False
        with translate_errors(f"looking at repository {self.name}"):
            tags = self._clients.ecr.list_tags_for_resource(resourceArn=found["repositoryArn"])["tags"]
        return {"Key": STACK_TAG, "Value": self._stack} in tags

    def make(self) -> Any:
        """Create the private repository with immutable tags, unless it exists; return ECR's description of it."""
        found = self.describe()
        if found is not None and not self.is_ours():
            raise not_ours(f"Repository {self.name}", self._stack, repository=self.name)
        ecr = self._clients.ecr
        with translate_errors(f"creating repository {self.name}"):
            if found is None:
                found = ecr.create_repository(
                    repositoryName=self.name,
                    imageTagMutability="IMMUTABLE",
                    imageScanningConfiguration={"scanOnPush": True},
                    encryptionConfiguration={"encryptionType": "AES256"},
                    tags=[{"Key": STACK_TAG, "Value": self._stack}],
                )["repository"]
            # Each time, so that a repository whose creation was interrupted gets the policies too.
            policy = (CONTAINER / "lifecycle.json").read_text(encoding="utf-8")
            ecr.put_lifecycle_policy(repositoryName=self.name, lifecyclePolicyText=policy)
            if self._kind == "function":
                pulls = json.dumps(_lambda_pulls(found["repositoryArn"]))
                ecr.set_repository_policy(repositoryName=self.name, policyText=pulls)
        return found

    def newest(self, source: ImageSource) -> BuiltImage | None:
        """Return the last pushed image with this content; ``None`` if there is none."""
        repository = self.describe()
        if repository is None:
            return None
        stem = f"{source.stem}-"
        with translate_errors(f"listing repository {self.name}"):
            pages = self._clients.ecr.get_paginator("describe_images").paginate(
                repositoryName=self.name, filter={"tagStatus": "TAGGED"}
            )
            found = [
                (one["imagePushedAt"], tag, one)
                for page in pages
                for one in page["imageDetails"]
                for tag in one.get("imageTags", ())
                if tag.startswith(stem)
            ]
        if not found:
            return None
        _, tag, image = max(found, key=lambda one: one[:2])
        return self._describe_image(repository, source, tag, image)

    def pushed(self, source: ImageSource, tag: str) -> BuiltImage:
        """Return the image that was just pushed with this tag, with its digest from ECR."""
        repository = self.describe()
        images = []
        with translate_errors(f"looking at image {self.name}:{tag}", unless=GONE):
            found = self._clients.ecr.describe_images(repositoryName=self.name, imageIds=[{"imageTag": tag}])
            images = found["imageDetails"]
        if repository is None or not images:
            raise DeploymentError(f"The image {self.name}:{tag} was built but isn't in the repository.", tag=tag)
        if images[0].get("imageManifestMediaType", "").endswith(_INDEXES):
            raise DeploymentError(
                f"The image {self.name}:{tag} is an index of several images; Lambda needs a single one.",
                hint="Build it with --builder codebuild.",
                tag=tag,
            )
        return self._describe_image(repository, source, tag, images[0])

    def delete(self) -> None:
        """Delete the repository with its images, if it exists."""
        with translate_errors(f"deleting repository {self.name}", unless=GONE):
            self._clients.ecr.delete_repository(repositoryName=self.name, force=True)

    def _describe_image(self, repository: Any, source: ImageSource, tag: str, image: Any) -> BuiltImage:
        return BuiltImage(
            kind=source.kind,
            architecture=source.architecture,
            uri=f"{repository['repositoryUri']}@{image['imageDigest']}",
            digest=image["imageDigest"],
            tag=tag,
            repository=self.name,
            repository_arn=repository["repositoryArn"],
            pushed_at=image["imagePushedAt"],
            size_bytes=image.get("imageSizeInBytes", 0),
        )


def repositories(clients: Clients, stack: str) -> tuple[Repository, ...]:
    """Return the repositories that a deployment may have."""
    return tuple(Repository(clients, stack, kind) for kind in get_args(Kind))


def new_tag(source: ImageSource) -> str:
    """Return a new tag for an image to build. Tags are immutable, so each build needs its own."""
    return f"{source.stem}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def _lambda_pulls(repository_arn: str) -> dict[str, Any]:
    _, partition, _, region, account, _ = repository_arn.split(":", 5)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "LambdaPulls",
                "Effect": "Allow",
                "Principal": {"Service": "lambda.amazonaws.com"},
                "Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
                "Condition": {"StringLike": {"aws:sourceArn": f"arn:{partition}:lambda:{region}:{account}:function:*"}},
            }
        ],
    }


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
        is_built: Whether all images exist. The digest of a missing one is all zeros.
    """

    values: Mapping[str, str]
    notes: tuple[str, ...] = ()
    is_built: bool = True


@dataclass(frozen=True, slots=True)
class _BuildJob:
    """An image to build: its files in ``folder``, where to push it, and where to log."""

    source: ImageSource
    folder: Path
    image: str
    repository_arn: str
    log: Path


class ImageBuilder:
    """Builds images of one deployment and pushes them to its repositories."""

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
        """Return the newest image with this content and the record of its build; ``None`` if there is none."""
        built = Repository(self._clients, self._name.stack, source.kind).newest(source)
        record = built and self._data.read(self._bucket, _record_key(built))
        if built is None or not record:
            return built
        known = json.loads(record)
        return built.model_copy(update={name: known.get(name) for name in ("base", "builder")})

    def spark(self, given: Mapping[str, str], deployed: Mapping[str, str]) -> Images:
        """Return Spark's image, with a note if it wasn't built for this version.

        Args:
            given: The template parameters passed for this deployment.
            deployed: The parameters of the current deployment.
        """
        deployed = {**defaults(), **deployed}
        chosen = {**deployed, **given}
        if given.get("SparkImage") or chosen["SparkUrl"]:
            return Images({"SparkRepository": ""})
        has_ours, stock = bool(deployed["SparkRepository"]), defaults()["SparkImage"]
        if deployed["SparkImage"] != stock and not has_ours and "SparkImage" not in given:
            return Images({})  # the user's own image, from an earlier deployment
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
        """Return the function's image, building it if needed and allowed."""
        built = self.find(source)
        if built is None and not build:
            registry = f"{self._clients.account}.dkr.ecr.{self._clients.region}.amazonaws.com"
            uri = f"{registry}/{self._name.stack}/function@sha256:{'0' * 64}"
            note = "The function's image isn't built yet; `lakegate aws deploy` builds it."
            return Images({"ImageUri": uri}, (note,), is_built=False)
        return Images({"ImageUri": (built or self.build(source, builder)).uri})

    def build(self, source: ImageSource, builder: Builder = "auto") -> BuiltImage:
        """Build an image, push it, and record the base image that it was built on.

        Args:
            builder: The container engine to use. ``auto`` uses the first one that runs on this machine, or else
                CodeBuild.

        Raises:
            ConfigurationError: If the requested engine isn't running.
            DeploymentError: If the image can't be built or pushed. The message has the end of the builder's output.
        """
        engine = None if builder == "codebuild" else _engine(builder)
        repository = Repository(self._clients, self._name.stack, source.kind)
        self._data.make_bucket(self._bucket)
        made = repository.make()
        tag = new_tag(source)
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="image-") as scratch:
            job = _BuildJob(
                source=source,
                folder=Path(scratch),
                image=f"{made['repositoryUri']}:{tag}",
                repository_arn=made["repositoryArn"],
                log=self._folder / f"image-{source.kind}.log",
            )
            source.write(job.folder)
            base = self._with_codebuild(job) if engine is None else self._with_engine(engine, job)
        used = {"base": base, "builder": "codebuild" if engine is None else Path(engine).name}
        built = repository.pushed(source, tag).model_copy(update=used)
        self._data.write(built.model_dump_json(indent=1).encode(), self._bucket, _record_key(built))
        return built

    def _with_engine(self, engine: str, job: _BuildJob) -> str:
        registry = job.image.partition("/")[0]
        with translate_errors("signing in to the registry"):
            token = self._clients.ecr.get_authorization_token()["authorizationData"][0]["authorizationToken"]
        password = base64.b64decode(token).decode().partition(":")[2]
        login = [engine, "login", "--username", "AWS", "--password-stdin", registry]
        variables = {
            "ENGINE": engine,
            "PLATFORM": PLATFORMS[job.source.architecture],
            "BASE": job.source.base,
            "IMAGE": job.image,
        }
        with (
            self._narrator.step(f"Building the image of {job.source.kind} with {Path(engine).name}"),
            job.log.open("wb") as log,
        ):
            try:
                done = subprocess.run(login, input=password.encode(), check=False, stdout=log, stderr=subprocess.STDOUT)
                if done.returncode == 0:
                    done = subprocess.run(
                        ["sh", _SCRIPT],  # noqa: S607 - sh is on every PATH
                        cwd=job.folder,
                        env={**os.environ, **variables},
                        stdin=subprocess.DEVNULL,
                        check=False,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
            finally:  # the password would be valid for twelve hours
                subprocess.run([engine, "logout", registry], check=False, capture_output=True)
        if done.returncode:
            raise _build_error(Path(engine).name, job, job.log.read_text(encoding="utf-8", errors="replace"))
        return (job.folder / _RESOLVED).read_text(encoding="utf-8")

    def _with_codebuild(self, job: _BuildJob) -> str:
        key = f"image/{job.image.rpartition(':')[2]}.zip"
        zipped = job.folder / "source.zip"
        zip_folder(job.folder, zipped)
        given = {
            "SourceBucket": self._bucket,
            "SourceKey": key,
            "RepositoryArn": job.repository_arn,
            "Image": job.image,
            "Base": job.source.base,
            "Architecture": job.source.architecture,
        }
        stack = builder_stack(self._name, self._clients, self._narrator, poll_s=self._poll_s)
        self._clear(stack)
        try:
            self._data.upload(zipped, self._bucket, key)
            prepared = stack.prepare(given)
            if prepared is None:
                raise DeploymentError(f"Stack {stack.name}, which builds images, was just created by someone else.")
            project = stack.execute(prepared).outputs["Project"]
            return self._run_codebuild(project, job)
        finally:
            stack.delete()
            with translate_errors(f"deleting the image's source from bucket {self._bucket}"):
                self._clients.s3.delete_object(Bucket=self._bucket, Key=key)

    def _clear(self, stack: Stack) -> None:
        """Delete what an interrupted build left behind, unless another build is in progress."""
        found = stack.state()
        if found is None:
            return
        project = found.outputs.get("Project")
        is_building = found.status.endswith("_IN_PROGRESS")
        if project and not is_building:
            with translate_errors("looking at builds of images"):
                ids = self._clients.codebuild.list_builds_for_project(projectName=project)["ids"]
                builds = self._clients.codebuild.batch_get_builds(ids=ids[:1])["builds"] if ids else []
            is_building = any(one["buildStatus"] == "IN_PROGRESS" for one in builds)
        if is_building:
            raise RetryableError(
                f"Another image of {self._name.stack} is being built (stack {stack.name}).",
                hint="Wait until it's done.",
                stack=stack.name,
            )
        stack.delete()

    def _run_codebuild(self, project: str, job: _BuildJob) -> str:
        """Run the build, and return the base image that it used."""
        codebuild = self._clients.codebuild
        with translate_errors("starting the build"):
            build = codebuild.start_build(projectName=project)["build"]
        try:
            deadline = time.monotonic() + _BUILD_TIMEOUT_S
            with self._narrator.step(f"Building the image of {job.source.kind} with CodeBuild"):
                while build["buildStatus"] == "IN_PROGRESS":
                    if time.monotonic() > deadline:
                        raise RetryableError("CodeBuild didn't finish within two hours.", hint="Try again.")
                    time.sleep(self._poll_s)
                    with translate_errors("following the build"):
                        build = codebuild.batch_get_builds(ids=[build["id"]])["builds"][0]
        finally:
            with suppress(LakegateError):
                job.log.write_text(self._read_log(build), encoding="utf-8")
            if build["buildStatus"] == "IN_PROGRESS":
                with suppress(LakegateError), translate_errors("stopping the build"):
                    codebuild.stop_build(id=build["id"])
        if build["buildStatus"] != "SUCCEEDED":
            phases = (
                context.get("message", "") for one in build.get("phases", ()) for context in one.get("contexts", ())
            )
            reason = next((text for text in phases if text.strip()), build["buildStatus"])
            output = job.log.read_text(encoding="utf-8") if job.log.is_file() else ""
            raise _build_error("CodeBuild", job, f"{output}\n{reason}")
        exported = {one["name"]: one.get("value", "") for one in build.get("exportedEnvironmentVariables", ())}
        return exported.get("RESOLVED") or job.source.base

    def _read_log(self, build: Any) -> str:
        logs = build.get("logs", {})
        if not logs.get("groupName") or not logs.get("streamName"):
            return ""
        with translate_errors("reading the build's log"):
            events = self._clients.logs.get_log_events(
                logGroupName=logs["groupName"], logStreamName=logs["streamName"], limit=_LAST_LINES
            )["events"]
        return "".join(event["message"] for event in events)


def builder_stack(name: DeploymentName, clients: Clients, narrator: Narrator, *, poll_s: float) -> Stack:
    """Return the stack of CodeBuild's project, which exists while an image is built."""
    # This can't be a deployment's stack, since those start with lakegate-.
    stack = f"build-{name.stack}"
    return Stack(clients.cloudformation, stack, narrator, poll_s=poll_s, template=BUILDER_TEMPLATE)


def _engine(wanted: Builder) -> str | None:
    """Return the engine to build with; ``None`` for ``auto`` if none is running."""
    for name in ENGINES if wanted == "auto" else (wanted,):
        path = shutil.which(name)
        if path and _is_running(path):
            return path
    if wanted == "auto":
        return None
    raise ConfigurationError(
        f"{wanted} isn't installed here or isn't running.", hint="Start it, or choose --builder codebuild."
    )


def _is_running(engine: str) -> bool:
    """Return whether an engine's server is running. Its command alone can't build anything."""
    try:
        checked = subprocess.run([engine, "info"], check=False, capture_output=True, timeout=_ANSWER_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return checked.returncode == 0


def _build_error(builder: str, job: _BuildJob, output: str) -> DeploymentError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = " ".join(lines[-3:])[-400:] or "no output"
    hint = f"Full log: {job.log}."
    if "exec format error" in output:
        hint = f"This machine can't run programs for {job.source.architecture}. Pass --builder codebuild. {hint}"
    elif "toomanyrequests" in output:
        hint = (
            f"Docker Hub's rate limit is reached: retry later, or pass --base with an image of another registry. {hint}"
        )
    elif builder != "CodeBuild":
        hint += " To build on AWS, pass --builder codebuild."
    return DeploymentError(f"{builder} couldn't build {job.image}: {last}", hint=hint, image=job.image)


def _record_key(built: BuiltImage) -> str:
    return f"image/{built.kind}/{built.tag}.json"
