"""Container images: the source and repository of each, and which image is this version's."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from lakegate.integrations.aws.clients import GONE, Clients, DeploymentError, translated
from lakegate.integrations.aws.package import Architecture
from lakegate.integrations.aws.parameters import BuiltImage
from lakegate.model.artifacts import ICEBERG, S3_ARTIFACTS, ivy_module

Kind = Literal["spark", "function"]

CONTAINER = Path(__file__).with_name("container")
SPARK_JARS = (ICEBERG, *S3_ARTIFACTS)
"""The jars in Spark's image: those of the local stack with tables on S3."""
PLATFORMS: Mapping[Architecture, str] = {"x86_64": "linux/amd64", "arm64": "linux/arm64"}

_TAG = "lakegate:stack"
_BASE = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)
_INDEXES = ("image.index.v1+json", "manifest.list.v2+json")


@dataclass(frozen=True, slots=True)
class ImageSource:
    """The source of an image.

    Attributes:
        package: The function's zip, whose content is the function's image.
    """

    kind: Kind
    architecture: Architecture
    base: str
    package: Path | None = None

    @property
    def stem(self) -> str:
        """Start of the image's tag: the same for the same content, on any base.

        Example:
            >>> spark_source("x86_64").stem.rpartition("-")[0]
            'x86_64'
        """
        digest = hashlib.sha256()
        for name, content in sorted(self._files().items()):
            digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        if self.package is not None:
            with self.package.open("rb") as zipped:
                digest.update(hashlib.file_digest(zipped, "sha256").digest())
        return f"{self.architecture}-{digest.hexdigest()[:16]}"

    def write(self, folder: Path) -> None:
        """Write what a builder needs into ``folder``: ``Dockerfile``, ``build.sh`` and their files."""
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
    """Return the source of Spark's image: Spark, and the jars that the local stack pins."""
    return ImageSource("spark", architecture, base or _base("spark"))


def function_source(architecture: Architecture, python: str, package: Path, base: str | None = None) -> ImageSource:
    """Return the source of the function's image: AWS's image of that Python, and the content of the zip."""
    image = _base("function").rpartition(":")[0]
    return ImageSource("function", architecture, base or f"{image}:{python}", package)


def _base(kind: Kind) -> str:
    """Return the base image that a Dockerfile names."""
    [base] = _BASE.findall((CONTAINER / f"{kind}.Dockerfile").read_text(encoding="utf-8"))
    return str(base)


class Repository:
    """The repository of ECR that holds one kind of a deployment's images. Tags are never moved.

    Args:
        stack: The deployment's stack, the tag of everything that belongs to it.
    """

    def __init__(self, clients: Clients, stack: str, kind: Kind) -> None:
        self.name = f"{stack}/{kind}"
        self._kind = kind
        self._clients = clients
        self._stack = stack

    def describe(self) -> Any:
        """Return ECR's description of the repository; ``None`` if it doesn't exist."""
        with translated(f"looking at repository {self.name}", unless=GONE):
            return self._clients.ecr.describe_repositories(repositoryNames=[self.name])["repositories"][0]
        return None

    def is_ours(self) -> bool:
        """Return whether it exists and has the deployment's tag."""
        found = self.describe()
        if found is None:
            return False
        with translated(f"looking at repository {self.name}"):
            tags = self._clients.ecr.list_tags_for_resource(resourceArn=found["repositoryArn"])["tags"]
        return {"Key": _TAG, "Value": self._stack} in tags

    def make(self) -> Any:
        """Create the private repository with immutable tags, unless it exists; return ECR's description of it."""
        found = self.describe()
        if found is not None and not self.is_ours():
            raise DeploymentError(
                f"Repository {self.name} does not belong to stack {self._stack}: it lacks the tag "
                f"{_TAG}={self._stack}.",
                hint="Choose another --name, or tag the repository if it is this deployment's.",
                repository=self.name,
            )
        ecr = self._clients.ecr
        with translated(f"creating repository {self.name}"):
            if found is None:
                found = ecr.create_repository(
                    repositoryName=self.name,
                    imageTagMutability="IMMUTABLE",
                    imageScanningConfiguration={"scanOnPush": True},
                    encryptionConfiguration={"encryptionType": "AES256"},
                    tags=[{"Key": _TAG, "Value": self._stack}],
                )["repository"]
            # Each time, so that a repository whose creation was interrupted gets them, too.
            policy = (CONTAINER / "lifecycle.json").read_text(encoding="utf-8")
            ecr.put_lifecycle_policy(repositoryName=self.name, lifecyclePolicyText=policy)
            if self._kind == "function":
                pulls = json.dumps(_lambda_pulls(found["repositoryArn"]))
                ecr.set_repository_policy(repositoryName=self.name, policyText=pulls)
        return found

    def newest(self, source: ImageSource) -> BuiltImage | None:
        """Return the image of that content that was pushed last; ``None`` if there is none."""
        repository = self.describe()
        if repository is None:
            return None
        stem = f"{source.stem}-"
        with translated(f"listing repository {self.name}"):
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
        return self._built(repository, source, tag, image)

    def pushed(self, source: ImageSource, tag: str) -> BuiltImage:
        """Return the image of that tag after it was pushed, with the digest that ECR has."""
        repository = self.describe()
        images = []
        with translated(f"looking at image {self.name}:{tag}", unless=GONE):
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
        return self._built(repository, source, tag, images[0])

    def delete(self) -> None:
        """Delete the repository with its images, if it exists."""
        with translated(f"deleting repository {self.name}", unless=GONE):
            self._clients.ecr.delete_repository(repositoryName=self.name, force=True)

    def _built(self, repository: Any, source: ImageSource, tag: str, image: Any) -> BuiltImage:
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
    """Return the tag for an image that is about to be built: a new one each time, as tags are immutable."""
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
