"""Snowflake as a reader of published tables: its objects, and a refresh of each table after each publish."""
