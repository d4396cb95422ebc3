"""Snowflake reads published tables: setup of its objects, and a refresh of each table after each publish."""
