"""The data that a deleted stack keeps: buckets with objects, the catalog's tables, and database snapshots."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lakegate.integrations.aws.clients import (
    DENIED,
    GONE,
    SHARED_NAMESPACE_ONLY,
    STACK_TAG,
    Clients,
    DeploymentError,
    error_code,
    not_ours,
    translate_errors,
)
from lakegate.integrations.aws.parameters import BucketContent
from lakegate.ports import Narrator

_DEFAULT_REGION = "us-east-1"  # the only region that must not be passed when creating a bucket
_MAX_ATTEMPTS = 6


class Data:
    """The data of one deployment.

    Args:
        pause_s: Seconds before a bucket that someone wrote to is emptied again. Each further pause is twice as long.
    """

    def __init__(self, clients: Clients, stack: str, narrator: Narrator, *, pause_s: float = 2.0) -> None:
        self._clients = clients
        self._stack = stack
        self._narrator = narrator
        self._pause_s = pause_s

    def buckets(self) -> tuple[str, ...]:
        """Return the buckets with this deployment's tag, whatever their names."""
        with translate_errors(f"looking for the buckets of stack {self._stack}"):
            pages = self._clients.tagging.get_paginator("get_resources").paginate(
                TagFilters=[{"Key": STACK_TAG, "Values": [self._stack]}], ResourceTypeFilters=["s3"]
            )
            arns = [one["ResourceARN"] for page in pages for one in page["ResourceTagMappingList"]]
        return tuple(arn.rpartition(":")[2] for arn in arns)

    def tag(self, buckets: Iterable[str]) -> None:
        """Tag buckets that outlive the stack, unless they're already tagged, so that they can be found later."""
        for bucket in buckets:
            with translate_errors(f"tagging bucket {bucket}"):
                tags = self._tags(bucket)
                if tags is not None and _owner(tags) == "":
                    added = [*tags, {"Key": STACK_TAG, "Value": self._stack}]
                    self._clients.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": added})

    def make_bucket(self, bucket: str) -> None:
        """Create the private bucket for functions' zips, unless it exists.

        In regions with account-owned namespaces, the bucket is in this account's namespace. No other account can own
        its name there, and provide code that would run with the function's permissions.
        """
        owner = self.owner(bucket)
        if owner is not None:
            if owner == self._stack:
                return
            raise not_ours(f"Bucket {bucket}", self._stack, bucket=bucket)
        s3, region = self._clients.s3, self._clients.region
        place: Any = {} if region == _DEFAULT_REGION else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        if region not in SHARED_NAMESPACE_ONLY:
            place["BucketNamespace"] = "account-regional"
        # The client repeats a request whose answer was lost.
        with translate_errors(f"creating bucket {bucket}", unless={"BucketAlreadyOwnedByYou"}):
            s3.create_bucket(Bucket=bucket, **place)
        with translate_errors(f"creating bucket {bucket}"):
            s3.put_public_access_block(
                Bucket=bucket,
                PublicAccessBlockConfiguration={
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": True,
                    "IgnorePublicAcls": True,
                    "RestrictPublicBuckets": True,
                },
            )
            s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": STACK_TAG, "Value": self._stack}]})

    def upload(self, package: Path, bucket: str, key: str) -> bool:
        """Upload a zip unless it exists; return whether it was uploaded."""
        with translate_errors(f"uploading to bucket {bucket}", unless=GONE):
            self._clients.s3.head_object(Bucket=bucket, Key=key)
            return False
        with translate_errors(f"uploading to bucket {bucket}"), self._narrator.step("Uploading the function") as step:
            total, sent = package.stat().st_size, 0

            def report(amount: int) -> None:
                nonlocal sent
                sent += amount
                step.progress(sent, total, "bytes")

            with package.open("rb") as content:  # upload_file's own error would hide AWS's
                self._clients.s3.upload_fileobj(content, bucket, key, Callback=report)
        return True

    def write(self, content: bytes, bucket: str, key: str) -> None:
        """Write an object."""
        with translate_errors(f"writing to bucket {bucket}"):
            self._clients.s3.put_object(Bucket=bucket, Key=key, Body=content)

    def read(self, bucket: str, key: str) -> bytes | None:
        """Return an object's content; ``None`` if it doesn't exist."""
        with translate_errors(f"reading from bucket {bucket}", unless=GONE):
            return self._clients.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return None

    def owner(self, bucket: str) -> str | None:
        """Return the stack in a bucket's tag; ``""`` if it has none, ``None`` if the bucket doesn't exist."""
        with translate_errors(f"looking at bucket {bucket}"):
            tags = self._tags(bucket)
        return None if tags is None else _owner(tags)

    def content(self, bucket: str, *, is_ours: bool = False) -> BucketContent | None:
        """Return the size of a bucket, counting all versions; ``None`` if it doesn't exist or isn't this deployment's.

        Args:
            is_ours: Whether it's known to be this deployment's, whatever its tag.
        """
        from botocore.exceptions import ClientError

        with translate_errors(f"looking at bucket {bucket}"):
            try:
                tags = self._tags(bucket)
            except ClientError as error:
                if is_ours or error_code(error) not in DENIED:
                    raise
                self._narrator.note(f"Bucket {bucket} can't be read, or belongs to another account; it's left alone.")
                return None
        if tags is None:
            return None
        if _owner(tags) != self._stack and not is_ours:
            self._narrator.note(f"Bucket {bucket} lacks the tag {STACK_TAG}={self._stack}; it's left alone.")
            return None
        objects = size = 0
        with translate_errors(f"listing bucket {bucket}"), self._narrator.step(f"Counting the objects in {bucket}"):
            for page in self._versions(bucket):
                versions = page.get("Versions", [])
                objects += len(versions) + len(page.get("DeleteMarkers", []))
                size += sum(one.get("Size", 0) for one in versions)
        return BucketContent(name=bucket, objects=objects, size_bytes=size)

    def delete_bucket(self, content: BucketContent) -> None:
        """Delete a bucket with all versions of all its objects.

        A function call that was still running when the stack was deleted may write once more, so the bucket is emptied
        several times if necessary.

        Raises:
            DeploymentError: If an object can't be deleted, or something keeps writing to the bucket.
        """
        from botocore.exceptions import ClientError

        for attempt in range(_MAX_ATTEMPTS):
            if attempt:
                time.sleep(self._pause_s * 2 ** (attempt - 1))
            with translate_errors(f"deleting bucket {content.name}", unless=GONE):
                try:
                    self._empty(content)
                    self._clients.s3.delete_bucket(Bucket=content.name)
                except ClientError as error:
                    if error_code(error) == "BucketNotEmpty":
                        continue
                    raise
            return
        raise DeploymentError(
            f"Bucket {content.name} can't be deleted: something wrote to it each time it was emptied.",
            hint="Stop what writes to it, then retry: "
            f"lakegate aws destroy --name {self._stack.removeprefix('lakegate-')}",
            bucket=content.name,
        )

    def tables(self) -> tuple[str, ...]:
        """Return the DynamoDB tables that hold the catalog's commits."""
        found = []
        for name in (f"{self._stack}_refs", f"{self._stack}_objs"):
            with translate_errors(f"looking at table {name}", unless=GONE):
                self._clients.dynamodb.describe_table(TableName=name)
                found.append(name)
        return tuple(found)

    def delete_tables(self, names: tuple[str, ...]) -> None:
        """Delete DynamoDB tables."""
        for name in names:
            with translate_errors(f"deleting table {name}"):
                self._clients.dynamodb.delete_table(TableName=name)

    def snapshots(self) -> tuple[str, ...]:
        """Return the database snapshots that were kept when the stack was deleted."""
        with translate_errors("looking at the database's snapshots"):
            pages = self._clients.rds.get_paginator("describe_db_snapshots").paginate(SnapshotType="manual")
            found = [
                one["DBSnapshotIdentifier"]
                for page in pages
                for one in page["DBSnapshots"]
                if _owner(one.get("TagList", ())) in ("", self._stack)  # "demo-snapshot" is a deployment's name, too
            ]
        # CloudFormation names them like this.
        return tuple(name for name in found if name.lower().startswith(f"{self._stack}-snapshot-"))

    def delete_snapshots(self, names: tuple[str, ...]) -> None:
        """Delete database snapshots."""
        for name in names:
            with translate_errors(f"deleting snapshot {name}"):
                self._clients.rds.delete_db_snapshot(DBSnapshotIdentifier=name)

    def _tags(self, bucket: str) -> list[Any] | None:
        """Return a bucket's tags; ``None`` if the bucket doesn't exist."""
        from botocore.exceptions import ClientError

        try:
            return list(self._clients.s3.get_bucket_tagging(Bucket=bucket)["TagSet"])
        except ClientError as error:
            if error_code(error) in GONE:
                return None
            if error_code(error) == "NoSuchTagSet":
                return []
            raise

    def _empty(self, content: BucketContent) -> None:
        done = 0
        with self._narrator.step(f"Emptying bucket {content.name}") as step:
            for page in self._versions(content.name):
                found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                self._delete_objects(content.name, found)
                done += len(found)
                step.progress(done, max(done, content.objects), "objects")

    def _versions(self, bucket: str) -> Any:
        return self._clients.s3.get_paginator("list_object_versions").paginate(Bucket=bucket)

    def _delete_objects(self, bucket: str, found: list[Any]) -> None:
        keys: list[Any] = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
        if not keys:
            return
        answer = self._clients.s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
        for problem in answer.get("Errors", []):
            raise DeploymentError(
                f"{problem.get('Key')} in bucket {bucket} can't be deleted: {problem.get('Message')}.", bucket=bucket
            )


def _owner(tags: Iterable[Any]) -> str:
    return next((tag["Value"] for tag in tags if tag["Key"] == STACK_TAG), "")
