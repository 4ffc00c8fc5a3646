"""Run an application of Ray Serve on this host's cluster until told to stop.

Usage: python -m inferlift_serve MODULE:APP PORT
"""

import importlib
import signal
import sys

import ray
from ray import serve


def main():
    module, _, name = sys.argv[1].partition(":")
    ray.init(address="auto", logging_level="WARNING", log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
    serve.run(getattr(importlib.import_module(module), name), blocking=False)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()  # replicas end their requests first (graceful_shutdown_timeout_s)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
