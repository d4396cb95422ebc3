"""The built-in rules, one file each. Every file exposes ``RULE``."""
