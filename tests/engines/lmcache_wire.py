"""The protocol of LMCache's multi-process mode, from the side of its workers, with Python's standard library alone."""

import socket
import struct

SECONDS = 30

REGISTER, UNREGISTER, STORE, RETRIEVE, LOOKUP, WAIT_STATUS, END_SESSION, CLEAR, CHUNK_SIZE, PING = \
    1, 2, 6, 7, 8, 10, 13, 20, 21, 22


class handle:
    """A value that stands for memory of this process: an extension whose body is a value again."""

    def __init__(self, value):
        self.value = value


def pack(x):
    if x is None:
        return b"\xc0"
    if isinstance(x, bool):
        return b"\xc3" if x else b"\xc2"
    if isinstance(x, int):
        if 0 <= x < 0x80:
            return bytes([x])
        return struct.pack(">Bq", 0xD3, x) if x < 0 else struct.pack(">BQ", 0xCF, x)
    if isinstance(x, float):
        return struct.pack(">Bd", 0xCB, x)
    if isinstance(x, str):
        body = x.encode()
        return struct.pack(">BI", 0xDB, len(body)) + body
    if isinstance(x, (bytes, bytearray)):
        return struct.pack(">BI", 0xC6, len(x)) + bytes(x)
    if isinstance(x, handle):
        body = pack(x.value)
        return struct.pack(">BIb", 0xC9, len(body), 1) + body
    if isinstance(x, dict):
        return struct.pack(">BI", 0xDF, len(x)) + b"".join(pack(key) + pack(value) for key, value in x.items())
    return struct.pack(">BI", 0xDD, len(x)) + b"".join(pack(value) for value in x)


def unpack(data):
    value, rest = unpack_first(memoryview(data))
    if len(rest):
        raise ValueError(f"{len(rest)} bytes behind a value")
    return value


def unpack_first(data):
    head, rest = data[0], data[1:]

    def number(kind):
        size = struct.calcsize(kind)
        return struct.unpack(">" + kind, rest[:size])[0], rest[size:]

    def several(count, after):
        out = []
        for _ in range(count):
            value, after = unpack_first(after)
            out.append(value)
        return out, after

    def pairs(count, after):
        out, after = several(2 * count, after)
        return dict(zip(out[::2], out[1::2])), after

    if head < 0x80:
        return head, rest
    if head < 0x90:
        return pairs(head & 0xF, rest)
    if head < 0xA0:
        return several(head & 0xF, rest)
    if head < 0xC0:
        return bytes(rest[:head & 0x1F]).decode(), rest[head & 0x1F:]
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], rest
    if 0xC4 <= head <= 0xC6:
        size, after = number("BHI"[head - 0xC4])
        return bytes(after[:size]), after[size:]
    if 0xCA <= head <= 0xD3:
        return number("fdBHIQbhiq"[head - 0xCA])
    if 0xD9 <= head <= 0xDB:
        size, after = number("BHI"[head - 0xD9])
        return bytes(after[:size]).decode(), after[size:]
    if head in (0xDC, 0xDD):
        size, after = number("HI"[head - 0xDC])
        return several(size, after)
    if head in (0xDE, 0xDF):
        size, after = number("HI"[head - 0xDE])
        return pairs(size, after)
    if head >= 0xE0:
        return head - 0x100, rest
    raise ValueError(f"a value that begins with {head:#x}")


class client:
    """One connection, as a DEALER of ZeroMQ: ZMTP 3.0 with the mechanism NULL."""

    MORE, LONG, COMMAND = 1, 2, 4

    def __init__(self, port, seconds=SECONDS):
        self.seconds, self.last = seconds, 0
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
        self.socket.sendall(greeting)
        theirs = self.read(len(greeting))
        if theirs[0] != 0xFF or theirs[10] < 3 or theirs[12:16] != b"NULL":
            raise RuntimeError("what listens there does not speak ZMTP 3")
        ready = b"\x05READY"
        for name, value in ((b"Socket-Type", b"DEALER"), (b"Identity", b"")):
            ready += bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
        self.send_frame(ready, self.COMMAND)
        flags, body = self.read_frame()
        if not flags & self.COMMAND or not body.startswith(b"\x05READY"):
            raise RuntimeError(f"no READY, but {body[:60]!r}")

    def close(self):
        self.socket.close()

    def read(self, size):
        out = bytearray()
        while len(out) < size:
            part = self.socket.recv(size - len(out))
            if not part:
                raise ConnectionError("the node has closed the connection")
            out += part
        return bytes(out)

    def send_frame(self, body, flags):
        if len(body) > 255:
            self.socket.sendall(struct.pack(">BQ", flags | self.LONG, len(body)) + body)
        else:
            self.socket.sendall(struct.pack(">BB", flags, len(body)) + body)

    def read_frame(self):
        flags = self.read(1)[0]
        size = struct.unpack(">Q", self.read(8))[0] if flags & self.LONG else self.read(1)[0]
        return flags, self.read(size)

    def send(self, operation, *payloads):
        self.last += 1
        frames = [pack(self.last), pack(operation), *map(pack, payloads)]
        for i, frame in enumerate(frames):
            self.send_frame(frame, self.MORE if i + 1 < len(frames) else 0)
        return self.last

    def receive(self):
        """The number of an answer and its value, or None if it has no value."""
        frames = []
        while True:
            flags, body = self.read_frame()
            if flags & self.COMMAND:
                if body.startswith(b"\x04PING"):
                    self.send_frame(b"\x04PONG" + body[7:], self.COMMAND)
                continue
            frames.append(body)
            if not flags & self.MORE:
                break
        return unpack(frames[0]), unpack(frames[2]) if len(frames) > 2 else None

    def call(self, operation, *payloads):
        number = self.send(operation, *payloads)
        while True:
            answered, value = self.receive()
            if answered == number:
                return value


def key_of(tokens, begin, end, request, worker=0, model="a model", world=1):
    return {"model_name": model, "world_size": world, "worker_id": worker, "token_ids": tokens, "start": begin,
            "end": end, "request_id": request, "cache_salt": "", "request_configs": None, "num_kv_readers": 1}
