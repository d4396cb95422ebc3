"""What the files in ``deploy/`` and ``action.yml`` hold, read as their own programs read them."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ACTION = ROOT / "action.yml"
CRONTAB = DEPLOY / "cron" / "crontab"
UNITS = sorted(path for path in (DEPLOY / "systemd").iterdir())
SERVICES = [path for path in UNITS if path.suffix == ".service"]
NESSIE_VERSION = "0.108.4"
"""The server that the files name. The local stack has an older one, which is what the tests run."""
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
_VARIABLE = re.compile(r"[A-Z_]+=")


def load(path: Path) -> Any:
    """Return the one document of a YAML file."""
    return YAML(typ="safe").load(path)


def load_all(path: Path) -> list[Any]:
    """Return all documents of a YAML file."""
    return list(YAML(typ="safe").load_all(path))


def properties(text: str) -> dict[str, str]:
    """Return Spark's settings as its properties file holds them."""
    return dict(line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))


def cron_lines() -> Iterator[tuple[list[str], str]]:
    """Yield the five fields and the command of each line of the crontab."""
    for line in CRONTAB.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#") and not _VARIABLE.match(line):
            *fields, command = line.split(maxsplit=5)
            yield fields, command


class _UnitParser(configparser.ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr  # keys are case-sensitive


def unit(path: Path) -> configparser.ConfigParser:
    """Return a unit's sections."""
    parser = _UnitParser(strict=True, interpolation=None)
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


def pod(manifest: Any) -> Any:
    """Return the pod of a Deployment or CronJob."""
    spec = manifest["spec"]
    return (spec["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else spec)["template"]["spec"]


def configured(documents: list[Any]) -> tuple[Any, Any]:
    """Return the ConfigMap among some manifests, and the one that runs something."""
    [settings] = [one for one in documents if one["kind"] == "ConfigMap"]
    [workload] = [one for one in documents if "spec" in one]
    return settings, workload


def workloads() -> Iterator[Any]:
    """Yield the manifests that run something."""
    for path in MANIFESTS:
        yield configured(load_all(path))[1]


def commands() -> Iterator[list[str]]:
    """Yield the words after ``lakegate`` of every command in these files."""
    for _, command in cron_lines():
        yield shlex.split(command.partition(">")[0])[1:]
    for path in SERVICES:
        section = unit(path)["Service"]
        yield from (shlex.split(section[key])[1:] for key in ("ExecStart", "ExecStop") if key in section)
    for manifest in workloads():
        yield from (container["args"] for container in pod(manifest)["containers"])
