"""What a command needs in its environment so that the engines it starts write through the gate, unchanged."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

CATALOG = "gate"
"""Name of the catalog in Spark and PyIceberg. It's also the default one."""
ENGINE_PATH = "/engine"
"""Where lakegate's own Spark finds its API, below a gate's address."""
_SPARK_DEFAULTS = "spark-defaults.conf"
_SETTING = re.compile(r"^\s*(spark\.[^\s=:]+)[\s=:]+(.*?)\s*$", re.MULTILINE)
_OWN_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""Set in a process that talks to Spark Connect, as ours does; it would make a command's classic Spark fail."""
_JAVA = """\
#!/bin/sh
for option; do
  shift
  [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


def spark_settings(uri: str, token: str) -> Mapping[str, str]:
    """Return the settings of a Spark session that reads and writes through the gate.

    Example:
        >>> spark_settings("http://127.0.0.1:8181", "t")["spark.sql.catalog.gate.uri"]
        'http://127.0.0.1:8181'
    """
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{catalog}.{key}": value for key, value in rest_options(uri, token).items()},
        "spark.sql.defaultCatalog": CATALOG,
    }


def rest_options(uri: str, token: str) -> Mapping[str, str]:
    """Return the options of a Spark catalog that is an Iceberg REST catalog at ``uri``."""
    return {
        "type": "rest",
        "uri": uri,
        "token": token,
        "rest.auth.type": "oauth2",
        "oauth2-server-uri": f"{uri}/v1/oauth/tokens",  # never asked, but Iceberg warns without it
        "cache-enabled": "false",  # a cached table would hide a publish for up to 30 s
    }


@contextmanager
def command_environment(
    uri: str, token: str, branch: str, *, jars: Sequence[Path], java: Path
) -> Iterator[dict[str, str]]:
    """Return the environment of a command, for as long as the body runs.

    PyIceberg gets the gate as the catalogs ``default`` and ``gate``. Spark started by the command (not one that it
    reaches through Spark Connect) gets it as its default catalog.

    Args:
        jars: Iceberg's runtime for Spark, and what it needs to reach the warehouse.
        java: The ``java`` program for Spark if there's no other.
    """
    variables = {
        "LAKEGATE_GATE_URI": uri,
        "LAKEGATE_GATE_TOKEN": token,
        "LAKEGATE_GATE_BRANCH": branch,
    }
    for name in ("DEFAULT", CATALOG.upper()):
        prefix = f"PYICEBERG_CATALOG__{name}__"
        variables |= {f"{prefix}TYPE": "rest", f"{prefix}URI": uri, f"{prefix}TOKEN": token}
    with TemporaryDirectory(prefix="lakegate-gate-") as folder:  # only this user can read it
        settings = {**spark_settings(uri, token), "spark.jars": ",".join(map(str, jars))}
        defaults = Path(folder) / _SPARK_DEFAULTS
        defaults.touch(mode=0o600)
        defaults.write_text(_with_own_defaults(settings), encoding="utf-8")
        if "JAVA_HOME" not in os.environ and which("java") is None:
            variables["JAVA_HOME"] = str(_home_of(java, Path(folder) / "java"))
        kept = {name: value for name, value in os.environ.items() if name != _OWN_MODE}
        yield {**kept, **variables, "SPARK_CONF_DIR": folder}


def _home_of(java: Path, home: Path) -> Path:
    """Make a home for a Java that lacks the module for vectors, which Spark's scripts ask for and can do without."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_JAVA.format(java=shlex.quote(str(java))), encoding="utf-8")
    program.chmod(0o700)
    return home


def _with_own_defaults(settings: Mapping[str, str]) -> str:
    """Return settings for Spark as text, after the user's own. The last one counts; lists keep both."""
    folder = os.environ.get("SPARK_CONF_DIR")
    file = None if folder is None else Path(folder) / _SPARK_DEFAULTS
    own = file.read_text(encoding="utf-8") if file is not None and file.is_file() else ""
    known = dict(_SETTING.findall(own))
    both = {key: f"{known[key]},{settings[key]}" for key in ("spark.jars", "spark.sql.extensions") if key in known}
    return "".join([f"{own}\n", *(f"{key} {value}\n" for key, value in {**settings, **both}.items())])
