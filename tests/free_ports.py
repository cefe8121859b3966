"""TCP ports of the loopback interface for programs that are about to start."""

import contextlib
import pathlib
import random
import socket


def free_ports(count):
    """Ports that no socket uses, all different.

    They lie below the range from which the kernel gives ports to sockets that ask for any: between this call and the
    use of a port, only another caller that draws the same number can take it.
    """
    end = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    # All are held until the last one is found, so that they differ.
    with contextlib.ExitStack() as held:
        out = []
        while len(out) < count:
            with contextlib.suppress(OSError):
                port = random.randrange(10_000, end)
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                out.append(port)
        return out


def free_port():
    return free_ports(1)[0]
