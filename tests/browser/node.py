"""A node for tests that observe it from outside."""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading

NAMESPACE = {"name": "chat", "model": "demo/small", "dtype": "bfloat16", "world_size": 2,
             "kv_cache": {"layers": 2, "parts": 2, "heads": 2, "head_size": 64, "element_bytes": 2, "block_tokens": 64}}
TRACE = "loogle:4,4096,6,256"


class Node:
    """Two ranks with slabs of 32 MiB, and HTTP on a free port, in a directory of its own."""

    def __init__(self, program, tokens=None, more=None):
        self.program = program
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-node-"))
        config = {"node_name": "node-7", "data_dir": str(self.directory / "data"), "memory": {"bytes": "64 MiB"},
                  "http": {"enabled": True, "port": 0}, "namespaces": [NAMESPACE],
                  "storage": {"ranks": [{"slab_bytes": "32 MiB"}, {"slab_bytes": "32 MiB"}]}}
        if tokens:
            file = self.directory / "tokens"
            file.touch(mode=0o600)
            file.write_text("".join(f"{role} {token}\n" for role, token in tokens.items()))
            config["http"]["tokens_file"] = str(file)
        config.update(more or {})
        (self.directory / "node.json").write_text(json.dumps(config))
        self.log = open(self.directory / "log", "w")
        self.process = subprocess.Popen([program, "serve", "--config", str(self.directory / "node.json")],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.port = ready["http"]["port"]
        self.url = f"http://127.0.0.1:{self.port}/"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def replay(self, *more, trace=TRACE):
        """Replays a trace against it to the end."""
        command = [self.program, "replay", "--attach", str(self.directory / "data"), "--trace", trace, "--quiet", *more]
        return subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def used(self, trace=TRACE, salts=None):
        """Replays traces with different contents against it, one after the other, until the context ends. `salts`: the
        contents repeat after so many; not given: they never do."""
        over = threading.Event()

        def play():
            for salt in itertools.count():
                if over.is_set():
                    return
                self.replay("--salt", str(salt % salts if salts else salt), trace=trace)

        engine = threading.Thread(target=play)
        engine.start()
        try:
            yield
        finally:
            over.set()
            engine.join()

    def spoil(self):
        """Removes a slab file while it runs."""
        os.remove(next((self.directory / "data").glob("*rank-1.slab")))
