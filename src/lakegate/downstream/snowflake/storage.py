"""The external volume: its location, paths in it, and the cloud permissions that it needs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakegate.config import Settings, SnowflakeDownstream
from lakegate.downstream.snowflake.sql import text
from lakegate.errors import ConfigurationError, DownstreamError
from lakegate.storage.objects import ObjectAddress, canonical, is_remote

_SCHEMES = {"s3": "s3", "gcs": "gcs", "adls": "azure"}
_LOCATION_NAME = "lakegate"


@dataclass(frozen=True, slots=True)
class VolumeLocation:
    """The warehouse's location.

    Attributes:
        root: The warehouse's URI, ending in ``/``.
        base_url: The same in Snowflake's notation: ``s3://…``, ``gcs://…``, ``azure://…``.
    """

    root: str
    address: ObjectAddress
    base_url: str

    def relative(self, location: str) -> str:
        """Return a file's path relative to the external volume, without a leading ``/``."""
        uri = canonical(location)
        path = uri.removeprefix(self.root)
        if path == uri or not path or path.startswith("/"):
            raise DownstreamError(
                f"The metadata file {location} isn't below the warehouse {self.root}, so Snowflake's external volume "
                "doesn't reach it.",
                hint="Exclude the table from the downstream's 'tables', or set catalog.warehouse to a folder above it.",
                path=location,
            )
        return path


def volume_location(warehouse: str) -> VolumeLocation:
    """Return where Snowflake finds the warehouse."""
    if not is_remote(warehouse):
        raise ConfigurationError(
            f"Snowflake can't read this lake: its files are on this machine, in {warehouse}.",
            hint='Keep the tables in an object store: set catalog.warehouse = "s3://bucket/warehouse" '
            "(docs/how-to/keep-tables-on-s3.md), then run: lakegate snowflake plan",
            setting="catalog.warehouse",
        )
    root = canonical(warehouse).rstrip("/") + "/"
    address = ObjectAddress.parse(root)
    if address.service == "adls":
        account = address.root.partition("@")[2].partition(".")[0]
        base_url = f"azure://{account}.blob.core.windows.net/{address.bucket}/{address.key}"
    else:
        base_url = f"{_SCHEMES[address.service]}://{address.bucket}/{address.key}"
    return VolumeLocation(root, address, base_url)


def describe_location(location: VolumeLocation, settings: SnowflakeDownstream, lake: Settings) -> str:
    """Return the storage location of a new external volume: the lines of SQL inside the parentheses.

    Raises:
        ConfigurationError: A setting is missing, or the store would need keys in the SQL.
    """
    values = {"NAME": _LOCATION_NAME}
    service = location.address.service
    if service == "s3":
        values |= _s3(location, settings, lake)
    elif service == "gcs":
        values |= {"STORAGE_PROVIDER": "GCS", "STORAGE_BASE_URL": location.base_url}
    else:
        if settings.azure_tenant_id is None:
            raise _missing("azure_tenant_id", "the id of your Microsoft Entra tenant: az account show --query tenantId")
        values |= {
            "STORAGE_PROVIDER": "AZURE",
            "STORAGE_BASE_URL": location.base_url,
            "AZURE_TENANT_ID": settings.azure_tenant_id,
        }
    return "\n".join(f"    {key} = {text(value)}" for key, value in values.items())


def _s3(location: VolumeLocation, settings: SnowflakeDownstream, lake: Settings) -> dict[str, str]:
    if lake.s3.endpoint is not None:
        raise ConfigurationError(
            f"The warehouse is on an S3-compatible store ({lake.s3.endpoint}). A volume there needs keys in its SQL, "
            "which lakegate never writes.",
            hint=f"Create a volume with STORAGE_PROVIDER = 'S3COMPAT' and STORAGE_BASE_URL = "
            f"'s3compat://{location.address.bucket}/{location.address.key}' yourself, and name it in external_volume.",
            setting="external_volume",
        )
    if settings.storage_role_arn is None:
        raise _missing("storage_role_arn", "the ARN of an AWS role that may read the bucket")
    # AWS GovCloud is a separate storage provider.
    is_government = settings.storage_role_arn.startswith("arn:aws-us-gov:")
    values = {
        "STORAGE_PROVIDER": "S3GOV" if is_government else "S3",
        "STORAGE_BASE_URL": location.base_url.replace("s3://", "s3gov://", 1) if is_government else location.base_url,
        "STORAGE_AWS_ROLE_ARN": settings.storage_role_arn,
    }
    if settings.storage_external_id is not None:
        values["STORAGE_AWS_EXTERNAL_ID"] = settings.storage_external_id
    return values


