"""Iceberg's types in the words of Glue, which are Hive's."""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORDS = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "time": "string",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
    "timestamp_ns": "timestamp",
    "timestamptz_ns": "timestamp",
    "string": "string",
    "uuid": "string",
    "binary": "binary",
}
_OTHER = "string"
"""For types that Glue has no word for, such as ``variant``; readers go by the metadata anyway."""
_FIELD = re.compile(r"(?P<name>\w+|`(?:[^`]|``)*`): (?P<type>.+)", re.DOTALL)
_ODD = re.compile(r"[^\w ./@$-]")


def glue_type(text: str) -> str:
    """Return an Iceberg type as Glue writes it.

    Example:
        >>> glue_type("long"), glue_type("decimal(10, 2)"), glue_type("fixed[16]")
        ('bigint', 'decimal(10,2)', 'binary')
        >>> glue_type("struct<id: long, tags: list<string>, `a: b`: map<string, timestamptz>>")
        'struct<id:bigint,tags:array<string>,a_ b:map<string,timestamp>>'
    """
    word, opened, rest = text.partition("<")
    if opened and rest.endswith(">"):
        inner = list(_parts(rest[:-1]))
        match word.strip():
            case "list":
                return f"array<{glue_type(inner[0])}>"
            case "map" if len(inner) > 1:
                return f"map<{','.join(map(glue_type, inner))}>"
            case "struct":
                return f"struct<{','.join(map(_field, inner))}>"
    plain = text.replace(" ", "")
    if plain.startswith("decimal("):
        return plain
    return "binary" if plain.startswith("fixed") else _WORDS.get(plain, _OTHER)


def _field(text: str) -> str:
    found = _FIELD.fullmatch(text)
    if found is None:
        return f"{_ODD.sub('_', text)}:{_OTHER}"
    name = found["name"].strip("`").replace("``", "`")
    return f"{_ODD.sub('_', name).lower()}:{glue_type(found['type'])}"


def _parts(text: str) -> Iterator[str]:
    """Yield what the commas outside of brackets and quotes separate."""
    depth, quoted, start = 0, False, 0
    for at, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        elif not quoted:
            depth += (character in "<([") - (character in ">)]")
            if character == "," and depth == 0:
                yield text[start:at].strip()
                start = at + 1
    yield text[start:].strip()
