"""Makes the tables of ``docs/reference/settings.md`` from the settings: ``python tests/e2e/docs_settings.py``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lakegate.config import Settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.docstrings import field_docstrings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"
FLAGS = {
    "catalog.uri": "--catalog",
    "engine.url": "--engine",
    "gc.keep": "lakegate admin gc --grace",
    "ingest.keep_rejected": "lakegate admin gc --keep-rejected",
    "ingest.on_busy": "--on-busy",
    "ingest.on_changed": "--on-changed",
    "ingest.on_failure": "--on-failure",
    "ingest.schema": "--schema",
    "log.format": "--log-format",
    "serve.host": "--host",
    "serve.port": "--port",
    "serve.tls_certificate": "--tls-certificate",
    "serve.tls_key": "--tls-key",
    "serve.token": "--token",
    "tables.*.checks": "--check",
    "tables.*.csv.delimiter": "--delimiter",
    "tables.*.csv.encoding": "--encoding",
    "tables.*.csv.header": "--no-header",
    "tables.*.csv.null_values": "--null-value",
    "tables.*.csv.numbers": "--numbers",
    "tables.*.csv.skip_footer": "--skip-footer",
    "tables.*.csv.skip_lines": "--skip-lines",
    "tables.*.partition_by": "--partition-by",
    "tables.*.timezone": "--timezone",
    "ui.host": "lakegate ui --host",
    "ui.port": "lakegate ui --port",
    "watch.every": "--every",
    "watch.max_files": "--max-files",
    "watch.max_tries": "--max-tries",
    "watch.routes": "--route",
    "watch.settle_s": "--settle",
}
"""The flags that override a setting, or that add to it."""
_TABLE = re.compile(r"(<!-- settings: (.*) -->\n)\n(?:\|.*\n)*")
_DEFAULT = re.compile(r"\s+Default: (.*)\.$", re.DOTALL)


def setting_keys(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Yield the key of every setting, the section that it is a field of, and the field's name."""
    for name, field in model.model_fields.items():
        inner = [one for one in _types(field.annotation) if issubclass(one, BaseModel)]
        if not inner:
            yield f"{prefix}{name}", model, name
        for one in inner:
            alone = one is field.annotation or set(get_args(field.annotation)) == {one, type(None)}
            keys = setting_keys(one, f"{prefix}{name}.{'' if alone else '*.'}")
            yield from (key for key in keys if key[0] != "openlineage.type")  # of a section with one type, it's given


def _types(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for one in get_args(annotation):
        yield from _types(one)


def render(page: str) -> str:
    """Return the page with its tables made anew; each follows a comment that names its sections."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{_table(found[2].split(', '))}", page)


def _table(sections: list[str]) -> str:
    rows = [
        (f"`{key}`", *_default_and_meaning(model, name), f"`{FLAGS[key]}`" if key in FLAGS else "")
        for key, model, name in setting_keys()
        if any(_is_in(one, key, model) for one in sections)
    ]
    has_flags = any(flag for *_, flag in rows)
    head = ["key", "default", *(["flag"] if has_flags else []), "meaning"]
    lines = [head, ["---"] * len(head)]
    lines += [[key, default, *([flag] if has_flags else []), meaning] for key, default, meaning, flag in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _is_in(section: str, key: str, model: type[BaseModel]) -> bool:
    """Return whether a key is listed: ``x``, ``x.*`` for all below it, or ``x.*=t`` for those of one type."""
    name, _, kind = section.partition("=")
    if kind and ("type" not in model.model_fields or get_args(model.model_fields["type"].annotation) != (kind,)):
        return False
    return key.startswith(f"{name}.") and (name.endswith("*") or key.count(".") == 1)


def _default_and_meaning(model: type[BaseModel], name: str) -> tuple[str, str]:
    if name not in field_docstrings(model):
        raise SystemExit(f"{model.__name__}.{name} in src/lakegate/config/ has no docstring below it.")
    text = " ".join(field_docstrings(model)[name].split()).replace("``", "`").replace("|", "\\|")
    text = text.replace("by reference", "by [reference](#secrets)")
    said = _DEFAULT.search(text)
    return (said[1] if said else _shown(model.model_fields[name])), _DEFAULT.sub("", text).removesuffix(".")


def _shown(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required():
        return "required"
    if value is None or value == ():
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else list(value) if isinstance(value, tuple) else value}`"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE} written\n")
