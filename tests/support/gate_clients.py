"""Engines as writers have them: with the address of a gate and a token, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import duckdb
from pyiceberg.catalog import Catalog, load_catalog

from lakegate.gate.environment import spark_settings
from lakegate.local.state import StackState
from lakegate.spark.sessions import end_session, remote_sessions
from support.served_lake import duckdb_with_iceberg


class Opened(Protocol):
    """What a writer is told."""

    @property
    def branch(self) -> str: ...
    @property
    def token(self) -> str: ...


@contextmanager
def pyiceberg(uri: str, opened: Opened) -> Iterator[Catalog]:
    """Open PyIceberg's catalog."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyIceberg's own, of its way to send a token
        catalog = load_catalog("gate", type="rest", uri=uri, token=opened.token)
        try:
            yield catalog
        finally:
            catalog.close()


@contextmanager
def duck(uri: str, opened: Opened) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB with the gate attached as ``gate``."""
    with duckdb_with_iceberg() as connection:
        connection.execute(f"ATTACH '{opened.branch}' AS gate (TYPE iceberg, ENDPOINT '{uri}', TOKEN '{opened.token}')")
        yield connection


@contextmanager
def spark(uri: str, opened: Opened, stack: StackState) -> Iterator[Any]:
    """Open a session of Spark Connect with the gate as its default catalog."""
    settings = dict(spark_settings(uri, opened.token))
    del settings["spark.sql.extensions"]  # a session can't set it; the server has it
    session: Any = remote_sessions(stack.spark_url)(settings)
    try:
        yield session
    finally:
        end_session(session)
