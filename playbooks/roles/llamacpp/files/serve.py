"""llama.cpp's own HTTP server, run from the xllamacpp wheel with the settings of one JSON file.

Usage: serve.py SETTINGS.json. The key is read from a file, so that it is in no argument and no environment.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import xllamacpp


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # Blocked before the server starts its threads: they inherit the mask, and only sigwait sees the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = xllamacpp.Server(parameters(settings))  # returns when the model is loaded and the port is open
    print(f"serving {settings['model']} at {server.listening_address}", flush=True)
    notify_systemd("READY=1")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    notify_systemd("STOPPING=1")
    os._exit(0)  # the C++ threads have no other way to end while requests are open


def parameters(settings: dict[str, Any]) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["alias"]}
    params.hostnames = [settings["bind"]]
    params.port = settings["port"]
    params.api_keys = [Path(settings["key_file"]).read_text(encoding="utf-8").strip()]
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["slots"] * settings["context"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.cpuparams.poll = 0  # a thread that spins while it waits eats the CPU quota
    params.cpuparams_batch.poll = 0
    params.n_threads_http = settings["http_threads"]
    params.n_gpu_layers = settings["gpu_layers"]
    params.cache_ram_mib = 0  # no prompt store beside the slots: memory stays bounded
    params.endpoint_metrics = True
    params.ui = False
    return params


def notify_systemd(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        channel.send(state.encode())


if __name__ == "__main__":
    main()
