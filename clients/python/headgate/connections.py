"""Connections that are used again."""

from __future__ import annotations

import http.client
import os
import selectors
import ssl
import threading
import time
from typing import List, Optional, Tuple

_MOST_IDLE = 16
_LONGEST_IDLE = 30.0  # seconds; half of what headgate serve waits for the next call of a connection


class Connections:
    """Connections to one server. Several threads may use it; a connection has one call at a time."""

    def __init__(self, host: str, port: Optional[int], tls: Optional[ssl.SSLContext]) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._lock = threading.Lock()
        self._idle: List[Tuple[http.client.HTTPConnection, int, float]] = []  # with the process that made it, and since when; guarded by _lock

    def take(self, timeout: float) -> http.client.HTTPConnection:
        """Return the connection that was used last, or a new one. Raises OSError where there is none: then nothing was sent."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection, process, since = self._idle.pop()
            # A child of fork has the parent's, on which the parent's answers come.
            if process == os.getpid() and time.monotonic() - since < _LONGEST_IDLE and not _ended(connection):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        if self._tls:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def give(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose answer was read to its end."""
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append((connection, os.getpid(), time.monotonic()))
                return
        connection.close()

    def close(self) -> None:
        """Close those that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _, _ in idle:
            connection.close()

    def __del__(self) -> None:
        self.close()


def _ended(connection: http.client.HTTPConnection) -> bool:
    """Tell whether the server has closed a connection: nothing else comes on one that is idle."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        return bool(selector.select(0))
