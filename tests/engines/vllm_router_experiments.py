"""An experiment with vLLM's router (`vllm-router`), whose policy "kv_aware" goes by KV events: it sends a request to the
worker that has most of its prefix.

Each of two hosts has a node, an engine that saves and loads pages of it through the C interface, and an HTTP server
that answers the router in the place of vLLM's: only what the router chooses counts.
"""

import http.server
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import urllib.request

from experiments import experiment, missing, require, wrong
from free_ports import free_port, free_ports

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "routing"))

PATIENCE_SECONDS = 120
# How long the router may need for what it has received: it looks for it a hundred times a second.
SETTLE_SECONDS = 0.2


class worker(http.server.BaseHTTPRequestHandler):
    """Answers as a server of vLLM, and notes at which host."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_SECONDS

    def answer(self, said, code=200):
        body = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({}, 200 if self.path == "/health" else 404)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests += 1
        self.answer({"id": "1", "object": "text_completion", "choices": [
            {"index": 0, "text": "", "finish_reason": "stop"}]})

    def log_message(self, *_):
        pass


class host:
    def __init__(self, lab, number, sockets):
        import streams
        import traffic

        replay = f"tcp://127.0.0.1:{free_port()}"
        self.node = lab.node(f"vllm-router-{number}", memory="4 MiB", disk="0 B", durability="none", events=True, more={
            # Of a source that is named on its command line, the router takes no other topic.
            "events.topic": "", "events.replay_endpoint": replay, "events.heartbeat": "20 ms"}).start()
        self.events, self.replay = self.node.events_endpoint, replay
        self.engine, self.oracle = traffic.Engine(self.node.address, 0), traffic.Oracle(self.node)
        self.stream = streams.Stream(sockets, self.events, replay, topic=b"")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), worker)
        self.server.requests = 0
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.stream.close()
        self.engine.close()


class vllm_router:
    def __init__(self, lab, hosts, block):
        self.port, self.directory = free_port(), lab.next_log().with_suffix(".router")
        sources = [word for each in hosts for word in ("--kv-event-source", f"{each.url}={each.events}",
                                                       "--kv-event-replay-source", f"{each.url}={each.replay}")]
        with open(self.directory, "wb") as log:
            self.process = subprocess.Popen(
                [os.environ["TROUPE_VLLM_ROUTER"], "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port",
                 str(self.port), "--prometheus-port", str(free_ports(1)[0]), "--policy", "kv_aware", "--worker-urls",
                 *(each.url for each in hosts), *sources, "--kv-event-block-size", str(block), "--kv-event-model",
                 "test/routing"], stdout=log, stderr=subprocess.STDOUT)
        lab.nodes.append(self)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=10).close()
                return
            except OSError:
                require(time.monotonic() < deadline, "vLLM's router does not answer")
                time.sleep(0.1)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def choose(self, hosts, tokens):
        before = [each.server.requests for each in hosts]
        body = json.dumps({"model": "test/routing", "prompt": tokens, "max_tokens": 1}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", body,
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=60).close()
        chosen = [number for number, each in enumerate(hosts) if each.server.requests > before[number]]
        if len(chosen) != 1:
            raise wrong(f"a request went to {len(chosen)} hosts")
        return chosen[0]


@experiment("events of the node: vLLM's router sends requests to the host whose node has most of their prefix")
def node_events_vllm_router(lab):
    if "TROUPE_VLLM_ROUTER" not in os.environ:
        raise missing("TROUPE_VLLM_ROUTER names no Python with vllm-router")
    import streams
    import traffic

    sockets = streams.Sockets()
    hosts = [host(lab, number, sockets) for number in range(2)]
    dice = random.Random(41)
    documents = traffic.documents(dice, 50)
    router = vllm_router(lab, hosts, traffic.BLOCK)

    def play(count):
        """The number of requests for which one host had more of the prefix than the other one."""
        decided = 0
        for _ in range(count):
            tokens = traffic.beginning(dice, documents)
            # The block with the last token is computed in any case.
            blocks = traffic.hashes_of(tokens)[:-1]
            for each in hosts:
                each.stream.catch_up(each.node)
            time.sleep(SETTLE_SECONDS)
            found = [traffic.leading(each.oracle.has(blocks)) for each in hosts]
            chosen = router.choose(hosts, tokens)
            require(found[chosen] == max(found), f"a request goes to host {chosen}, and the nodes have {found} blocks")
            decided += found[0] != found[1]
            hosts[chosen].engine.serve(tokens)
        return decided

    for number, each in enumerate(hosts):  # where neither has a prefix, all requests would go to one of them
        for document in documents[number:30:2]:
            each.engine.serve(document)
    first = play(200)
    evicted = [sum(ns["evicted_keys"] for ns in each.node.namespaces()) for each in hosts]
    require(first > 50 and max(evicted) > 0, f"{first} requests were decided by events; {evicted} pages were evicted")
    hosts[0].node.kill()
    hosts[0].node.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while hosts[0].engine.pool.put(traffic.key_of(0), [0], 1.0)[0] != 0:
        require(time.monotonic() < deadline, "the engine does not attach to the restarted node")
    second = play(100)
    require(second > 25, f"{second} requests were decided by events after a node was killed")
    for each in hosts:
        each.close()
    sockets.end()
    return 0, f"{first} of 200 requests decided by events, {second} of 100 after kill -9 of a node; {evicted} evicted"
