#!/usr/bin/env python3
"""Runs clients of other metadata services against a server, which it starts.

Usage: run.py --server PROGRAM CLIENT [--source FILE]
       run.py --troupe PROGRAM --config FILE CLIENT [--source FILE]

PROGRAM is either one that prints its port on the first line and ends when its standard input does, or `troupe`, which
is started with this config on any free port, with its data in a directory that is removed afterwards. CLIENT is:

  vllm      vLLM's own client. FILE has the source of vLLM's hf3fs_metadata_server.py, as it is or inside a page that
            shows it; the client in it runs unchanged
  restart   the same client, whose server is killed and started again; needs --troupe
  sglang    a client that speaks as SGLang's backend does

Exits with 77 where something is missing that the test needs, and says what.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile

SKIPPED = 77
PATIENCE_SECONDS = 110


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


class helper:
    """A server that ends with its standard input."""

    def __init__(self, program):
        self.command = [program]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        end(self.process)


class node:
    """`troupe serve`. After a kill it can be started again with the same data on the same port."""

    def __init__(self, program, config):
        self.program, self.config = program, config
        self.directory = tempfile.TemporaryDirectory(prefix="troupe-conformance-")
        self.port = 0
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [self.program, "serve", "--config", self.config, "--set", f"data_dir={self.directory.name}",
             "--set", f"http.port={self.port}"],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            code, self.process = self.process.wait(30), None
            raise RuntimeError(f"the node does not start; it ended with {code}")
        self.port = json.loads(line)["http"]["port"]

    def kill(self):
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            if self.process is not None:
                self.process.send_signal(signal.SIGTERM)
                end(self.process)
        finally:
            self.directory.cleanup()


def end(process):
    try:
        code = process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    finally:
        process.stdout.close()
    if code != 0:
        raise RuntimeError(f"the server ended with {code}")


def on_alarm(*_):
    # An error that no client takes for one of its own.
    sys.exit("the server or the client takes too long")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server")
    parser.add_argument("--troupe")
    parser.add_argument("--config")
    parser.add_argument("client", choices=["vllm", "restart", "sglang"])
    parser.add_argument("--source", default="")
    options = parser.parse_args()
    if bool(options.server) == bool(options.troupe) or bool(options.troupe) != bool(options.config):
        parser.error("needs --server, or --troupe and --config")
    if options.client == "restart" and not options.troupe:
        parser.error("restart needs --troupe")

    try:
        import requests  # noqa: F401
    except ImportError:
        skip("the Python package requests is not installed; scripts/bootstrap --dev installs it")
    if options.client != "sglang" and not os.path.isfile(options.source):
        skip("the source of vLLM's client is not here; set TROUPE_VLLM_CLIENT to a file that has it")

    # No request of these clients has a time limit of its own.
    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(PATIENCE_SECONDS)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.dont_write_bytecode = True
    import sglang_client
    import vllm_client

    if options.client != "sglang" and (reason := vllm_client.missing_package(options.source)):
        skip(reason)

    # In a node, slots are quarantined for seconds and requests without a slot wait: here, all keys have room.
    pages = 12 if options.server else 256
    with helper(options.server) if options.server else node(options.troupe, options.config) as server:
        if options.client == "vllm":
            vllm_client.check(server.port, options.source, pages)
        elif options.client == "restart":
            vllm_client.check_restart(server, options.source)
        else:
            sglang_client.check(server.port, pages)
    print("all checks passed")


if __name__ == "__main__":
    main()
