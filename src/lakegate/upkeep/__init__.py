"""Upkeep: collect garbage, maintain tables, verify a lake. Decides nothing about what is published."""
