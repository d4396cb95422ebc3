"""Branches and history for Iceberg catalogs that have none, kept beside them in the journal's database.

Users' own catalog is the **target**: it sees a run once its audit has passed, as one commit per table. Branches, staged
states, tags and the lake's history are the **overlay**.
"""

from __future__ import annotations

from lakegate.catalogs.target.catalog import TargetCatalog
from lakegate.catalogs.target.overlay import OverlayCatalog

__all__ = ["OverlayCatalog", "TargetCatalog"]
