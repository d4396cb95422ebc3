"""Read JSON: one object per line, several objects in sequence, or one list of objects; without rounding integers.

Arrow parses a block of lines at once and infers its types. These are then joined over all blocks without losing
anything: text that looks like a time stays text (all values decide later, as in CSV), integers that don't fit into 64
bits become decimals, and a column with mixed types is an error that names the line.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types

from lakegate.errors import SchemaError, SourceError
from lakegate.model.batch import FINE_TIME, SourceColumn
from lakegate.model.types import UNKNOWN, struct_text
from lakegate.sources.csv_types import INEXACT_IN_DOUBLE, Inference, infer
from lakegate.sources.files import Located, shown
from lakegate.sources.rows import Rows, decompressed
from lakegate.storage.objects import first_line

_BLOCK_BYTES = 16 << 20
_PARSED_AT_ONCE = 2 << 20
_LONGEST_LINE = 512 << 20
_KEPT_BYTES = 128 << 20
"""Size of parsed columns to keep until all types are known. If a file has more, its blocks are parsed twice."""
_LONG = range(-(2**63), 2**63)
_DECIMAL = pa.decimal128(38, 0)
_TIMES = frozenset({"date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]"})
_SPACES = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_MARKS = (b"\xff\xfe", b"\xfe\xff")
_DEEPEST = 200
"""Most levels of nesting. At several thousand, recursive parsers crash."""
LONE_NULL = re.compile(rb"(?:^|[\n}])[ \t\r]*null")
"""A possible ``null`` in place of an object, which Arrow reads as a row, or crashes on."""
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_OPENING = bytes(set(range(256)) - set(b"{[\n"))
_NEWLINE, _OPENS, _CLOSES = b"\n{}"
_BRACKET = re.compile(rb"[{}\[\]]")
_ICEBERG = {
    "bool": "boolean",
    "int64": "long",
    "double": "double",
    "string": "string",
    str(_DECIMAL): "decimal(38, 0)",
}
_Path = tuple[str, ...]


def read(file: Located, on_read: Callable[[int], None]) -> Rows:
    """Read the objects in ``file`` as rows.

    Args:
        file: The file, which is compressed if its name ends in ``.gz`` or ``.zst``.
        on_read: Called with the number of bytes read after each block.

    Raises:
        SourceError: When it isn't JSON, or has something other than objects; it names the line.
        SchemaError: When a column has values of different types.
    """
    path = shown(file.path)
    kept: list[pa.Table] | None = []
    found = _Columns(path)
    size = 0
    for block, line in _blocks(file, on_read):
        table = found.add(block, line)
        size += table.nbytes
        if kept is not None:
            kept = [*kept, table] if size <= _KEPT_BYTES else None
    schema = found.schema()

    def tables() -> Iterator[pa.Table]:
        if kept is not None:
            yield from kept
            return
        for block, line in _blocks(file, lambda _: None):
            yield found.parse(block, line)

    return Rows(
        schema=schema,
        columns=tuple(found.column(field) for field in schema),
        types=[found.text(field.name) for field in schema],
        batches=(_fitted(table, schema) for table in tables()),
    )


class _Columns:
    """The columns of a file, joined over its blocks."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._joined: Any = pa.struct([])
        self._inferred: dict[str, Inference] = {}
        self._large: dict[_Path, int] = {}
        self._natural: Any = None

    def add(self, block: bytes, line: int) -> pa.Table:
        """Parse a block to a table, and join its types with those so far."""
        table = self.parse(block, line)
        for path, values in _leaves(table):
            if types.is_int64(values.type) and _exceeds(values):
                self._large.setdefault(path, line)
        try:
            in_order = _joined(self._joined, self._natural, ())
            self._joined = _joined(in_order, pa.struct(list(table.schema)), ())
        except _MixedError as error:
            raise self._mixed(block, line, error.path) from None
        for field, column in zip(table.schema, table.columns, strict=True):
            if types.is_string(field.type):
                known = self._inferred.get(field.name, Inference())
                for chunk in column.chunks:
                    texts: Any = chunk
                    is_empty = pc.any(pc.equal(texts, pa.scalar(""))).as_py()
                    known = Inference("string") if is_empty else infer(texts, known)
                self._inferred[field.name] = known
        return table

    def parse(self, block: bytes, line: int) -> pa.Table:
        """Parse a block to a table with types that hold its values exactly."""
        self._require_parsable(block, line)
        explicit = _only(self._joined, lambda kind: types.is_string(kind) or types.is_decimal(kind))
        self._natural = None
        while True:
            table = self._table(block, line, explicit)
            struct = pa.struct(list(table.schema))
            # Arrow moves columns with explicit types to the front.
            self._natural = self._natural or _without_types(struct)
            texts = _only(struct, types.is_timestamp, pa.string())
            long = {path for path, values in _leaves(table) if types.is_float64(values.type) and _exceeds(values)}
            decimals = self._long_integers(block, line, long) if long else None
            again = [each for each in (texts, decimals) if each is not None]
            if not again:
                return table
            for each in again:
                explicit = each if explicit is None else _joined(explicit, each, ())

    def schema(self) -> pa.Schema:
        """Return the schema of all blocks. Columns without values are text."""
        if not self._joined.num_fields:
            raise SourceError(
                f"'{self._path}' has no JSON object with a key.",
                hint="Write it again, or exclude it.",
                path=self._path,
            )
        for path, line in self._large.items():
            if _at(self._joined, path) == pa.float64():
                raise self._inexact(path, line)
        return pa.schema([pa.field(field.name, _settled(field.type)) for field in self._joined])

    def column(self, field: Any) -> SourceColumn:
        """Return a column with its inferred type: a date or time type if all of its text is dates or times."""
        kind: Any = self._joined.field(field.name).type
        inferred = self._inferred.get(field.name, Inference("string")).arrow_type
        if types.is_string(kind) and inferred in _TIMES:
            return SourceColumn(name=field.name, type=inferred)
        inferred = _iceberg_type(kind)
        if inferred == UNKNOWN:
            return SourceColumn(name=field.name, type="null")
        return SourceColumn(name=field.name, type=str(field.type), inferred=inferred if "<" in inferred else None)

    def text(self, name: str) -> Inference:
        """Return what keeps a column text: a time that's finer than a timestamp, if anything."""
        known = self._inferred.get(name, Inference())
        return known if re.search(FINE_TIME, known.odd) else Inference()

    def _table(self, block: bytes, line: int, explicit: Any) -> pa.Table:
        parsing = pj.ParseOptions(explicit_schema=None if explicit is None else pa.schema(list(explicit)))
        try:
            for at_once in (_PARSED_AT_ONCE, len(block) + 1):
                reading = pj.ReadOptions(block_size=at_once)
                try:
                    return pj.read_json(io.BytesIO(block), read_options=reading, parse_options=parsing)
                except pa.ArrowInvalid as error:
                    # Arrow's message for a line that is longer than its block size.
                    if "straddling" not in str(error) or at_once > len(block):
                        raise
            raise AssertionError("the last attempt returns or raises")
        except (pa.ArrowException, ValueError) as error:
            raise self._explained(block, line, error) from error

    def _require_parsable(self, block: bytes, line: int) -> None:
        """Refuse input that crashes Arrow's parser."""
        is_shallow, is_flat = block_shape(block)
        openings = b"" if is_shallow else block.translate(None, _NO_OPENING)
        if max(map(len, openings.split(b"\n"))) > _DEEPEST:
            for number, text in _lines(block, line):
                if text.count(b"{") + text.count(b"[") > _DEEPEST and _depth(text) > _DEEPEST:
                    raise SourceError(
                        f"'{self._path}', line {number} is nested too deeply: more than {_DEEPEST} levels.",
                        hint="Write it with less nesting, or as text.",
                        path=self._path,
                    )
        # Rule most blocks out cheaply, because the exact search takes longer than parsing.
        dense = b"" if is_flat else b"\n" + block.translate(None, b" \t\r")
        for found in LONE_NULL.finditer(block) if b"\nnull" in dense or b"}null" in dense else ():
            start = block.rfind(b"\n", 0, found.end()) + 1
            end = block.find(b"\n", start)
            text = block[start : end if end >= 0 else None]
            number = line + block.count(b"\n", 0, start)
            if LONE_NULL.search(_TEXT.sub(b"", text)):
                raise SourceError(
                    f"'{self._path}', line {number} is null, not an object.",
                    hint='Write one object per line, such as {"id": 1, "name": "a"}.',
                    path=self._path,
                )

    def _long_integers(self, block: bytes, line: int, suspects: set[_Path]) -> Any:
        """Return a struct type of those ``suspects`` that need decimals to hold their integers; ``None`` if none do."""
        found: set[_Path] = set()
        fractions: dict[_Path, int] = {}
        for number, text in _lines(block, line):
            for path, value in _values(json.loads(text, parse_float=_Fraction), ()):
                if path not in suspects:
                    continue
                if isinstance(value, _Fraction):
                    if value.is_rounded:
                        raise self._inexact(path, number)
                    fractions.setdefault(path, number)
                elif isinstance(value, int) and (value not in _LONG or int(float(value)) != value):
                    found.add(path)
        for path in found & fractions.keys():
            raise self._inexact(path, fractions[path])
        return _typed(found, _DECIMAL)

    def _inexact(self, path: _Path, line: int) -> SchemaError:
        return SchemaError(
            f"'{self._path}': '{_spelled(path)}' has fractions, and numbers beyond 2^53 that a double would round "
            f"(about line {line}).",
            hint="Write the values of this column as text, in quotes.",
            path=self._path,
        )

    def _mixed(self, block: bytes, line: int, path: _Path) -> SchemaError:
        """Return the error for a column with values of different types, naming the first line that differs."""
        known: tuple[str, int] | None = None
        joined = _at(self._joined, path)
        if joined is not None and not types.is_null(joined):
            known = (_kind_of_type(joined), 0)
        for number, text in _lines(block, line):
            for at, value in _values(json.loads(text), (), nodes=True):
                if at != path or value is None:
                    continue
                kind = _kind_of_value(value)
                if known is not None and kind != known[0]:
                    before = f"{known[0]} before (line {known[1]})" if known[1] else f"{known[0]} before"
                    return SchemaError(
                        f"'{self._path}', line {number}: '{_spelled(path)}' is {kind}, but was {before}.",
                        hint="Write all values of a column with one type; put numbers among text in quotes.",
                        path=self._path,
                    )
                known = known or (kind, number)
        return SchemaError(
            f"'{self._path}': '{_spelled(path)}' has values of different types.",
            hint="Write all values of a column with one type.",
            path=self._path,
        )

    def _explained(self, block: bytes, line: int, error: Exception) -> SourceError | SchemaError:
        """Return the error for a block that Arrow can't parse, naming the line."""
        kinds: dict[_Path, str] = {}
        for number, text in _lines(block, line):
            try:
                row = json.loads(text.decode(), object_pairs_hook=_once, parse_float=_finite, parse_int=_whole)
                json.dumps(row, ensure_ascii=False).encode()  # raises for half a surrogate pair, such as \\uD800
            except (ValueError, RecursionError) as problem:
                reason = str(problem).partition(": line 1")[0] or type(problem).__name__
                return SourceError(
                    f"'{self._path}', line {number} isn't valid JSON: {reason}.",
                    hint="Repair the line. Each line must have one complete object.",
                    path=self._path,
                )
            if not isinstance(row, dict):
                return SourceError(
                    f"'{self._path}', line {number} is {_kind_of_value(row)}, not an object.",
                    hint='Write one object per line, such as {"id": 1, "name": "a"}.',
                    path=self._path,
                )
            for at, value in _values(row, (), nodes=True):
                kind = _kind_of_value(value)
                if value is not None and kinds.setdefault(at, kind) != kind:
                    return self._mixed(block, line, at)
        for at, kind in kinds.items():
            before = _at(self._joined, at)
            if before is not None and not types.is_null(before) and _kind_of_type(before) != kind:
                return self._mixed(block, line, at)
        reason = first_line(str(error) or type(error).__name__)
        return SourceError(
            f"'{self._path}' can't be parsed near line {line}: {reason}.",
            hint="Write one object per line, with plain values.",
            path=self._path,
        )


