"""Spark: sessions, reading source files, the write, scans, transactions, and the guard of users' SQL.

:class:`~lakegate.spark.engine.SparkEngine` implements :class:`lakegate.ports.Engine` for Spark Connect and for classic
sessions.
"""
