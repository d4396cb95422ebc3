"""Types as text, as the Iceberg spec writes them: parsed, compared and combined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

UNKNOWN = "unknown"
"""Iceberg's type of a column without values. It fits any type; new tables get ``string``."""

_PLAIN_NAME = re.compile(r"\w+")
_FIELD_NAME = re.compile(r"(?:\w+|`(?:[^`]|``)*`): ")
_PATH_PART = re.compile(r"(`)((?:[^`]|``)*)`|([^.`]+)")
_WHOLE_PATH = re.compile(r"(?:`(?:[^`]|``)*`|[^.`]+)(?:\.(?:`(?:[^`]|``)*`|[^.`]+))*")
_WORD = re.compile(r"[a-z_]\w*")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_PROMOTIONS = {("int", "long"), ("float", "double")}
_LOSSLESS = {*_PROMOTIONS, ("date", "timestamp"), ("int", "double")}


def struct_text(fields: Iterable[tuple[str, str]]) -> str:
    """Return a struct's type, given its fields' names and types. Special names are quoted.

    Example:
        >>> struct_text([("id", "long"), ("map<x: y", "int")])
        'struct<id: long, `map<x: y`: int>'
    """
    return f"struct<{', '.join(f'{_field_name(name)}: {kind}' for name, kind in fields)}>"


def struct_fields(text: str) -> list[tuple[str, str]]:
    """Return the names and types of a struct's fields; nothing for other types.

    Example:
        >>> struct_fields("struct<a: list<struct<x: int, y: int>>, `b: c`: decimal(9, 2)>")
        [('a', 'list<struct<x: int, y: int>>'), ('b: c', 'decimal(9, 2)')]
    """
    if not (text.startswith("struct<") and text.endswith(">")):
        return []
    fields, rest = [], text.removeprefix("struct<")[:-1]
    while match := _FIELD_NAME.match(rest):
        end = _end_of_type(rest, match.end())
        name = match[0][:-2]
        fields.append((name[1:-1].replace("``", "`") if name.startswith("`") else name, rest[match.end() : end]))
        rest = rest[end + 2 :]
    return fields


def _end_of_type(text: str, start: int) -> int:
    """Return where the type that starts at ``start`` ends: at a comma outside brackets and quotes."""
    depth, quoted = 0, False
    for index in range(start, len(text)):
        character = text[index]
        quoted ^= character == "`"
        if not quoted:
            depth += (character in "<(") - (character in ">)")
            if character == "," and not depth:
                return index
    return len(text)


def type_parts(text: str) -> list[tuple[str, str]]:
    """Return the names and types of a type's parts, as Spark's ``ALTER TABLE`` names them; nothing for plain types.

    Example:
        >>> type_parts("map<string, list<int>>"), type_parts("list<struct<x: int>>"), type_parts("decimal(9, 2)")
        ([('key', 'string'), ('value', 'list<int>')], [('element', 'struct<x: int>')], [])
    """
    if text.startswith("list<"):
        return [("element", text.removeprefix("list<")[:-1])]
    if text.startswith("map<"):
        inner = text.removeprefix("map<")[:-1]
        end = _end_of_type(inner, 0)
        return [("key", inner[:end]), ("value", inner[end + 2 :])]
    return struct_fields(text)


def nested_fields(text: str) -> list[tuple[str, ...]]:
    """Return the paths of all struct fields in a type, including those in lists and maps.

    Example:
        >>> nested_fields("map<string, list<struct<a: int, b: struct<c: int>>>>")
        [('a',), ('b',), ('b', 'c')]
    """
    is_struct = text.startswith("struct<")
    paths: list[tuple[str, ...]] = []
    for name, kind in type_parts(text):
        below = nested_fields(kind)
        paths += [(name,), *((name, *one) for one in below)] if is_struct else below
    return paths


def path_parts(name: str) -> list[str]:
    """Return the parts of a path, without backticks; nothing if it isn't a path.

    Example:
        >>> path_parts("contact.`e-mail`")
        ['contact', 'e-mail']
    """
    parts = [part.replace("``", "`") if quoted else plain for quoted, part, plain in _PATH_PART.findall(name)]
    return parts if _WHOLE_PATH.fullmatch(name) else []


