"""The engine room: what moves and reads rows.

One implementation, :class:`~lakegate.engine.spark.SparkEngine`, for Spark Connect and for classic sessions. A new
engine is a module here that implements :class:`lakegate.protocols.Engine`, picked in ``lakegate.lake``.
"""
