"""Upload local files to the warehouse's object store for the duration of a run, for an engine on another machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from lakegate.config import StorageSettings
from lakegate.errors import LakegateError, SourceError
from lakegate.model.batch import Batch, SourceFile
from lakegate.ports import Narrator
from lakegate.sources.files import from_uri, shown
from lakegate.storage import open_store

FOLDER = ".lakegate-sources"
"""Folder in the warehouse for the uploads. ``lakegate gc`` deletes what killed processes left there."""
_ENDINGS = re.compile(r"(?:\.[A-Za-z0-9]{1,8}){1,2}$")


def upload(batch: Batch, warehouse: str, run_id: str, storage: StorageSettings, narrator: Narrator) -> Batch:
    """Copy the batch's local files to ``warehouse`` (a URI), and return the batch with the copies' URIs."""
    if not any(map(_is_local, batch.files)):
        return batch
    store, files = open_store(warehouse, storage), []
    with narrator.step(f"Copying {sum(map(_is_local, batch.files)):,} files to where the engine reads them") as step:
        for done, file in enumerate(batch.files, start=1):
            if _is_local(file):
                path = from_uri(file.copy_uri or file.uri)
                ending = _ENDINGS.search(path)  # tells Spark the compression
                target = f"{warehouse.rstrip('/')}/{FOLDER}/{run_id}/{token_hex(8)}{ending[0] if ending else ''}"
                try:
                    store.create(target, Path(path).read_bytes())
                except OSError as error:
                    raise SourceError(
                        f"'{shown(path)}' can't be copied to {target}: {error.strerror or error}.",
                        hint="The engine runs on another machine, and reads it there. Check your permissions on the "
                        "warehouse.",
                        path=shown(path),
                    ) from error
                file = file.model_copy(update={"copy_uri": target})  # noqa: PLW2901 - the same file
            files.append(file)
            step.progress(done, len(batch.files), "files")
    return batch.only(tuple(files))


def drop_uploads(files: Sequence[SourceFile], storage: StorageSettings) -> None:
    """Delete the uploaded copies. If that fails, ``lakegate gc`` deletes them later."""
    uris = [file.copy_uri for file in files if file.copy_uri is not None and f"/{FOLDER}/" in file.copy_uri]
    if uris:
        with suppress(LakegateError, OSError):
            open_store(uris[0], storage).delete(uris)


def _is_local(file: SourceFile) -> bool:
    return (file.copy_uri or file.uri).startswith("file:")
