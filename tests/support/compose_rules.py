"""What Docker Compose and the engine refuse, or take and then break on, though the file fits its schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_UNITS = {"m": 1, "g": 1024}
_IDLE = re.compile(r"registry\.k8s\.io/pause:\S+")
_INTERPOLATED = re.compile(r"(?<!\$)(?:\$\$)*\$(?!\$)[{A-Za-z_]\w*")


def megabytes(size: str) -> int:
    """Return a memory size as the files write it, such as ``512m``."""
    return int(size[:-1]) * _UNITS[size[-1]]


def faults(lake: Mapping[str, Any], folder: Path) -> list[str]:
    """Return what is wrong with a Compose file, one sentence each.

    Args:
        lake: The file's content, anchors resolved.
        folder: The file's folder.
    """
    services = lake["services"]
    found = [f"{name}: {text}" for name, service in services.items() for text in _service(service, lake)]
    found += [f"{kind} {name}: {text}" for kind, name, text in _files(lake, folder)]
    return [*found, *_variables(lake)]


def _service(service: Mapping[str, Any], lake: Mapping[str, Any]) -> Iterator[str]:
    yield from _mounts(service, lake)
    yield from _network(service, lake["services"])
    yield from _looked_after(service, lake["services"])


def _mounts(service: Mapping[str, Any], lake: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("configs", "secrets"):
        for mount in service.get(kind, ()):
            name = mount if isinstance(mount, str) else mount["source"]
            if name not in lake.get(kind, {}):
                yield f"no {name} among the {kind}"
            # Compose copies these into the container that it made; see its pkg/compose/secrets.go.
            elif service.get("read_only") and "file" not in lake[kind][name]:
                yield f"read-only, so {name} must be a file"
    for mount in service.get("tmpfs", ()):
        if "size=" not in mount:
            yield f"{mount} may fill the machine's memory"


def _network(service: Mapping[str, Any], services: Mapping[str, Any]) -> Iterator[str]:
    owner = service.get("network_mode", "").partition("service:")[2]
    if not owner:
        return
    if owner not in services:
        yield f"no service {owner}, whose network it would share"
    elif not _IDLE.fullmatch(services[owner]["image"]):
        yield f"is left on a dead network when {owner} starts anew"
    elif owner not in service.get("depends_on", {}):
        yield f"starts before {owner}, whose network it shares"
    yield from (f"{key} go to {owner}, whose network it shares" for key in ("ports", "networks") if key in service)


def _looked_after(service: Mapping[str, Any], services: Mapping[str, Any]) -> Iterator[str]:
    if "mem_limit" not in service:
        yield "may take all of the machine's memory"
    health = service.get("healthcheck")
    if health is None and not _IDLE.fullmatch(service["image"]):
        yield "nobody asks whether it works"
    elif health is not None and "test" in health and "start_period" not in health:
        yield "counts as unhealthy while it starts"
    for other, how in service.get("depends_on", {}).items():
        asked = "test" in services[other].get("healthcheck", {})
        if how["condition"] != ("service_healthy" if asked else "service_started"):
            yield f"waits for {other} to be what it never says"


def _files(lake: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str, str]]:
    for name, config in lake.get("configs", {}).items():
        if "file" in config and not (folder / config["file"]).is_file():
            yield "config", name, "Docker makes a folder where the file is missing"


def _variables(lake: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(set(_INTERPOLATED.findall(str(lake)))):
        yield f"{name} is one of Compose's own variables; of the container's it is ${name}"
