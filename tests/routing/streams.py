"""Receives the KV events of a node as a router does: ZeroMQ through libzmq, batches in vLLM's MessagePack.

Needs nothing but Python and libzmq, which a node is linked with, so that neither vLLM nor code of the node decodes
what the node has encoded.
"""

import ctypes
import struct
import time

SUB, DEALER = 2, 5
SUBSCRIBE, LINGER, RCVHWM, RCVTIMEO = 6, 17, 24, 27
SNDMORE, AGAIN = 2, 11
END = (1 << 64) - 1
# How long a node may take to answer or to publish. Only a node that hangs takes so long.
PATIENCE_SECONDS = 120


class Message(ctypes.Structure):
    _fields_ = [("hidden", ctypes.c_uint64 * 8)]


class Sockets:
    """A context of libzmq. Every wait of its sockets has a limit."""

    def __init__(self):
        self.library = ctypes.CDLL("libzmq.so.5", use_errno=True)
        for name, kind, arguments in (
                ("zmq_ctx_new", ctypes.c_void_p, []),
                ("zmq_socket", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
                ("zmq_connect", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
                ("zmq_setsockopt", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]),
                ("zmq_send", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]),
                ("zmq_msg_init", ctypes.c_int, [ctypes.c_void_p]),
                ("zmq_msg_recv", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]),
                ("zmq_msg_data", ctypes.c_void_p, [ctypes.c_void_p]),
                ("zmq_msg_size", ctypes.c_size_t, [ctypes.c_void_p]),
                ("zmq_msg_more", ctypes.c_int, [ctypes.c_void_p]),
                ("zmq_msg_close", ctypes.c_int, [ctypes.c_void_p]),
                ("zmq_close", ctypes.c_int, [ctypes.c_void_p]),
                ("zmq_ctx_term", ctypes.c_int, [ctypes.c_void_p])):
            function = getattr(self.library, name)
            function.restype, function.argtypes = kind, arguments
        self.context = self.library.zmq_ctx_new()

    def check(self, result):
        if result < 0:
            raise OSError(ctypes.get_errno(), "a call of libzmq has failed")

    def connect(self, kind, endpoint, topic=b"", most=0):
        """`topic`: the beginning of those to which a `SUB` socket subscribes. `most`: messages that it takes from the
        network before they are received here; 0: any number."""
        socket = self.library.zmq_socket(self.context, kind)
        for option, value in ((LINGER, 0), (RCVHWM, most), (RCVTIMEO, PATIENCE_SECONDS * 1000)):
            self.check(self.library.zmq_setsockopt(socket, option, ctypes.byref(ctypes.c_int(value)), 4))
        if kind == SUB:
            self.check(self.library.zmq_setsockopt(socket, SUBSCRIBE, topic, len(topic)))
        self.check(self.library.zmq_connect(socket, endpoint.encode()))
        return socket

    def send(self, socket, *frames):
        for number, frame in enumerate(frames):
            more = SNDMORE if number + 1 < len(frames) else 0
            self.check(self.library.zmq_send(socket, frame, len(frame), more))

    def receive(self, socket):
        """The frames of the next message."""
        frames, more = [], True
        while more:
            message = Message()
            self.check(self.library.zmq_msg_init(ctypes.byref(message)))
            if self.library.zmq_msg_recv(ctypes.byref(message), socket, 0) < 0:
                raise TimeoutError(f"no message in {PATIENCE_SECONDS} s" if ctypes.get_errno() == AGAIN else
                                   f"error {ctypes.get_errno()} of libzmq")
            frames.append(ctypes.string_at(self.library.zmq_msg_data(ctypes.byref(message)),
                                           self.library.zmq_msg_size(ctypes.byref(message))))
            more = self.library.zmq_msg_more(ctypes.byref(message))
            self.library.zmq_msg_close(ctypes.byref(message))
        return frames

    def close(self, socket):
        self.library.zmq_close(socket)

    def end(self):
        self.library.zmq_ctx_term(self.context)


