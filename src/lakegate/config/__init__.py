"""Settings: ``lakegate.toml`` < ``LAKEGATE_*`` variables < flags. With none at all, everything works locally."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import quote

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from lakegate.config.receivers import (
    OPENLINEAGE,
    AnyDownstream,
    ChannelSettings,
    CommandDownstream,
    DownstreamSettings,
    GlueDownstream,
    NotifySettings,
    OpenlineageDownstream,
    SnowflakeDownstream,
    WebhookDownstream,
)
from lakegate.config.sections import (
    AdlsSettings,
    AuditSettings,
    CatalogSettings,
    EngineSettings,
    FunctionSettings,
    GcSettings,
    GcsSettings,
    IngestSettings,
    JournalSettings,
    LocalSettings,
    LogSettings,
    MaintenancePolicy,
    MaintenanceSettings,
    PublishSettings,
    S3Settings,
    ServeSettings,
    StorageSettings,
    TableOptions,
    TableSettings,
    UiSettings,
    WatchSettings,
)
from lakegate.config.types import JSON, Section, ShortName, TableName
from lakegate.errors import ConfigurationError, InputError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.words import nearest

__all__ = [
    "ENV_PREFIX",
    "FILE_NAME",
    "HOME_NAME",
    "LOCAL_SQL",
    "OPENLINEAGE",
    "AdlsSettings",
    "AnyDownstream",
    "CatalogSettings",
    "ChannelSettings",
    "CommandDownstream",
    "DownstreamSettings",
    "FunctionSettings",
    "GcsSettings",
    "GlueDownstream",
    "JournalSettings",
    "LocalSettings",
    "MaintenancePolicy",
    "NotifySettings",
    "OpenlineageDownstream",
    "S3Settings",
    "ServeSettings",
    "Settings",
    "SnowflakeDownstream",
    "StorageSettings",
    "TableOptions",
    "TableSettings",
    "UiSettings",
    "WatchSettings",
    "WebhookDownstream",
    "catalog_flags",
    "fill_link",
    "find_home",
    "home_at",
    "inner_models",
    "is_project",
    "load_settings",
    "override_settings",
]

FILE_NAME = "lakegate.toml"
HOME_NAME = ".lakegate"
ENV_PREFIX = "LAKEGATE_"
LOCAL_SQL = "sql"
"""The type of the catalog of a local stack without Nessie."""
_PATHS = (("engine", "ca_file"), ("journal", "ca_file"), ("serve", "tls_certificate"), ("serve", "tls_key"))
"""Settings that are paths, except those that are used relative to the project's folder anyway."""
_FOR_EVERYONE = stat.S_ISVTX | stat.S_IWOTH


class Settings(Section):
    """All settings of one project."""

    catalog: CatalogSettings = CatalogSettings()
    engine: EngineSettings = EngineSettings()
    journal: JournalSettings = JournalSettings()
    local: LocalSettings = LocalSettings()
    ingest: IngestSettings = IngestSettings()
    publish: PublishSettings = PublishSettings()
    gc: GcSettings = GcSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    watch: WatchSettings = WatchSettings()
    serve: ServeSettings = ServeSettings()
    log: LogSettings = LogSettings()
    function: FunctionSettings = FunctionSettings()
    s3: S3Settings = S3Settings()
    gcs: GcsSettings = GcsSettings()
    adls: AdlsSettings = AdlsSettings()
    notify: NotifySettings = NotifySettings()
    downstream: dict[ShortName, Annotated[AnyDownstream, JSON]] = Field(default_factory=dict)
    """Systems to notify of each publish: ``[downstream.NAME]``. ``LAKEGATE_DOWNSTREAM_NAME`` holds one as JSON."""
    openlineage: OpenlineageDownstream | None = None
    audit: AuditSettings = AuditSettings()
    ui: UiSettings = UiSettings()
    tables: dict[TableName, TableSettings] = Field(default_factory=dict)

    @property
    def keep_rejected(self) -> str:
        """How long to keep the branch of a rejected run. A target's clean-up may delete its files after three days."""
        is_default = "keep_rejected" not in self.ingest.model_fields_set
        return "2d" if is_default and self.catalog.is_target else self.ingest.keep_rejected

    @field_validator("openlineage", mode="before")
    @classmethod
    def _add_type(cls, value: Any) -> Any:
        return {"type": OPENLINEAGE, **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _add_openlineage(self) -> Settings:
        """Add the section ``openlineage`` to the downstream systems, so that there's one way to send events."""
        if (
            self.openlineage is not None
            and self.downstream.setdefault(OPENLINEAGE, self.openlineage) != self.openlineage
        ):
            raise ValueError("[openlineage] and [downstream.openlineage] are the same system: keep one of them")
        return self

    @model_validator(mode="after")
    def _check_store(self) -> Settings:
        if "s3.endpoint" in self.catalog.properties and self.s3.endpoint is None:
            raise ValueError(
                "[catalog.properties] has 's3.endpoint', which only PyIceberg reads: set 'endpoint' in [s3], too"
            )
        return self

    @property
    def storage(self) -> StorageSettings:
        """Where the object stores are: the sections ``s3``, ``gcs`` and ``adls``."""
        return StorageSettings(s3=self.s3, gcs=self.gcs, adls=self.adls)

    @property
    def run_url(self) -> str | None:
        """Template of links to runs: ``notify.report_url``, else their pages on the dashboard."""
        if self.notify.report_url is not None or self.ui.url is None:
            return self.notify.report_url
        return f"{self.ui.url.rstrip('/')}/run?run={{run_id}}"

    @property
    def masked(self) -> tuple[str, ...]:
        """Patterns of columns whose values are hidden, whichever section names them."""
        return (*self.ui.masked, *self.audit.mask)

    def link_to(self, run_id: str, table: str = "", branch: str = "") -> str | None:
        """Return a link to a run's page; ``None`` if no setting defines one."""
        return None if self.run_url is None else fill_link(self.run_url, run_id=run_id, table=table, branch=branch)

    def table(self, table: TableIdentifier) -> TableSettings:
        """Return the table's section, or defaults."""
        return self.tables.get(str(table), TableSettings())


def fill_link(template: str, **values: str) -> str:
    """Return a link with ``{run_id}``, ``{table}`` and ``{branch}`` filled in.

    Example:
        >>> fill_link("https://lake.example.com/{table}?run={run_id}", run_id="r1", table="a/b")
        'https://lake.example.com/a%2Fb?run=r1'
    """
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))
    return template


