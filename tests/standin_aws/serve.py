"""The stand-in as a server of its own, for `./invoke ... --target aws` in a test: prints the environment, then waits.

python -m tests.standin_aws.serve NAME FOLDER REGION=NETWORK ...   (t-aws-deploy /somewhere eu-central-1=10.243.0.0/16)
With several regions there are name servers, too, that answer from Route 53's records (names.py).
Ends, with all its hosts, at SIGTERM or SIGINT.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

from inferlift import toolchain
from tests.standin_aws import cloud as standin
from tests.standin_aws import names, provider
from tests.standin_aws.hosts import Hosts


def main(argv: list[str]) -> int:
    name, folder, *places = argv
    networks = dict(place.split("=", 1) for place in places)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    toolchain.ensure(["debian-packages", "host-image", "pulumi"], lambda line: print(line, file=sys.stderr))
    hosts = Hosts(name, networks, toolchain.host_image(), toolchain.podman_env())
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    os.environ.update(standin.ENVIRONMENT)
    executable = provider.install(Path(folder))
    try:
        with standin.cloud(hosts) as cloud, names.servers(networks) if len(networks) > 1 else nullcontext():
            told = {**standin.ENVIRONMENT, "AWS_ENDPOINT_URL": cloud.url}
            print(json.dumps({"environment": told, "path": str(executable.parent)}), flush=True)
            over.wait()
    finally:
        hosts.sweep()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