class _MixedError(Exception):
    def __init__(self, path: _Path) -> None:
        super().__init__(path)
        self.path = path


def _joined(one: Any, other: Any, path: _Path) -> Any:
    """Return the type that holds the values of both exactly, provided that a double can hold the integers."""
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_struct(one) and types.is_struct(other):
        known = {field.name: field.type for field in one}
        for field in other:
            mine = known.get(field.name)
            at = (*path, field.name)
            known[field.name] = field.type if mine is None else _joined(mine, field.type, at)
        return pa.struct(list(known.items()))
    if types.is_list(one) and types.is_list(other):
        return pa.list_(pa.field("element", _joined(one.value_type, other.value_type, (*path, "[]"))))
    numbers = {str(one), str(other)}
    if numbers == {"int64", "double"}:
        return pa.float64()
    if numbers == {"int64", str(_DECIMAL)}:
        return _DECIMAL
    raise _MixedError(path)


def _at(kind: Any, path: _Path) -> Any:
    """Return the type at a path inside a type; ``None`` if there's none."""
    for name in path:
        if types.is_list(kind):
            kind = kind.value_type
        elif types.is_struct(kind) and kind.get_field_index(name) >= 0:
            kind = kind.field(name).type
        else:
            return None
    return kind


def _without_types(kind: Any) -> Any:
    """Return the structure of a type, with ``null`` for all values, to keep the order of its columns."""
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _without_types(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(pa.field("element", _without_types(kind.value_type)))
    return pa.null()


def _only(kind: Any, wanted: Callable[[Any], bool], become: Any = None) -> Any:
    """Return only the ``wanted`` parts of a type, replaced by ``become`` if given; ``None`` if there are none."""
    if types.is_struct(kind):
        parts = [(field.name, _only(field.type, wanted, become)) for field in kind]
        found = [(name, part) for name, part in parts if part is not None]
        return pa.struct(found) if found else None
    if types.is_list(kind):
        part = _only(kind.value_type, wanted, become)
        return None if part is None else pa.list_(pa.field("element", part))
    return (become or kind) if wanted(kind) else None


def _typed(paths: set[_Path], kind: Any) -> Any:
    """Return a struct type with ``paths`` of the given type; ``None`` without paths."""
    joined: Any = None
    for path in paths:
        made = kind
        for name in reversed(path):
            made = pa.list_(pa.field("element", made)) if name == "[]" else pa.struct([(name, made)])
        joined = made if joined is None else _joined(joined, made, ())
    return joined


def _iceberg_type(kind: Any) -> str:
    if types.is_null(kind) or (types.is_struct(kind) and not kind.num_fields):
        return UNKNOWN
    if types.is_struct(kind):
        return struct_text((field.name, _iceberg_type(field.type)) for field in kind)
    if types.is_list(kind):
        return f"list<{_iceberg_type(kind.value_type)}>"
    return _ICEBERG[str(kind)]


def _settled(kind: Any) -> Any:
    """Return a type that parquet can hold: text where the type is unknown."""
    if types.is_null(kind) or (types.is_struct(kind) and not kind.num_fields):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([(field.name, _settled(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(pa.field("element", _settled(kind.value_type)))
    return kind


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.chunked_array([pa.nulls(len(table), field.type)]))
            continue
        chunks = [_fit(chunk, field.type) for chunk in table.column(index).chunks]
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _fit(array: Any, kind: Any) -> Any:
    """Cast an array to a type that was joined from its own and others."""
    if array.type == kind:
        return array
    if types.is_null(array.type) or (types.is_struct(array.type) and not types.is_struct(kind)):
        return pa.nulls(len(array), kind)
    if types.is_struct(kind):
        parts = []
        for field in kind:
            index = array.type.get_field_index(field.name)
            parts.append(pa.nulls(len(array), field.type) if index < 0 else _fit(array.field(index), field.type))
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if types.is_list(kind):
        plain = pa.concat_arrays([array]) if array.offset else array
        values = _fit(plain.values, kind.value_type)
        return pa.ListArray.from_arrays(plain.offsets, values, type=kind, mask=plain.is_null())
    return pc.cast(array, kind)


def _leaves(table: pa.Table) -> Iterator[tuple[_Path, Any]]:
    """Yield the path and values of each numeric column, including nested ones."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        for chunk in column.chunks:
            yield from _leaves_in(chunk, (name,))


def _leaves_in(array: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    if types.is_struct(array.type):
        for index, field in enumerate(array.type):
            yield from _leaves_in(array.field(index), (*path, field.name))
    elif types.is_list(array.type):
        yield from _leaves_in(array.flatten(), (*path, "[]"))
    elif types.is_int64(array.type) or types.is_float64(array.type):
        yield path, array


def _exceeds(values: Any) -> bool:
    bounds = pc.min_max(values)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return low is not None and (high >= INEXACT_IN_DOUBLE or low <= -INEXACT_IN_DOUBLE)


def _values(value: Any, path: _Path, *, nodes: bool = False) -> Iterator[tuple[_Path, Any]]:
    """Yield the paths and plain values of a row; with ``nodes``, also its lists and objects."""
    if path and (nodes or not isinstance(value, (dict, list))):
        yield path, value
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _values(part, (*path, name), nodes=nodes)
    elif isinstance(value, list):
        for part in value:
            yield from _values(part, (*path, "[]"), nodes=nodes)


def _kind_of_value(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    kinds: Mapping[type, str] = {str: "text", dict: "an object", list: "a list"}
    return kinds.get(type(value), "null")


def _kind_of_type(kind: Any) -> str:
    if types.is_boolean(kind):
        return "true or false"
    if types.is_struct(kind):
        return "an object"
    if types.is_list(kind):
        return "a list"
    return "text" if types.is_string(kind) else "a number"


def _spelled(path: _Path) -> str:
    return ".".join(path).replace(".[]", "[]")


class _Fraction(float):
    """A number with a fraction or an exponent.

    Attributes:
        is_rounded: Whether its digits are all written, and a double has others.
    """

    is_rounded: bool

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.is_rounded = "e" not in text.lower() and abs(self) >= INEXACT_IN_DOUBLE and Decimal(text) != Decimal(self)
        return self


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{twice}' occurs twice")
    return made


def _finite(text: str) -> float:
    if float(text) in {float("inf"), float("-inf")}:
        raise ValueError(f"{text} is too large for a double")
    return float(text)


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > _DECIMAL.precision:
        raise ValueError(f"{text} has more than {_DECIMAL.precision} digits")
    return int(text)


def block_shape(block: bytes) -> tuple[bool, bool]:
    """Return whether no line can be nested deeply, and whether each line is one object without nested ones."""
    text = np.frombuffer(block.rstrip() or b" ", np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    lines = int(np.count_nonzero(text[ends + 1] == _OPENS)) + int(text[0] == _OPENS)
    # Each line starts with a bracket, so no line has more than the remaining ones. "[" is "{" without one bit.
    is_shallow = int(np.count_nonzero(text | 32 == _OPENS)) - lines < _DEEPEST
    is_flat = (
        lines == len(ends) + 1 == np.count_nonzero(text == _CLOSES)
        and bool(text[-1] == _CLOSES)
        and bool((text[ends - 1] == _CLOSES).all())
    )
    return is_shallow, is_flat


def _depth(text: bytes) -> int:
    """Return the nesting depth of a line's lists and objects."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(_TEXT.sub(b"", text)):
        depth += 1 if bracket in b"{[" else -1
        deepest = max(deepest, depth)
    return deepest


def _lines(block: bytes, first: int) -> Iterator[tuple[int, bytes]]:
    for number, text in enumerate(block.split(b"\n"), start=first):
        if text.strip(b" \t\r"):
            yield number, text


def _blocks(file: Located, on_read: Callable[[int], None]) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of whole lines of objects, with the number of the first line."""
    path = shown(file.path)
    with decompressed(file, on_read) as stream:
        head = stream.read(_BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf")
        if head.startswith(_MARKS):
            message = f"'{path}' is UTF-16; JSON is read as UTF-8."
            raise SourceError(message, hint="Convert it, for example with iconv.", path=path)
        if _is_document(head):
            content = head
            while block := stream.read(_BLOCK_BYTES):
                content += block
                if len(content) > _LONGEST_LINE:
                    message = (
                        f"'{path}' is a list, or its first object spans lines, so it must fit into memory, but it has "
                        f"more than {_LONGEST_LINE:,} bytes."
                    )
                    raise SourceError(message, hint="Write one object per line.", path=path)
            yield from _document(path, content)
            return
        number = 1
        for block in _whole_lines(path, head, stream):
            _require_utf8(path, block, number)
            yield block, number
            number += block.count(b"\n")


def _is_document(head: bytes) -> bool:
    """Return whether a file is a list, or has objects that span lines, instead of one object per line."""
    text = head.lstrip()
    if not text.startswith(b"{"):
        return text.startswith(b"[")
    line, end, _ = text.partition(b"\n")
    try:
        json.loads(line)
    except RecursionError:
        return False
    except ValueError as error:
        # If the error is at the line's end, the object continues on the next line. Any other is an error in this line.
        return bool(end) and isinstance(error, json.JSONDecodeError) and error.pos >= len(line.decode("utf-8").rstrip())
    return False


def _whole_lines(path: str, head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    pending = head
    while True:
        block = stream.read(_BLOCK_BYTES)
        if not block:
            break
        cut = pending.rfind(b"\n") + 1
        if cut:
            yield pending[:cut]
        elif len(pending) > _LONGEST_LINE:
            message = f"'{path}' has a line of more than {_LONGEST_LINE:,} bytes."
            raise SourceError(message, hint="Write one object per line.", path=path)
        pending = pending[cut:] + block
    if pending.strip():
        yield pending


def _require_utf8(path: str, block: bytes, line: int) -> None:
    try:
        if not block.isascii():
            block.decode("utf-8")
    except UnicodeDecodeError as error:
        at = line + block.count(b"\n", 0, error.start)
        message = f"'{path}' isn't UTF-8: byte 0x{block[error.start]:02x} on line {at}."
        raise SourceError(message, hint="Convert it to UTF-8, for example with iconv.", path=path) from error


def _document(path: str, content: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the objects of a list, or of several objects in sequence, as blocks of one line each.

    Empty lines keep the number of the line that each object starts on, unless several start on one line.
    """
    _require_utf8(path, content, 1)
    lines: list[str] = []
    first, size = 1, 0
    try:
        for text, line in _elements(content.decode("utf-8")):
            lines += [""] * (line - first - len(lines))
            lines.append(text.replace("\n", " ").replace("\r", " "))
            size += len(text)
            if size > _BLOCK_BYTES:
                yield "\n".join(lines).encode(), first
                first, size, lines = first + len(lines), 0, []
    except json.JSONDecodeError as error:
        message = f"'{path}' isn't valid JSON: {error.msg} (line {error.lineno})."
        raise SourceError(message, hint="Repair it. A list may only have objects.", path=path) from error
    if lines:
        yield "\n".join(lines).encode(), first


def _elements(text: str) -> Iterator[tuple[str, int]]:
    """Yield the text of each object in a list or sequence, and the line that it starts on."""
    at, line, counted = _skipped(text, 0), 1, 0
    is_list = text.startswith("[", at)
    at = _skipped(text, at + is_list)
    while at < len(text) and not (is_list and text.startswith("]", at)):
        value, end = _DECODER.raw_decode(text, at)
        if not isinstance(value, dict):
            raise json.JSONDecodeError(f"expected an object, not {_kind_of_value(value)}", text, at)
        line, counted = line + text.count("\n", counted, at), at
        yield text[at:end], line
        at = _skipped(text, end)
        if is_list and text.startswith(",", at):
            at = _skipped(text, at + 1)
        elif is_list and not text.startswith("]", at):
            raise json.JSONDecodeError("Expecting ',' or ']'", text, at)
    if is_list and (at >= len(text) or _skipped(text, at + 1) != len(text)):
        what = "Something follows the list" if at < len(text) else "The list has no end"
        raise json.JSONDecodeError(what, text, at)


def _skipped(text: str, at: int) -> int:
    """Return the position of the next character that isn't whitespace."""
    found = _SPACES.match(text, at)
    return at if found is None else found.end()
