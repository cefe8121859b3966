"""The node's HTTP API by its Unix socket, for what the C interface does not have."""

import http.client
import json
import pathlib
import socket
import stat

SOCKET = "http.sock"


class Failed(RuntimeError):
    """A request that the node did not answer, or refused."""


def socket_beside(address):
    """The path of the HTTP socket of a node whose data_dir, or whose socket in it, is the address; else None."""
    place = pathlib.Path(address)
    try:
        path = (place if place.is_dir() else place.parent) / SOCKET
        return path if place.exists() and stat.S_ISSOCK(path.stat().st_mode) else None
    except OSError:
        return None


def clear(path, namespace, limit_seconds):
    """Erases all pages of a namespace; returns their number. A namespace that does not exist has none."""
    connection = _Connection(path, limit_seconds)
    try:
        connection.request("POST", f"/v1/namespaces/{namespace}/clear", body=b"{}",
                           headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"the node does not answer at {path} ({error})") from error
    finally:
        connection.close()
    if answer.status == 404:
        return 0
    if answer.status != 200:
        raise Failed(f"the node refuses to clear {namespace}: {answer.status} {text.decode(errors='replace')[:200]}")
    return json.loads(text)["pages"]


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, limit_seconds):
        super().__init__("localhost", timeout=limit_seconds)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
