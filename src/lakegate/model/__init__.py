"""Frozen values: what flows between the context. Everything here survives a round trip through JSON."""