class Reader:
    """A reader of MessagePack: the types that occur in batches of events, and no others."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        out = self.data[self.at:self.at + count]
        if len(out) < count:
            raise ValueError("a batch ends in the middle")
        self.at += count
        return out

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def value(self):
        kind = self.number("B")
        if kind < 0x80:
            return kind
        if kind >= 0xE0:
            return kind - 0x100
        for low, high, mask, read in ((0x80, 0x90, 0x0F, self.map), (0x90, 0xA0, 0x0F, self.array),
                                      (0xA0, 0xC0, 0x1F, self.text)):
            if low <= kind < high:
                return read(kind & mask)
        if kind in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[kind]
        numbers = {0xCA: "f", 0xCB: "d", 0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q",
                   0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q"}
        if kind in numbers:
            return self.number(numbers[kind])
        long = {0xC4: (self.take, "B"), 0xC5: (self.take, "H"), 0xC6: (self.take, "I"), 0xD9: (self.text, "B"),
                0xDA: (self.text, "H"), 0xDB: (self.text, "I"), 0xDC: (self.array, "H"), 0xDD: (self.array, "I"),
                0xDE: (self.map, "H"), 0xDF: (self.map, "I")}
        if kind not in long:
            raise ValueError(f"type {kind:#x} is not one of a batch of events")
        read, form = long[kind]
        return read(self.number(form))

    def text(self, count):
        return self.take(count).decode()

    def array(self, count):
        return [self.value() for _ in range(count)]

    def map(self, count):
        return {self.value(): self.value() for _ in range(count)}


def events_of(batch):
    """The events of a batch, as maps."""
    reader = Reader(batch)
    when, events, rank = reader.value()
    if reader.at != len(batch) or not isinstance(when, float) or rank != 0:
        raise ValueError("a batch has another form than [time, [events], 0]")
    return events


class Stream:
    """The stream of one model of one node. Events are given to `views` in their order and once, whatever is lost."""

    def __init__(self, sockets, endpoint, replay_endpoint, *views, topic=b"kv@"):
        """A view has `take(event)`. `topic`: the beginning of the stream's topic."""
        self.sockets, self.replay_endpoint, self.views = sockets, replay_endpoint, views
        self.socket = sockets.connect(SUB, endpoint, topic)
        self.last = self.topic = None
        self.received = self.requests = self.lost = 0
        # Every so many batches one is dropped, as a network does. 0: none.
        self.lose_every = 0

    def close(self):
        self.sockets.close(self.socket)

    def receive(self):
        """Takes one batch, and what is missing before it. Returns its number, and whether it was empty."""
        self.topic, number, batch = self.sockets.receive(self.socket)
        number = int.from_bytes(number, "big")
        self.received += 1
        if self.lose_every and self.received % self.lose_every == 0:
            self.lost += 1
            return None, False
        if self.last is None or number > self.last + 1:
            self.request_missing()
        if self.last is None:
            self.last = number - 1  # the stream has ended meanwhile, so that there is no snapshot of it
        if number > self.last:
            self.apply(number, batch)
        return number, not events_of(batch)

    def request_missing(self):
        """As a `DEALER`, from the first missing number on."""
        self.requests += 1
        socket = self.sockets.connect(DEALER, self.replay_endpoint)
        try:
            start = 0 if self.last is None else self.last + 1
            self.sockets.send(socket, b"", start.to_bytes(8, "big"), self.topic)
            while True:
                _, _, number, batch = self.sockets.receive(socket)
                number = int.from_bytes(number, "big")
                if number == END:
                    break
                if self.last is None or number > self.last:
                    self.apply(number, batch)
        finally:
            self.sockets.close(socket)

    def apply(self, number, batch):
        for event in events_of(batch):
            for view in self.views:
                view.take(event)
        self.last = number

    def catch_up(self, node):
        """Receives everything that the node had to say before this call.

        The node numbers its batches, and publishes an empty one when there is nothing else. So two batches behind the
        number that it reports now, an empty one is preceded by all changes before this call.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        known = node.status()["events"]["last_batch"]
        while time.monotonic() < deadline:
            number, empty = self.receive()
            if empty and number >= known + 2:
                return
        raise TimeoutError(f"no empty batch in {PATIENCE_SECONDS} s")
