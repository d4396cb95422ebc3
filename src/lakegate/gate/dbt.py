"""What dbt needs so that a project writes through the gate as it is, and what dbt says of its run.

dbt gets a profile whose outputs of type ``spark`` and ``duckdb`` write through the gate, and a copy of the project made
of links, with what both engines need to build tables in Iceberg.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from lakegate.errors import InputError
from lakegate.gate.connect import DBT_DUCKDB_TABLE
from lakegate.gate.environment import CATALOG
from lakegate.model.words import counted
from lakegate.progress import one_line

_PROJECT, _PROFILES, _MACROS = "dbt_project.yml", "profiles.yml", "lakegate_macros"
_EXTENSIONS = ("httpfs", "avro", "iceberg")
_OURS = ("--profiles-dir", "--project-dir", "--target-path")
_SECRET = "DBT_ENV_SECRET_LAKEGATE_GATE_TOKEN"  # noqa: S105 - a variable's name; dbt masks its value in logs
_TOKEN = f"{{{{ env_var('{_SECRET}') }}}}"
_FAILED: Final = ("error", "fail", "runtime error")
_LONGEST = 200
_SPARK_SNAPSHOT: Final = """\
{% macro spark_build_snapshot_staging_table(strategy, sql, target_relation) %}
  {%- set made = make_temp_relation(target_relation).incorporate(type='view') -%}
  {% call statement('build_snapshot_staging_relation') %}
    create or replace temporary view {{ made }} as {{ snapshot_staging_table(strategy, sql, target_relation) }}
  {% endcall %}
  {{ return(made) }}
{% endmacro %}
"""
"""dbt-spark makes a view that others can see, which the gate doesn't take."""
_OWN_MACRO = re.compile(r"{%-?\s*materialization\s+table\s*,\s*adapter\s*=\s*['\"]duckdb['\"]")


@dataclass(frozen=True, slots=True)
class DbtRun:
    """What dbt's artifacts say of its last command.

    Attributes:
        summary: What it did, in a few words; empty if dbt built and tested nothing.
        failures: What failed, one sentence each.
        views: Models that failed and are views, which the gate doesn't take.
    """

    summary: str
    failures: Sequence[str]
    views: Sequence[str]


@dataclass(frozen=True, slots=True)
class DbtProject:
    """A dbt project and its user's profiles.

    Attributes:
        root: Its folder.
        settings: What ``dbt_project.yml`` says.
        profiles: What ``profiles.yml`` says.
        artifacts: The folder that dbt writes its artifacts to.
    """

    root: Path
    settings: Mapping[str, Any]
    profiles: Mapping[str, Any]
    artifacts: Path

    @contextmanager
    def writing(self, environment: Mapping[str, str], uri: str, branch: str, token: str) -> Iterator[dict[str, str]]:
        """Return an environment in which dbt writes through a gate, for as long as the body runs.

        Args:
            environment: The variables that dbt would get otherwise.
        """
        with TemporaryDirectory(prefix="lakegate-dbt-") as folder:  # only this user can read it
            copy = Path(folder) / "project"
            profiles = converted_profiles(self.profiles, uri, branch)
            _write_yaml(Path(folder) / _PROFILES, profiles)
            _link_project(self.root, copy, _macros(self.root))
            _write_yaml(copy / _PROJECT, self._settings(profiles))
            self.results.unlink(missing_ok=True)
            parsed = self.artifacts / "partial_parse.msgpack"  # which names files of a copy
            parsed.unlink(missing_ok=True)
            variables = {
                **environment,
                "DBT_PROFILES_DIR": folder,
                "DBT_PROJECT_DIR": str(copy),
                "DBT_TARGET_PATH": str(self.artifacts),
                "DBT_LOG_PATH": environment.get("DBT_LOG_PATH", str(self.root / "logs")),
                _SECRET: token,
            }
            try:
                yield variables
            finally:
                parsed.unlink(missing_ok=True)

    def _settings(self, profiles: Mapping[str, Any]) -> Mapping[str, Any]:
        outputs = (one for profile in profiles.values() for one in profile["outputs"].values())
        is_spark = any(_type_of(one) == "spark" for one in outputs)
        formats = self._kinds() if is_spark else ()
        return converted_project(self.settings, in_iceberg=formats)

    def _kinds(self) -> Sequence[str]:
        """Return the kinds of tables that the project has. dbt warns of settings for others."""
        kinds = ["models"]
        for kind in ("seeds", "snapshots"):
            folders = [self.root / name for name in self.settings.get(f"{kind[:-1]}-paths") or [kind]]
            if kind in self.settings or any(True for folder in folders for _ in folder.glob("**/[!.]*.*")):
                kinds.append(kind)
        return kinds

    @property
    def results(self) -> Path:
        """The file with the results of dbt's last command."""
        return self.artifacts / "run_results.json"

    def outcome(self) -> DbtRun:
        """Return what dbt's artifacts say."""
        results = _json(self.results).get("results", [])
        failed = [one for one in results if one.get("status") in _FAILED]
        nodes = _json(self.artifacts / "manifest.json").get("nodes", {}) if failed else {}
        views = [_name(one["unique_id"]) for one in failed if _is_view(nodes.get(one["unique_id"], {}))]
        return DbtRun(_summary(results), [_failure(one) for one in failed], views)


