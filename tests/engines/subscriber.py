#!/usr/bin/env python3
"""Receives vLLM's KV events, in a process of its own: sockets of ZeroMQ do not survive the forks of the experiments.

subscriber.py LISTEN FILE [PUBLISH]: the messages that publishers send to LISTEN are appended to FILE, each as the bytes
of its number (8), of its length (4) and of its batch; with PUBLISH they are published there as well. With
"connect:ADDRESS" in the place of LISTEN, those of a publisher that listens there.
"""

import sys

import zmq


def main(listen, path, publish=None):
    context = zmq.Context()
    incoming = context.socket(zmq.SUB)
    incoming.setsockopt(zmq.RCVHWM, 0)
    if listen.startswith("connect:"):
        incoming.connect(listen.removeprefix("connect:"))
    else:
        incoming.bind(listen)
    incoming.subscribe("")
    outgoing = None
    if publish:
        outgoing = context.socket(zmq.PUB)
        outgoing.setsockopt(zmq.SNDHWM, 0)
        outgoing.bind(publish)
    with open(path, "ab") as out:
        print("ready", flush=True)
        while True:
            topic, number, payload = incoming.recv_multipart()
            out.write(number + len(payload).to_bytes(4, "big") + payload)
            out.flush()
            if outgoing:
                outgoing.send_multipart((topic, number, payload))


if __name__ == "__main__":
    main(*sys.argv[1:])
