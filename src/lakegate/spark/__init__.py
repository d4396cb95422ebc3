"""Spark: sessions, reading source files, writes, scans, transactions, and the guard for users' SQL.

:class:`~lakegate.spark.engine.SparkEngine` implements :class:`lakegate.ports.Engine` for Spark Connect and for classic
sessions.
"""
