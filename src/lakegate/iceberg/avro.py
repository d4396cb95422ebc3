"""Avro container files, record by record, with each record's own bytes kept.

Manifests and manifest lists are rewritten by copying most of their records as they are. Decoding them with PyIceberg's
compiled decoder is quick, encoding them again in Python is not, and would lose fields this version doesn't know.
Format: Apache Avro specification, "Object Container Files".
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

SCHEMA_KEY = "avro.schema"


@dataclass(frozen=True, slots=True)
class Container:
    """A container file that was read.

    Attributes:
        meta: Its schema, its codec and what Iceberg adds to them.
        blocks: Some records each: how many, and their bytes, uncompressed.
    """

    meta: Mapping[str, str]
    blocks: Sequence[tuple[int, bytes]]

    @property
    def schema(self) -> str:
        """The schema its records were written with, as JSON text."""
        return self.meta[SCHEMA_KEY]

    def records(self, read: Callable[[BinaryDecoder], Any]) -> Iterator[tuple[Any, bytes]]:
        """Yield what ``read`` makes of each record, and the record's bytes."""
        for count, content in self.blocks:
            decoder, start = new_decoder(content), 0
            for _ in range(count):
                record = read(decoder)
                end = decoder.tell()
                yield record, content[start:end]
                start = end


def read_container(content: bytes) -> Container:
    """Return the container file that ``content`` is.

    Raises:
        ValueError: When it is not one, or is cut off.
    """
    if not content.startswith(MAGIC):
        raise ValueError("not an Avro file")
    decoder = new_decoder(content)
    header = _header_reader().read(decoder)
    codec = _codec(header.meta)
    blocks = []
    while decoder.tell() < len(content):
        count, compressed, sync = decoder.read_int(), decoder.read_bytes(), decoder.read(SYNC_SIZE)
        if sync != header.sync:
            raise ValueError("a block does not end where it should")
        blocks.append((count, codec.decompress(compressed) if codec else compressed))
    return Container(meta=header.meta, blocks=blocks)


def write_container(meta: Mapping[str, str], records: Sequence[bytes]) -> bytes:
    """Return a container file of ``records``, encoded by the schema in ``meta``."""
    codec, body = _codec(meta), b"".join(records)
    compressed = codec.compress(body)[0] if codec else body
    sync = secrets.token_bytes(SYNC_SIZE)
    stream = io.BytesIO()
    encoder = BinaryEncoder(cast("Any", stream))
    _header_writer().write(encoder, AvroFileHeader(MAGIC, dict(meta), sync))
    if records:
        encoder.write_int(len(records))
        encoder.write_bytes(compressed)
        encoder.write(sync)
    return stream.getvalue()


def encoded(write: Callable[..., None], *values: Any) -> bytes:
    """Return the bytes that ``write(encoder, *values)`` writes."""
    stream = io.BytesIO()
    write(BinaryEncoder(cast("Any", stream)), *values)
    return stream.getvalue()


@lru_cache(maxsize=256)
def iceberg_schema(avro_schema: str) -> Schema:
    """Return a record's schema in Iceberg's terms. Converting takes milliseconds, and few schemas are in use."""
    return AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))


@lru_cache(maxsize=1)
def _header_reader() -> Reader:
    return construct_reader(META_SCHEMA, {-1: AvroFileHeader})


@lru_cache(maxsize=1)
def _header_writer() -> Writer:
    return construct_writer(META_SCHEMA)


def _codec(meta: Mapping[str, str]) -> type[Codec] | None:
    name = meta.get(AVRO_CODEC_KEY, "null")
    if name not in KNOWN_CODECS:
        raise ValueError(f"unknown codec {name}")
    return KNOWN_CODECS[name]