def find_home(start: Path | None = None) -> Path:
    """Return the project's folder: ``start`` or the nearest folder above it that is a project, else ``start``.

    A project that another user put into a folder for everyone, such as ``/tmp``, doesn't count: its settings could run
    commands. To use it anyway, pass ``--home``.

    Args:
        start: Where to start. Default: the current folder.

    Raises:
        InputError: The current folder no longer exists.
        ConfigurationError: ``start`` itself is such a folder, so a project can't be anywhere else.
    """
    try:
        here = (start or Path.cwd()).absolute()
    except FileNotFoundError:
        raise InputError(
            "The current folder no longer exists.", hint="Change to your project's folder, or pass --home."
        ) from None
    projects = (folder for folder in (here, *here.parents) if is_project(folder))
    home = next((folder for folder in projects if not _is_planted(folder)), here)
    if home == here and is_project(here) and _is_planted(here):
        raise ConfigurationError(
            f"Another user has put a lakegate project into {here}, a folder for everyone.",
            hint="Its settings could run commands. Work in a folder of your own; or, if you trust them, pass "
            f"--home {here}",
        )
    return home


def home_at(folder: str | Path) -> Path:
    """Return a project's folder as an absolute path without ``..``: the locations of its tables begin with it."""
    found = Path(folder).absolute()
    return found.resolve() if ".." in found.parts else found


def _is_planted(folder: Path) -> bool:
    """Return whether another user has put a project into a folder for everyone, as ``/tmp`` is."""
    if folder.stat().st_mode & _FOR_EVERYONE != _FOR_EVERYONE:
        return False
    owners = {path.lstat().st_uid for path in (folder / FILE_NAME, folder / HOME_NAME) if path.exists()}
    return not owners <= {os.geteuid(), 0}


def is_project(folder: Path) -> bool:
    """Return whether ``folder`` is a project's: whether it has ``lakegate.toml`` or ``.lakegate/``."""
    return (folder / FILE_NAME).is_file() or (folder / HOME_NAME).is_dir()


