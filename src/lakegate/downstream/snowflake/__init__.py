"""Snowflake reading the certified tables: its objects, and one refresh of each table after each publish."""