def find_project(environment: Mapping[str, str], command: Sequence[str]) -> DbtProject:
    """Return the dbt project of the working folder.

    Args:
        environment: The user's variables, which may name it.
        command: The command that runs dbt, to refuse options that would lead dbt elsewhere.

    Raises:
        InputError: When there's no project, or no profile of dbt-spark or dbt-duckdb.
    """
    named = next((option for word in command if (option := word.partition("=")[0]) in _OURS), None)
    if named is not None:
        raise InputError(
            f"With --dbt, dbt's {named} is lakegate's to set.",
            hint="Leave it out, and run the command in the project's folder.",
        )
    root = _root(environment)
    place = _profiles_file(environment, root)
    profiles = _yaml(place)
    if not converted_profiles(profiles, "", ""):
        raise InputError(
            f"No output in {place} is of type spark or duckdb, whose models can be written through the gate.",
            hint="Add one, and name it by dbt's --target.",
            file=str(place),
        )
    settings = _yaml(root / _PROJECT)
    artifacts = root / (environment.get("DBT_TARGET_PATH") or str(settings.get("target-path") or "target"))
    return DbtProject(root, settings, profiles, artifacts)


def converted_profiles(profiles: Mapping[str, Any], uri: str, branch: str) -> Mapping[str, Any]:
    """Return a user's profiles with those outputs that can write through the gate, doing so.

    Example:
        >>> own = {"shop": {"target": "dev", "outputs": {"dev": {"type": "spark", "schema": "shop", "threads": 4}}}}
        >>> converted_profiles(own, "http://127.0.0.1:8181", "wap/x")["shop"]["outputs"]["dev"]["method"]
        'session'
    """
    converted: dict[str, Any] = {}
    for name, profile in profiles.items():
        outputs = profile.get("outputs") if isinstance(profile, Mapping) else None
        if isinstance(outputs, Mapping):
            ours = {key: _converted(one, uri, branch) for key, one in outputs.items() if _type_of(one) in _CONVERTED}
            if ours:
                converted[name] = {**profile, "outputs": ours}
    return converted


