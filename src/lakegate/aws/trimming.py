"""What of the installed packages the function never loads: left out, so that it fits and starts fast."""

from __future__ import annotations

from fnmatch import fnmatchcase

_NEVER = (
    "*.a",
    "*.c",
    "*.cpp",
    "*.h",
    "*.hpp",
    "*.pxd",
    "*.pxi",
    "*.pyi",
    "*.pyx",
    "*/__pycache__/*",
    "*/tests/*",
    "bin/*",
    # Differ from one installation to the next; they are for installers.
    "*.dist-info/INSTALLER",
    "*.dist-info/RECORD",
    "*.dist-info/REQUESTED",
    "*.dist-info/direct_url.json",
    "*.dist-info/uv_*.json",
    ".lock",
    "_virtualenv.p*",
    # Each of these is one feature of its package that lakegate has no use for.
    "hive_metastore/*",
    "fb303/*",
    "fsspec/implementations/*",
    "numpy/f2py/*",
    "numpy/polynomial/*",
    "pandas/io/clipboard/*",
    "pyarrow/*flight*",
    "pyarrow/*gandiva*",
    "pyarrow/_substrait*",
    "pyarrow/*orc*",
    "pyarrow/*azurefs*",
    "pyarrow/*gcsfs*",
    "pyarrow/*_s3*",
    "pyarrow/*hdfs*",
    "pyarrow/*parquet_encryption*",
    "pyarrow/*_cpp_tests*",
    "pyarrow/libarrow_python.so",
    "pyarrow/libarrow_python.so.*.*.*",
    "pyarrow/include/*",
    "pyarrow/src/*",
    "pyspark/ml/*",
    "pyspark/mllib/*",
    "pyspark/pandas/*",
    "pyspark/streaming/*",
    "slack/*",
    "slack_sdk/audit_logs/*",
    "slack_sdk/oauth/*",
    "slack_sdk/rtm*",
    "slack_sdk/scim/*",
    "slack_sdk/socket_mode/*",
    "*/sboms/*",
    "boto3/data/*",
    "numpy/_core/*tests*.so",
    "numpy/_core/_simd*.so",
    "pydantic/v1/*",
    # Plain Python stands in for these, fast enough here.
    "sqlalchemy/cyextension/*",
    "yaml/_yaml*.so",
    "zstandard/*cffi*",
    "zstandard/backend_rust*.so",
    "sqlalchemy/dialects/m[sy]*sql/*",
    "sqlalchemy/dialects/oracle/*",
    "sqlalchemy/orm/*",
    "sqlalchemy/testing/*",
    "alembic/testing/*",
)
_BOTOCORE_DATA = "botocore/data/"
_BOTOCORE_SERVICES = frozenset({"s3", "secretsmanager", "sqs", "sso", "sso-oidc", "sts"})
"""AWS's library describes 400 services in 30 MB; these the function asks."""


def is_needed(path: str) -> bool:
    """Tell whether a file of the installed packages goes into the function.

    Args:
        path: Below the folder that they are installed in, with ``/``.

    Example:
        >>> is_needed("pyarrow/libarrow.so.2600"), is_needed("pyarrow/libarrow_flight.so.2600")
        (True, False)
        >>> is_needed("botocore/data/endpoints.json"), is_needed("botocore/data/ec2/2016-11-15/service-2.json.gz")
        (True, False)
    """
    if path.startswith(_BOTOCORE_DATA):
        service, below, _ = path.removeprefix(_BOTOCORE_DATA).partition("/")
        return not below or service in _BOTOCORE_SERVICES
    return not any(fnmatchcase(path, pattern) for pattern in _NEVER)