def type_words(text: str) -> frozenset[str]:
    """Return the type names in a type, without its fields' names.

    Example:
        >>> sorted(type_words("struct<unknown_reason: long, map: list<decimal(9, 2)>>"))
        ['decimal', 'list', 'long', 'struct']
    """
    return frozenset(_WORD.findall(_FIELD_NAME.sub("", text)))


def _field_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def can_promote(narrow: str, wide: str) -> bool:
    """Return whether a column's type can be widened in place (Iceberg spec, "Schema Evolution", versions 1 and 2).

    Example:
        >>> can_promote("int", "long"), can_promote("decimal(9, 2)", "decimal(12, 2)"), can_promote("long", "int")
        (True, True, False)
        >>> can_promote("struct<a: int>", "struct<a: long, b: string>"), can_promote("struct<a: int>", "struct<b: int>")
        (True, False)
    """
    found = list(type_differences(narrow, wide))
    return bool(found) and all(each.one is None or _is_promotion(each.one, each.other) for each in found)


def is_lossless(narrow: str, wide: str) -> bool:
    """Return whether casting from one type to the other preserves every value.

    Example:
        >>> is_lossless("int", "double"), is_lossless("decimal(9, 2)", "decimal(12, 2)"), is_lossless("long", "double")
        (True, True, False)
    """
    return narrow in {wide, UNKNOWN} or (narrow, wide) in _LOSSLESS or _widens_decimal(narrow, wide)


def _is_promotion(narrow: str, wide: str | None) -> bool:
    return wide is not None and ((narrow, wide) in _PROMOTIONS or _widens_decimal(narrow, wide))


def _widens_decimal(narrow: str, wide: str) -> bool:
    one, other = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
    return bool(one and other and one[2] == other[2] and int(one[1]) <= int(other[1]))


def wider_type(one: str, other: str) -> str | None:
    """Return the one of two plain types that holds the values of both; ``None`` if neither does.

    Between long and double, it's double: the engine refuses integers that a double may round.
    """
    for narrow, wide in ((other, one), (one, other)):
        if is_lossless(narrow, wide) or (narrow, wide) == ("long", "double"):
            return wide
    return None


@dataclass(frozen=True, slots=True)
class TypeDifference:
    """A place where two types differ.

    Attributes:
        path: The path to it.
        one: The type there in the first type; ``None`` if it lacks the field.
        other: The type there in the second type; ``None`` if that one lacks it.
    """

    path: tuple[str, ...]
    one: str | None
    other: str | None

    @property
    def name(self) -> str:
        """The path as text."""
        return ".".join(map(_field_name, self.path))


def type_differences(one: str, other: str, path: tuple[str, ...] = ()) -> Iterator[TypeDifference]:
    """Yield where two types differ. Fields are matched by name, ignoring case and order.

    Example:
        >>> before, after = "struct<id: int, at: struct<x: int>>", "struct<at: struct<x: long, y: int>, id: int>"
        >>> [(found.name, found.one, found.other) for found in type_differences(before, after, ("event",))]
        [('event.at.x', 'int', 'long'), ('event.at.y', None, 'int')]
    """
    if not _are_alike(one, other):
        if one != other:
            yield TypeDifference(path, one, other)
        return
    mine, theirs = type_parts(one), type_parts(other)
    for name, kind in mine:
        found = find_part(theirs, name)
        if found is None:
            yield TypeDifference((*path, name), kind, None)
        else:
            yield from type_differences(kind, found[1], (*path, name))
    yield from (TypeDifference((*path, name), None, kind) for name, kind in theirs if find_part(mine, name) is None)


def joined_type(one: str, other: str, leaf: Callable[[str, str], str | None]) -> str | None:
    """Return a type with the fields of both types, the first one's first; ``None`` if ``leaf`` returns that.

    Args:
        leaf: Returns a type for two types that can't be combined part by part.

    Example:
        >>> joined_type("list<struct<a: int>>", "list<struct<B: string, A: long>>", wider_type)
        'list<struct<a: long, B: string>>'
    """
    if not _are_alike(one, other):
        return one if one == other else leaf(one, other)
    mine, theirs = type_parts(one), type_parts(other)
    parts = []
    for name, kind in mine:
        found = find_part(theirs, name)
        joined = kind if found is None else joined_type(kind, found[1], leaf)
        if joined is None:
            return None
        parts.append((name, joined))
    parts += (part for part in theirs if find_part(mine, part[0]) is None)
    return _with_parts(one, parts)