def converted_project(project: Mapping[str, Any], *, in_iceberg: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return a project's settings with our macros.

    Args:
        in_iceberg: Kinds of tables that are in Iceberg unless the project says otherwise, such as ``models``.
    """
    macros = [*(project.get("macro-paths") or ["macros"]), _MACROS]
    formats = {kind: {"+file_format": "iceberg", **(project.get(kind) or {})} for kind in in_iceberg}
    return {**project, **formats, "macro-paths": macros}


def _spark(own: Mapping[str, Any], _uri: str, _branch: str) -> Mapping[str, Any]:
    kept = {key: own[key] for key in ("schema", "threads") if key in own}
    parameters = own.get("server_side_parameters") or {}
    # Spark's settings come from SPARK_CONF_DIR. Without this one, dbt-spark makes a Hive metastore in the folder.
    in_memory = {**parameters, "spark.sql.catalogImplementation": "in-memory"}
    return {"type": "spark", "method": "session", "host": "NA", **kept, "server_side_parameters": in_memory}


def _duckdb(own: Mapping[str, Any], uri: str, branch: str) -> Mapping[str, Any]:
    extensions = own.get("extensions") or []
    known = {one["name"] if isinstance(one, Mapping) else one for one in extensions}
    gate = {"path": branch, "alias": CATALOG, "type": "iceberg", "options": {"endpoint": uri, "token": _TOKEN}}
    return {
        **own,
        "database": CATALOG,
        "extensions": [*extensions, *(name for name in _EXTENSIONS if name not in known)],
        "attach": [*(own.get("attach") or []), gate],
    }


_CONVERTED: Final = {"spark": _spark, "duckdb": _duckdb}


def _type_of(output: Any) -> str:
    return str(output.get("type")) if isinstance(output, Mapping) else ""


def _converted(output: Mapping[str, Any], uri: str, branch: str) -> Mapping[str, Any]:
    return _CONVERTED[_type_of(output)](output, uri, branch)


def _root(environment: Mapping[str, str]) -> Path:
    """Return the folder of the project, as dbt finds it."""
    named = environment.get("DBT_PROJECT_DIR")
    here = Path.cwd()
    places = [Path(named).resolve()] if named else [here, *here.parents]
    found = next((place for place in places if (place / _PROJECT).is_file()), None)
    if found is None:
        raise InputError(
            f"There's no {_PROJECT} in {places[0]}{'' if named else ' or above it'}.",
            hint="Run the command in the folder of the dbt project, or leave out --dbt.",
        )
    return found


def _profiles_file(environment: Mapping[str, str], root: Path) -> Path:
    """Return the user's profiles, as dbt finds them."""
    named = environment.get("DBT_PROFILES_DIR")
    places = [Path(named)] if named else [Path.cwd(), root, Path.home() / ".dbt"]
    found = next((place / _PROFILES for place in places if (place / _PROFILES).is_file()), None)
    if found is None:
        raise InputError(
            f"There's no {_PROFILES} in {' or '.join(map(str, dict.fromkeys(places)))}.",
            hint="It says whether models are built by Spark or DuckDB, and in which schema.",
        )
    return found


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(
            f"Can't read {path}: {one_line(str(error))}.", hint="dbt can't, either.", file=str(path)
        ) from error
    return found if isinstance(found, Mapping) else {}


def _write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")


def _link_project(root: Path, copy: Path, macros: str) -> None:
    """Link all of a project but its settings, and add our macros."""
    (copy / _MACROS).mkdir(parents=True)
    (copy / _MACROS / "gate.sql").write_text(macros, encoding="utf-8")
    for entry in root.iterdir():
        if entry.name != _PROJECT:
            (copy / entry.name).symlink_to(entry)


def _macros(root: Path) -> str:
    """Return our macros, without that for dbt-duckdb's tables if the project has its own; dbt takes none twice."""
    files = (path for path in root.glob("*/**/*.sql") if path.is_file())
    has_own = any(_OWN_MACRO.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)
    return _SPARK_SNAPSHOT if has_own else _SPARK_SNAPSHOT + DBT_DUCKDB_TABLE


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _summary(results: Sequence[Mapping[str, Any]]) -> str:
    done = Counter(_kind(one) for one in results if one.get("status") in ("success", "pass"))
    others = Counter(str(one["status"]) for one in results if one.get("status") in ("warn", "skipped"))
    words = [counted(number, kind) for kind, number in done.items()]
    return "; ".join(
        part for part in (", ".join(words), *(f"{number} {word}" for word, number in others.items())) if part
    )


def _kind(result: Mapping[str, Any]) -> str:
    return str(result.get("unique_id", "")).partition(".")[0].replace("_", " ")


def _failure(result: Mapping[str, Any]) -> str:
    rows = result.get("failures")
    said = " ".join(str(result.get("message") or result.get("status")).split())[:_LONGEST]
    why = f"{counted(rows, 'row')} failed" if isinstance(rows, int) and rows else said
    return f"{_kind(result)} {_name(str(result.get('unique_id', '')))}: {one_line(why)}"


def _name(unique_id: str) -> str:
    """Return ``not_null_trips_id`` of ``test.shop.not_null_trips_id.5fb22c2710``."""
    return [*unique_id.split("."), "", ""][2]


def _is_view(node: Mapping[str, Any]) -> bool:
    return bool((node.get("config") or {}).get("materialized") == "view")
