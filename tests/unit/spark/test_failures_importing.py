"""Spark's modules, first needed by many threads at the same moment, each at another place."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
import grpc, py4j.protocol
from lakegate.spark.failures import spark_errors
from lakegate.spark.sessions import remote_sessions
from lakegate.errors import ConfigurationError

def translate():
    with spark_errors("looking"):
        pass

def connect():
    try:
        remote_sessions("sc://")({})
    except ConfigurationError:
        pass

doings = [translate, connect] * 8
together = threading.Barrier(len(doings))

def begin(doing):
    together.wait()
    try:
        doing()
    except BaseException as error:
        print(repr(error))

sys.setswitchinterval(1e-5)
assert "pyspark" not in sys.modules
threads = [threading.Thread(target=begin, args=(doing,)) for doing in doings]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert "pyspark.sql.connect.session" in sys.modules
"""


def test_no_thread_sees_half_of_a_module() -> None:
    done = subprocess.run((sys.executable, "-c", PROGRAM), capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
