"""HTTPS to a host that only SSH reaches: each connection is one SSH connection, both ends' certificates as ever."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import NewConnectionError

from inferlift import ssh
from inferlift.artifacts import Host


class Through(HTTPAdapter):
    """For `Session.mount`: connections are made by SSH to `host`, and there to the URL's port."""

    def __init__(self, host: Host) -> None:
        self._host = host
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        host = self._host

        class Connection(HTTPSConnection):
            _over_ssh: ssh.Tunnel | None = None

            def _new_conn(self) -> socket.socket:
                self._over_ssh = ssh.Tunnel(host, self.port)
                self._over_ssh.socket.settimeout(self.timeout if isinstance(self.timeout, float | int) else None)
                return self._over_ssh.socket

            def connect(self) -> None:
                try:
                    super().connect()
                except ssl.SSLCertVerificationError:
                    raise
                except OSError as error:  # of TLS, which has nobody to speak with where ssh could not connect
                    why = self._over_ssh.why_closed() if self._over_ssh is not None else None
                    if why is None:
                        raise
                    raise NewConnectionError(self, f"{host.name} is not reached over SSH: {why}") from error

            def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 itself has it
                # An answer that lasts until its connection ends is read after http.client has closed this: until then
                # ssh is needed, and ends by itself with the socket.
                carried, self._over_ssh = self._over_ssh, None
                try:
                    return super().getresponse()
                finally:
                    self._over_ssh = carried

            def close(self) -> None:
                super().close()
                if self._over_ssh is not None:
                    self._over_ssh.close()
                    self._over_ssh = None

        class Pool(HTTPSConnectionPool):
            ConnectionCls = Connection

        super().init_poolmanager(*arguments, **more)
        manager: PoolManager = self.poolmanager
        manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": Pool}
