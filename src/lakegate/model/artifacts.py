"""Jars that aren't in a Python package, pinned by SHA-256: for the local stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file on Maven. ``size_bytes`` and ``sha256`` are those of the version that lakegate was tested with."""

    group: str
    name: str
    version: str
    classifier: str | None = None
    packaging: str = "jar"
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name on Maven and in the cache."""
        return "-".join(part for part in (self.name, self.version, self.classifier) if part) + f".{self.packaging}"


ICEBERG = Artifact(
    group="org.apache.iceberg",
    name="iceberg-spark-runtime-4.1_2.13",
    version="1.12.0",
    size_bytes=48_309_426,
    sha256="3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
NESSIE = Artifact(
    group="org.projectnessie.nessie",
    name="nessie-quarkus",
    version="0.99.0",
    classifier="runner",
    size_bytes=245_069_033,
    sha256="ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
)
ARTIFACTS = (ICEBERG, NESSIE)
AWS = Artifact(
    group="org.apache.iceberg",
    name="iceberg-aws-bundle",
    version="1.12.0",
    size_bytes=69_034_612,
    sha256="dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
HADOOP_AWS = Artifact(
    group="org.apache.hadoop",
    name="hadoop-aws",
    version="3.4.2",
    size_bytes=936_997,
    sha256="d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
)
# What hadoop-aws uses of the AWS SDK and Iceberg's bundle of the SDK lacks; the version is the bundle's.
_SDK = (
    ("s3-transfer-manager", 282_942, "7bef0ea4efd5e0860bab63e08317040951edb51b72a5be734284c28b8324ab87"),
    ("apache-client", 77_826, "0b00ae3d55c3d1213ca47b5651dc4c2a0080fc9b6192dde3d53c3da6c1811bcb"),
    ("netty-nio-client", 308_076, "4faaae2db7a602c2ae6241fc6c0fe9d55f0e46886c3713cd5d2fef2f677ea64a"),
)
S3_ARTIFACTS = (
    AWS,
    HADOOP_AWS,
    *(
        Artifact(group="software.amazon.awssdk", name=name, version="2.54.17", size_bytes=size_bytes, sha256=sha256)
        for name, size_bytes, sha256 in _SDK
    ),
)
"""What Spark also needs for S3; fetched when S3 is first used."""


def ivy_module(artifacts: Sequence[Artifact]) -> str:
    """Return an Ivy file that requests exactly these jars, without their dependencies.

    Source: https://ant.apache.org/ivy/history/2.5.3/ivyfile.html; ``m:classifier`` is Maven's classifier there.
    """
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        '  <info organisation="lakegate" module="local"/>',
        '  <configurations><conf name="default"/></configurations>',
        "  <dependencies>",
    ]
    for artifact in artifacts:
        classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
        lines += [
            f"    <dependency org={quoteattr(artifact.group)} name={quoteattr(artifact.name)}",
            f'      rev={quoteattr(artifact.version)} transitive="false" conf="default->master">',
            f'      <artifact name={quoteattr(artifact.name)} type="jar"{classifier}',
            f"        ext={quoteattr(artifact.packaging)}/>",
            "    </dependency>",
        ]
    return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])
