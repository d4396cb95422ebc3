"""One module a version, each with the one before it as ``down_revision``."""
