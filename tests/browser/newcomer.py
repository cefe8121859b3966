#!/usr/bin/env python3
"""The first steps of a new user with the service in a bare system, with faults that must be reported: the steps of
scripts/check-walk, which creates the system.

Usage: newcomer.py --system FOLDER --init PID --port PORT STEP
STEP is `look`, `delete-slab` or `fill-disk`. PID is of the system's own systemd, or nothing, where the service is run
without one.
"""

import argparse
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "terminal")]
import browser  # noqa: E402
import terminal  # noqa: E402
from free_ports import free_port  # noqa: E402

DATA = "/var/lib/troupe"
DOCS = "usr/share/doc/troupe/docs"
MONITORING = "usr/share/troupe/configs/prometheus"
NAMESPACE = {"name": "chat", "model": "demo/small", "dtype": "bfloat16", "world_size": 1,
             "kv_cache": {"layers": 2, "parts": 2, "heads": 2, "head_size": 64, "element_bytes": 2, "block_tokens": 64}}
# The text that the log has for each, in a line of level warning at least.
LOGGED = {"slab_damaged": "was deleted while in use", "disk_full": "the disk is full", "index_full": "No space left"}


class Service:
    def __init__(self, system, init, port):
        self.system, self.init, self.port = pathlib.Path(system), init, port
        self.url = f"http://127.0.0.1:{port}/"

    def inside(self, *command, user=None):
        enter = ["nsenter", "-t", self.init, "-m", "-u", "-i", "-p", "-r", "-w"] if self.init else [
            "chroot", str(self.system)]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return [*enter, "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=linux", "LC_ALL=C.UTF-8",
                *become, *command]

    def run(self, *command, **more):
        return subprocess.run(self.inside(*command, **more), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)

    def metrics(self):
        with urllib.request.urlopen(self.url + "metrics") as answer:
            return answer.read().decode()

    def reasons(self):
        """The reasons of the warnings, by their short names."""
        return set(re.findall(r'^troupe_degraded\{reason="(\w+)"\} 1$', self.metrics(), re.M))

    def log(self):
        if self.init:
            return self.run("journalctl", "-q", "--no-pager", "-u", "troupe", "-o", "cat").stdout
        return (self.system / "node.log").read_text()

    @contextlib.contextmanager
    def engine(self):
        """Runs a replay until the context ends."""
        (self.system / "space.json").write_text(json.dumps(NAMESPACE))
        play = ("echo $$ >/tmp/engine && exec troupe replay --quiet --attach /var/lib/troupe --make-namespace "
                f"/space.json --trace loogle:4000,2048,3,128 --salt {time.time_ns()} --attach-limit 60")
        process = subprocess.Popen(self.inside("sh", "-c", play, user="troupe"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            self.run("sh", "-c", "kill $(cat /tmp/engine)")
            process.wait(terminal.PATIENCE)


def until(wanted, what):
    end = time.monotonic() + 2 * terminal.PATIENCE
    while not wanted():
        if time.monotonic() > end:
            raise AssertionError(f"never came to be: {what}")
        time.sleep(0.2)


def top(service):
    return terminal.Terminal(service.inside("troupe", "top", "--interval", "0.3"))


def look(service):
    """A healthy node under load."""
    until(lambda: service.run("troupe", "status").returncode == 0, "a healthy status")
    with browser.Browser(browser.find()) as page, service.engine(), top(service) as shown:
        page.open(service.url)
        page.until("document.getElementById('health').textContent == 'healthy'")
        for part in ("local", "rank 0", "demo/small", "Hit ratio", "is ready"):
            page.until(f"document.body.innerText.includes({json.dumps(part)})")
        shown.shows("local: healthy", "hit ratio", "lookup p99", "chat")
        # The picture of what was moves, and there is something in it.
        shown.until(lambda text: "%" in text.split("hit ratio")[1].split("\n")[0])
        shown.until(lambda text: any(c in text for c in "▁▂▃▄▅▆▇█"))
        shown.press("q")
        assert shown.end() == 0


@contextlib.contextmanager
def prometheus(service):
    """Runs Prometheus with the installed config and alerts, scraping each second; its address. None where there is no
    such program."""
    program = shutil.which("prometheus")
    if program is None:
        print("there is no prometheus here: the file alone is looked into for an alert")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="troupe-prometheus-") as name:
        folder = pathlib.Path(name)
        for file in (service.system / MONITORING).glob("*.yml"):
            text = file.read_text().replace("127.0.0.1:18000", f"127.0.0.1:{service.port}")
            (folder / file.name).write_text(re.sub(r"_interval: \d+s", "_interval: 1s", text))
        address = f"127.0.0.1:{free_port()}"
        command = [program, f"--config.file={folder / 'scrape.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                   f"--web.listen-address={address}"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as running:
            try:
                yield f"http://{address}/"
            finally:
                running.terminate()


def alerts(watcher):
    """The parts of the documentation that alerts name which are on, or will be if it stays so."""
    try:
        with urllib.request.urlopen(watcher + "api/v1/alerts") as answer:
            return {x["annotations"]["runbook"] for x in json.load(answer)["data"]["alerts"]}
    except OSError:
        return set()  # not there yet


def notified(service, reason):
    """Every place names the fault and its runbook, and the runbook exists."""
    book = f"docs/operations.md#{reason}"
    status = service.run("troupe", "status")
    assert status.returncode == 1 and reason in status.stdout and book in status.stdout, status.stdout
    print(status.stdout)
    with top(service) as shown:
        # A long line goes on in the next one.
        shown.until(lambda text: "local: degraded" in text and book in text.replace("\n", ""))
    with browser.Browser(browser.find()) as page:
        page.open(service.url)
        page.until("document.getElementById('health').textContent == 'degraded'")
        page.until(f"document.querySelector('#warnings a[href$=\"#{reason}\"]')")
        page.until(f"document.getElementById('log').textContent.includes({json.dumps(LOGGED[reason])})")
    line = re.compile(r" (warning|error|critical) .*" + re.escape(LOGGED[reason]))
    until(lambda: line.search(service.log()), f"a line of the log: {LOGGED[reason]}")
    assert f"runbook: {book}\n" in (service.system / MONITORING / "alerts.yml").read_text(), reason
    with prometheus(service) as watcher:
        if watcher:
            until(lambda: book in alerts(watcher), f"an alert that names {book}")
    text = (service.system / DOCS / "operations.md").read_text()
    part = text[text.index(f"\n### {reason}\n"):].split("\n### ")[1]
    assert len(part.split()) > 20, part


def delete_slab(service):
    with service.engine():
        until(lambda: service.run("sh", "-c", f"rm $(find {DATA} -name '*.slab')").returncode == 0, "a slab file")
        until(lambda: "slab_damaged" in service.reasons(), "slab_damaged")
        notified(service, "slab_damaged")


def fill_disk(service):
    with service.engine():
        full = {"disk_full", "index_full"}
        service.run("sh", "-c", f"cat /dev/zero >{DATA}/filler")
        until(lambda: service.reasons() & full, "a word about the disk")
        for reason in sorted(service.reasons() & full):
            notified(service, reason)
        assert service.run("rm", f"{DATA}/filler").returncode == 0
        until(lambda: not service.reasons() & full, "enough room")
    until(lambda: service.run("troupe", "status").returncode == 0, "a healthy status")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", required=True)
    parser.add_argument("--init", default="")
    parser.add_argument("--port", required=True)
    parser.add_argument("step", choices=["look", "delete-slab", "fill-disk"])
    arguments = parser.parse_args()
    service = Service(arguments.system, arguments.init, arguments.port)
    {"look": look, "delete-slab": delete_slab, "fill-disk": fill_disk}[arguments.step](service)


if __name__ == "__main__":
    main()
