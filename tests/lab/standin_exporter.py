"""Stand-in for the exporters of HAProxy, the app and DCGM: serves what files say, over TLS, on one host.

It shows that rules, alerts and dashboards work on figures of these names. It proves nothing about the real exporters:
that those have the names is asserted where they run, DCGM's nowhere here (there is no GPU).

    python3 standin_exporter.py FOLDER PORT=NAME...     (FOLDER/NAME.prom is served; without the file: status 503)

A line is `metric value` or `metric value +rate`: the value grows by `rate` a second since this program started.
"""

import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STARTED = time.time()
TLS = "/etc/inferlift/tls/host"


def grown(text):
    lines = []
    for line in text.splitlines():
        *metric, last = line.rsplit(" +", 1) if " +" in line else (line, None)
        name, value = metric[0].rsplit(" ", 1)
        rate = float(last) if last else 0.0
        lines.append(f"{name} {float(value) + rate * (time.time() - STARTED):.3f}")
    return "\n".join(lines) + "\n"


def serve(folder, port, name, certificate):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = Path(folder) / f"{name}.prom"
            there = path.is_file()
            body = grown(path.read_text()).encode() if there else b"gone\n"
            self.send_response(200 if there else 503)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{certificate}.pem", f"{certificate}.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    for argument in sys.argv[2:]:
        port, name = argument.split("=")
        own = Path(sys.argv[1]) / f"{name}.key"
        pair = str(own.with_suffix("")) if own.exists() else TLS
        threading.Thread(target=serve, args=(sys.argv[1], int(port), name, pair), daemon=True).start()
    while True:
        time.sleep(3600)
