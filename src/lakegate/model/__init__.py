"""Frozen values that packages pass to each other. Everything here survives a round trip through JSON."""
