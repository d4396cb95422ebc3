"""Makes the Python reference and the table of error codes from docstrings: ``python tests/e2e/docs_api.py``."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import lakegate
from lakegate import checks, errors
from lakegate.api.alerts import Alerts
from lakegate.api.branches import Branches
from lakegate.api.contracts import Contracts
from lakegate.api.downstream import Downstream
from lakegate.api.files import Files
from lakegate.api.maintenance import Maintenance
from lakegate.api.quarantine import Quarantine
from lakegate.api.tags import Tags
from lakegate.integrations.aws_lambda.events import MalformedEventError
from lakegate.integrations.aws_lambda.function import NotDoneError
from lakegate.model.request import IngestOptions, IngestPlan
from lakegate.wap.deadline import DeadlineReachedError
from lakegate.wap.transaction import Transaction

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.docstrings import field_docstrings

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGE = REFERENCE / "python.md"
ERRORS = REFERENCE / "errors.md"
PARTS: dict[str, type] = {
    "lake.branches": Branches,
    "lake.tags": Tags,
    "lake.quarantine": Quarantine,
    "lake.maintenance": Maintenance,
    "lake.contracts": Contracts,
    "lake.downstream": Downstream,
    "lake.alerts": Alerts,
    "lake.files": Files,
}
"""The attributes of a lake that have methods."""
CLASSES: dict[str, type] = {
    "Lake": lakegate.Lake,
    **PARTS,
    **{one.__name__: one for one in (Transaction, lakegate.Table, lakegate.Query, lakegate.RowDifference)},
}
"""The public classes by the name that users write."""
OTHER_ERRORS = (
    DeadlineReachedError,
    NotDoneError,
    MalformedEventError,
)
"""Errors with a code of their own that aren't in ``lakegate.errors``."""
VALUES: tuple[type[BaseModel], ...] = (
    lakegate.Run,
    IngestPlan,
    lakegate.AuditReport,
    lakegate.CheckResult,
    lakegate.Check,
    lakegate.CsvOptions,
)
_HEAD = """# Python API

<!-- Made by tests/e2e/docs_api.py from docstrings. Do not edit it by hand. -->

Everything public is in `lakegate` and `lakegate.checks`; importing them loads nothing heavy. Every error is a
[`LakegateError`](errors.md). Each check is a function of `lakegate.checks`, with the name and the arguments that the
[checks reference](checks.md) gives. [Use lakegate from Python](../how-to/use-from-python.md) shows how it all fits
together.

`Paths` is a file, folder or glob pattern, or several: local paths or `file://`, `s3://`, `gs://` and `abfss://` URIs.
`Checks` is a list of checks, as text (`"not_null(id)"`) or as values. The examples run as tests: `trips/` holds a
file of 100 rows, `more/` one of 10.
"""
_SECTIONS = ("Args", "Returns", "Yields", "Raises", "Attributes", "Example", "Examples")
_ERROR_TABLE = re.compile(r"^\| code \| class \| exit \| when \|\n(?:\|.*\n)+", re.MULTILINE)
_SECTION = re.compile(rf"^({'|'.join(_SECTIONS)}):$")
_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+(?:\.\w+)?)`")


@dataclass
class Docs:
    """A docstring in Google's style, taken apart."""

    text: str = ""
    sections: dict[str, str] = field(default_factory=dict)

    def entries(self, section: str) -> dict[str, str]:
        """Return the entries of a section, ``name: text``, by name."""
        found: dict[str, str] = {}
        for line in self.sections.get(section, "").splitlines():
            entry = re.match(r"(\*{0,2}\w+)(?: \([^)]*\))?: (.*)", line)
            if entry:
                found[entry[1].lstrip("*")] = entry[2]
            elif found:
                found[next(reversed(found))] += f" {line.strip()}"
        return {name: text.strip() for name, text in found.items()}


def parse(thing: object) -> Docs:
    """Take the docstring of ``thing`` apart."""
    docs, section, kept = Docs(), "", []
    for line in [*(inspect.getdoc(thing) or "").splitlines(), "Returns:"]:
        heading = _SECTION.match(line)
        if heading is None:
            kept.append(line)
            continue
        text = inspect.cleandoc("\n" + "\n".join(kept)).strip()
        if section:
            docs.sections.setdefault(section, text)
        elif not docs.text:
            docs.text = text
        section, kept = heading[1], []
    return docs


def functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions and methods by the name that users write."""
    found: dict[str, Callable[..., Any]] = {"lakegate.connect": lakegate.connect}
    for owner, cls in CLASSES.items():
        found |= {f"{owner}.{name}": method for name, method in _members(cls, inspect.isfunction)}
    return found


def check_functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions of ``lakegate.checks``."""
    named = ((name, getattr(checks, name)) for name in checks.__all__)
    return {f"checks.{name}": one for name, one in named if inspect.isfunction(one)}


def render() -> str:
    """Return the page."""
    return (
        "\n".join([_HEAD, *_function("lakegate.connect", lakegate.connect, 2), *_classes(), *_values()]).rstrip() + "\n"
    )


def render_errors(page: str) -> str:
    """Return the errors page with its table of codes made anew."""
    rows = []
    for one in [*vars(errors).values(), *OTHER_ERRORS]:
        if inspect.isclass(one) and issubclass(one, errors.LakegateError) and one is not errors.LakegateError:
            name = f"`{one.__name__}`" + ("" if one.__module__ == "lakegate.errors" else f" (in `{one.__module__}`)")
            rows.append(f"| `{one.code}` | {name} | {int(one.exit_code)} | {_cell(parse(one).text)} |")
    table = "\n".join(["| code | class | exit | when |", "| --- | --- | --- | --- |", *rows, ""])
    return _ERROR_TABLE.sub(lambda _: table, page)


def _classes() -> Iterator[str]:
    for owner, cls in CLASSES.items():
        docs = parse(cls)
        yield f"## {owner}\n\n{_markdown(docs.text)}\n"
        yield from _raises(docs)
        attributes = docs.entries("Attributes") if cls is lakegate.Lake else {}
        attributes |= {name: parse(one).text for name, one in _members(cls, _is_property)}
        rows = [f"| `{name}` | {_cell(text)} |" for name, text in attributes.items()]
        if rows:
            yield "\n".join(["| property | meaning |", "| --- | --- |", *rows, ""])
        for name, method in _members(cls, inspect.isfunction):
            yield from _function(f"{owner}.{name}", method, 3)


def _values() -> Iterator[str]:
    for value in VALUES:
        docs = parse(value)
        meanings = {**field_docstrings(value), **docs.entries("Attributes")}
        undocumented = inspect.get_annotations(value).keys() - meanings.keys()
        if undocumented:
            raise SystemExit(f"{value.__name__} doesn't say what these fields mean: {', '.join(sorted(undocumented))}.")
        rows = [
            f"| `{name}` | `{_cell(_annotation(one))}` | {_cell(meanings[name])} |"
            for name, one in inspect.get_annotations(value).items()
        ]
        rows += [f"| `{name}` | property | {_cell(parse(one).text)} |" for name, one in _members(value, _is_property)]
        yield f"## {value.__name__}\n\n{_markdown(docs.text)}\n"
        yield "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *rows, ""])


def _function(name: str, function: Callable[..., Any], level: int) -> Iterator[str]:
    docs = parse(function)
    yield f"{'#' * level} {name}\n\n```python\n{_signature(name, function)}\n```\n\n{_markdown(docs.text)}\n"
    entries = docs.entries("Args")
    if entries:
        rows = [f"| `{argument}` | {_cell(text)} |" for argument, text in entries.items()]
        yield "\n".join(["| argument | meaning |", "| --- | --- |", *rows, ""])
    for section in ("Returns", "Yields"):
        if section in docs.sections:
            yield f"{section}: {_markdown(docs.sections[section])}\n"
    yield from _raises(docs)
    for section in ("Example", "Examples"):
        if section in docs.sections:
            yield f"```python\n{docs.sections[section]}\n```\n"


def _raises(docs: Docs) -> Iterator[str]:
    raised = docs.entries("Raises")
    if raised:
        yield "\n".join(["Raises:", "", *(f"- `{error}`: {_cell(text)}" for error, text in raised.items()), ""])


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters, with those of an ingest one by one, if they're documented so."""
    found = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
    if (
        found
        and found[-1].kind is inspect.Parameter.VAR_KEYWORD
        and found[-1].name not in parse(function).entries("Args")
    ):
        found[-1:] = inspect.signature(IngestOptions).parameters.values()
    return found


def _signature(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parts, is_keyword = [], False
    for parameter in parameters(function):
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            parts.append("*")
        parts.append(_parameter(parameter))
    returns = f" -> {_annotation(signature.return_annotation)}"
    if "Yields" in parse(function).sections:
        returns = returns.replace("Iterator", "AbstractContextManager")
    line = f"{name}({', '.join(parts)}){returns}"
    return line if len(line) <= 88 else "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = str(parameter).split(parameter.name, maxsplit=1)[0]
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}".replace("<factory>", "{}")
    return f"{stars}{parameter.name}: {_annotation(parameter.annotation)}{default}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _members(cls: type, wanted: Callable[[Any], bool]) -> list[tuple[str, Any]]:
    """Return the public members in the order of the source."""
    return [
        (name, one)
        for name, one in vars(cls).items()
        if not name.startswith("_") and wanted(one) and not isinstance(one, (classmethod, staticmethod))
    ]


def _is_property(member: object) -> bool:
    return isinstance(member, property)


def _markdown(text: str) -> str:
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def _cell(text: str) -> str:
    return " ".join(_markdown(text).split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    ERRORS.write_text(render_errors(ERRORS.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE} and {ERRORS} written\n")