def _missing(name: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"Setting {name} is missing: an external volume needs {what}.",
        hint=f'Add {name} = "…" to the downstream\'s section, or name an existing volume in external_volume.',
        setting=name,
    )


@dataclass(frozen=True, slots=True)
class RequiredPermissions:
    """Permissions that somebody must grant before Snowflake can read the files.

    Attributes:
        what: Commands or instructions, one per step.
        documents: JSON policies by name.
    """

    what: tuple[str, ...]
    documents: Mapping[str, Mapping[str, Any]]


def required_permissions(location: VolumeLocation, described: Mapping[str, Any]) -> RequiredPermissions:
    """Return the permissions that an external volume needs, and how to grant them.

    Args:
        described: The volume's storage location from ``DESC EXTERNAL VOLUME``. Empty if it doesn't exist yet.
    """
    address = location.address
    if address.service == "gcs":
        account = described.get("STORAGE_GCP_SERVICE_ACCOUNT", "SERVICE_ACCOUNT_OF_THE_VOLUME")
        binding = (
            f"gcloud storage buckets add-iam-policy-binding gs://{address.bucket} --member=serviceAccount:{account}"
        )
        return RequiredPermissions(
            tuple(
                f"{binding} --role={role}"
                for role in ("roles/storage.objectViewer", "roles/storage.legacyBucketReader")
            ),
            {},
        )
    if address.service == "adls":
        consent = described.get("AZURE_CONSENT_URL", "the AZURE_CONSENT_URL of the volume")
        name = described.get("AZURE_MULTI_TENANT_APP_NAME", "the AZURE_MULTI_TENANT_APP_NAME of the volume")
        return RequiredPermissions(
            (
                f"Open {consent} and accept.",
                (
                    f"Give the app {str(name).partition('_')[0]} the role 'Storage Blob Data Reader' on container "
                    f"{address.bucket}."
                ),
            ),
            {},
        )
    return _aws_permissions(location, described)


def _aws_permissions(location: VolumeLocation, described: Mapping[str, Any]) -> RequiredPermissions:
    address = location.address
    role = str(described.get("STORAGE_AWS_ROLE_ARN", "arn:aws:iam::ACCOUNT:role/ROLE"))
    bucket = f"{role.partition(':iam:')[0]}:s3:::{address.bucket}"
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:GetObjectVersion"],
                "Resource": f"{bucket}/{address.key}*",
            },
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": bucket,
                "Condition": {"StringLike": {"s3:prefix": [f"{address.key}*"]}},
            },
            {"Effect": "Allow", "Action": "s3:GetBucketLocation", "Resource": bucket},
        ],
    }
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {
                    "AWS": described.get("STORAGE_AWS_IAM_USER_ARN", "STORAGE_AWS_IAM_USER_ARN of the volume")
                },
                "Action": "sts:AssumeRole",
                "Condition": {
                    "StringEquals": {
                        "sts:ExternalId": described.get(
                            "STORAGE_AWS_EXTERNAL_ID", "STORAGE_AWS_EXTERNAL_ID of the volume"
                        )
                    }
                },
            }
        ],
    }
    name = shlex.quote(role.rpartition("/")[2])
    permissions, trusted = (shlex.quote(json.dumps(one, separators=(",", ":"))) for one in (policy, trust))
    return RequiredPermissions(
        (
            (
                f"aws iam put-role-policy --role-name {name} --policy-name lakegate-snowflake "
                f"--policy-document {permissions}"
            ),
            f"aws iam update-assume-role-policy --role-name {name} --policy-document {trusted}",
            "The second command replaces the role's trust policy: add whatever else it must allow.",
        ),
        {"permissions": policy, "trust": trust},
    )


def read_description(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first storage location from ``DESC EXTERNAL VOLUME``; empty if there's none."""
    for row in rows:
        if str(row.get("property", "")).startswith("STORAGE_LOCATION_"):
            found = json.loads(row["property_value"])
            return found if isinstance(found, dict) else {}
    return {}