def common_type(types: Sequence[str]) -> str | None:
    """Return a type that holds the values of all ``types``, whatever their order; ``None`` if there is none.

    Each field is combined from all types at once. Pairwise, int and float would have no common type, even if a third
    type has double there.

    Example:
        >>> common_type(["struct<a: int>", "struct<A: float, b: date>", "struct<a: double>"])
        'struct<a: double, b: date>'
    """
    known = [one for one in types if one != UNKNOWN] or types
    first = known[0]
    if not all(_are_alike(first, one) for one in known):
        return next((kind for kind in known if all(wider_type(kind, one) == kind for one in known)), None)
    parts_of = [type_parts(one) for one in known]
    counted = (Counter(name.lower() for name, _ in parts) for parts in parts_of)
    # Names that only differ by case within one struct.
    ambiguous = {name for names in counted for name, number in names.items() if number > 1}
    found: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for name, kind in chain.from_iterable(parts_of):
        same = name if name.lower() in ambiguous else names.setdefault(name.lower(), name)
        found.setdefault(same, []).append(kind)
    joined = [(name, common_type(kinds)) for name, kinds in found.items()]
    parts = [(name, kind) for name, kind in joined if kind is not None]
    return _with_parts(first, parts) if len(parts) == len(joined) else None


def replace_parts(kind: str, paths: Collection[tuple[str, ...]], part: str) -> str:
    """Return a type with the parts at ``paths`` (in lower case) replaced by ``part``.

    Example:
        >>> replace_parts("struct<a: int, b: list<struct<C: int>>>", {("b", "element", "c")}, "long")
        'struct<a: int, b: list<struct<C: long>>>'
    """
    if () in paths:
        return part
    below = [(name, kind, [one[1:] for one in paths if one[0] == name.lower()]) for name, kind in type_parts(kind)]
    return _with_parts(kind, [(name, replace_parts(kind, inside, part)) for name, kind, inside in below])


def unknown_as_string(kind: str) -> str:
    """Return a type with ``unknown`` replaced by ``string``, as in new tables.

    Example:
        >>> unknown_as_string("struct<a: unknown, b: list<unknown>>")
        'struct<a: string, b: list<string>>'
    """
    if kind == UNKNOWN:
        return "string"
    return _with_parts(kind, [(name, unknown_as_string(part)) for name, part in type_parts(kind)])


def without_unknown(kind: str, path: str = "", keeps: Callable[[str], bool] = lambda _: False) -> str | None:
    """Return a type without its ``unknown`` parts; ``None`` if nothing is left.

    Args:
        path: The path to the type.
        keeps: Returns whether a field without values stays, as ``string``, given its path.

    Example:
        >>> without_unknown("struct<a: unknown, b: int>"), without_unknown("list<struct<a: unknown>>")
        ('struct<b: int>', None)
        >>> without_unknown("struct<a: unknown, b: unknown>", "at", {"at.b"}.__contains__)
        'struct<b: string>'
    """
    if kind == UNKNOWN:
        return "string" if keeps(path) else None
    parts = [(name, without_unknown(part, f"{path}.{name}", keeps)) for name, part in type_parts(kind)]
    left = [(name, part) for name, part in parts if part is not None]
    if parts and (not left or (len(left) < len(parts) and not kind.startswith("struct<"))):
        return None
    return _with_parts(kind, left)


def _with_parts(like: str, parts: Sequence[tuple[str, str]]) -> str:
    """Return a type of the same kind as ``like`` with other parts."""
    if not parts:
        return like
    if like.startswith("struct<"):
        return struct_text(parts)
    return f"{like.partition('<')[0]}<{', '.join(part for _, part in parts)}>"


def find_part(parts: Sequence[tuple[str, str]], name: str) -> tuple[str, str] | None:
    """Return the part called ``name``; case is ignored if none has exactly this name."""
    exact = next((part for part in parts if part[0] == name), None)
    return exact or next((part for part in parts if part[0].lower() == name.lower()), None)


def _are_alike(one: str, other: str) -> bool:
    """Return whether two types can be compared part by part: structs, lists, or maps with the same key type."""
    mine, theirs = type_parts(one), type_parts(other)
    if not mine or not theirs or one.partition("<")[0] != other.partition("<")[0]:
        return False
    # A map's key type can't change.
    return not one.startswith("map<") or mine[0] == theirs[0]
