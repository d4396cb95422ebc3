"""Nessie over its REST API v2: a small typed client, and the :class:`~lakegate.ports.Catalog` built on it."""

from __future__ import annotations

from lakegate.catalogs.nessie.catalog import NessieCatalog

__all__ = ["NessieCatalog"]
