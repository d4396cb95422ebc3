"""Frozen values: what flows between the rooms. Everything here survives a round trip through JSON."""