def load_settings(
    home: Path, *, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Read the settings of the project in ``home``.

    Args:
        env: Environment variables; ``LAKEGATE_ENGINE_URL`` sets ``engine.url``. Default: the process's.
        flags: Values that override all others, by dotted key: ``{"engine.url": "sc://…"}``. ``None`` is ignored.

    Raises:
        ConfigurationError: The file can't be read or parsed, a key is unknown, or a value isn't allowed.
    """
    path = home / FILE_NAME
    merged = _read_file(path)
    for variable, value in sorted((os.environ if env is None else env).items()):
        key = _key_of(variable)
        if key is not None:
            _put(merged, key, value)
    for dotted, value in (flags or {}).items():
        if value is not None:
            _put(merged, tuple(dotted.split(".")), value)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise _explain(error, path) from None


def catalog_flags(given: str | None) -> dict[str, str | None]:
    """Return the settings that an option ``catalog`` overrides: Nessie's address, or ``sql``.

    Example:
        >>> catalog_flags("sql"), catalog_flags("https://nessie.example.com/api/v2")
        ({'catalog.type': 'sql'}, {'catalog.uri': 'https://nessie.example.com/api/v2'})
    """
    return {"catalog.type": given} if given == LOCAL_SQL else {"catalog.uri": given}


def override_settings(settings: Settings, flags: Mapping[str, str | None]) -> Settings:
    """Return settings with other values for some keys, given as for :func:`load_settings`."""
    for dotted, value in flags.items():
        if value is not None:
            section, key = dotted.split(".")
            changed = getattr(settings, section).model_copy(update={key: value})
            settings = settings.model_copy(update={section: changed})
    return settings


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return _with_paths(tomllib.loads(path.read_text(encoding="utf-8-sig")), path.parent)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Can't read {path}: {error}", file=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"{path} isn't valid TOML: {error}", hint="See https://toml.io.", file=str(path)
        ) from None


def _with_paths(tree: dict[str, Any], home: Path) -> dict[str, Any]:
    """Make paths relative to the project's folder, not to the one that a command runs in."""
    for section, key in _PATHS:
        given = tree.get(section)
        if isinstance(given, dict) and isinstance(given.get(key), str):
            given[key] = str(home / given[key])
    return tree


def _key_of(variable: str) -> tuple[str, str] | None:
    if not variable.startswith(ENV_PREFIX):
        return None
    section, _, name = variable.removeprefix(ENV_PREFIX).lower().partition("_")
    if section in Settings.model_fields:
        return (section, name) if section != "tables" and name else None
    # Other variables are the user's own, such as a token for `env:`. But a misspelled section is an error.
    guess = nearest(section, Settings.model_fields)
    if guess is not None and guess != "tables" and name in _known_keys((guess,)):
        raise ConfigurationError(
            f"{variable} doesn't match any setting.",
            hint=f"Did you mean {ENV_PREFIX}{guess.upper()}_{name.upper()}?",
            variable=variable,
        )
    return None


def _put(tree: dict[str, Any], key: tuple[str, ...], value: Any) -> None:
    for part in key[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigurationError(f"'{part}' must be a section of {FILE_NAME}, not a value.", setting=part)
    tree[key[-1]] = value


_EXPECTED = {
    "dict_type": "must be a table",
    "model_attributes_type": "must be a section",
    "missing": "is missing",
    "model_type": "must be a section",
    "string_type": "must be text",
    "tuple_type": 'must be a list, such as ["a", "b"]',
}
"""What Pydantic's kinds of errors expect, in TOML's terms."""


def _explain(error: ValidationError, path: Path) -> ConfigurationError:
    lines = []
    hint = None
    for problem in error.errors():
        location = tuple(str(part) for part in problem["loc"] if part != "[key]")
        # For a section with several types, Pydantic's location includes the type.
        dotted = ".".join((*location[:2], *location[3:]) if location[:1] == ("downstream",) else location)
        if problem["type"].startswith("union_tag"):
            types = [name for one in inner_models(AnyDownstream) for name in _type_names(one)]
            lines.append(f"'{dotted}.type' must be one of {', '.join(types)}")
        elif problem["type"] == "extra_forbidden":
            guess = nearest(location[-1], _known_keys(location[:-1]))
            lines.append(f"unknown key '{dotted}'" + (f" (did you mean '{guess}'?)" if guess else ""))
            hint = hint or f"Known keys there: {', '.join(sorted(_known_keys(location[:-1])))}."
        else:
            message = _EXPECTED.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
            message = message.replace("Input should be ", "must be ", 1)
            lines.append(f"'{dotted}': {message}" if dotted else message)
    return ConfigurationError(
        f"Settings ({path}, variables and options): {'; '.join(lines)}.", hint=hint, file=str(path)
    )


def _known_keys(location: tuple[str, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for at, part in enumerate(location):
        field = model.model_fields.get(part)
        inner = () if field is None else tuple(inner_models(field.annotation))
        # If a section can have several types, the location names the one it has.
        matching = (one for one in inner if set(location[at:]) & set(_type_names(one)))
        model = inner[0] if len(inner) == 1 else next(matching, model) if inner else model
    return list(model.model_fields)


def _type_names(model: type[BaseModel]) -> tuple[str, ...]:
    return get_args(model.model_fields["type"].annotation)


def inner_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for one in get_args(annotation):
        yield from inner_models(one)
