#!/usr/bin/env python3
"""Makes the pictures of docs/pictures/: a node that is used for some minutes, in a browser.

Usage: pictures.py PROGRAM [SECONDS]
       pictures.py PROGRAM broken    a node whose disk is full, and one whose slab was deleted; prints what `status`,
                                     `top`, /metrics and the log say of it. As root: it makes a small disk for it
       pictures.py first-hit URL     the node at this address, which has served docs/quickstart.md
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "terminal"))
import browser  # noqa: E402
import node  # noqa: E402
import terminal  # noqa: E402

PICTURES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pictures"


@contextlib.contextmanager
def small_disk(mebibytes):
    """A folder on a separate disk, which holds temporary files meanwhile."""
    with tempfile.TemporaryDirectory(prefix="troupe-disk-") as where:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", where], check=True)
        tempfile.tempdir = where
        try:
            yield pathlib.Path(where)
        finally:
            tempfile.tempdir = None
            subprocess.run(["umount", "--lazy", where], check=True)


def metrics(served):
    with urllib.request.urlopen(served.url + "metrics") as answer:
        return answer.read().decode()


def tell(served, reason):
    """Prints the output of three places; the fourth is the picture."""
    print(f"--- {reason}: troupe status")
    sys.stdout.flush()
    subprocess.run([served.program, "status", f"127.0.0.1:{served.port}"], check=False)
    print(f"--- {reason}: troupe top")
    with terminal.Terminal([served.program, "top", f"127.0.0.1:{served.port}", "--interval", "0.5"]) as shown:
        shown.shows(reason)
        print(shown.screen.text())
    print(f"--- {reason}: /metrics")
    print("\n".join(x for x in metrics(served).splitlines() if x.startswith("troupe_degraded") and x.endswith(" 1")))
    print(f"--- {reason}: the log")
    print("\n".join(x for x in (served.directory / "log").read_text().splitlines() if " warn" in x or " error" in x))
    sys.stdout.flush()


def picture(page, served, name, reason):
    page.size(1100, 620)
    page.colors("light")
    page.open(served.url)
    page.until(f"document.body.innerText.includes('{reason}')")
    page.picture(PICTURES / f"{name}.png", 1100, 620)


def fill(where):
    """Fills the disk to the last byte."""
    with open(where / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))


def take_what_is_set_aside(index):
    """The disk space behind the ends of the index's logs."""
    for file in index.glob("*.log"):
        os.truncate(file, file.stat().st_size)


def wait_for(served, reason):
    end = time.monotonic() + terminal.PATIENCE
    while f'troupe_degraded{{reason="{reason}"}} 1' not in metrics(served):
        if time.monotonic() > end:
            raise AssertionError(f"the node never says {reason}")
        time.sleep(0.2)


def broken(program):
    durable = {"registry": {"durability": "strict"}, "memory": {"bytes": "32 MiB"}}
    with browser.Browser(browser.find()) as page, small_disk(192) as disk, \
            node.Node(program, more=durable) as served:
        served.replay()
        take_what_is_set_aside(served.directory / "data" / "index")
        fill(disk)
        command = [program, "replay", "--attach", str(served.directory / "data"), "--trace",
                   "mixed:1,200,40,20,20,120", "--quiet", "--salt", "7"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as engine:
            wait_for(served, "index_full")
            picture(page, served, "page-disk-full", "index_full")
            tell(served, "index_full")
            engine.terminate()
            os.remove(disk / "filler")
    with browser.Browser(browser.find()) as page, node.Node(program, more=durable) as served:
        served.replay()
        served.spoil()
        wait_for(served, "slab_damaged")
        picture(page, served, "page-slab-deleted", "slab_damaged")
        tell(served, "slab_damaged")


def first_hit(url):
    with browser.Browser(browser.find()) as page:
        page.size(1100, 1000)
        page.colors("light")
        page.open(url)
        page.until("!document.getElementById('main').hidden && document.querySelector('#clients table')")
        page.picture(PICTURES / "page-first-hit.png", 1100, 1000)


def main(program, seconds):
    with node.Node(program, more={"memory": {"bytes": "32 MiB"}}) as served, \
            browser.Browser(browser.find()) as page, served.used("mixed:1,200,40,20,20,120", salts=3):
        time.sleep(seconds)
        for name, scheme, width, height in (("page", "light", 1100, 1900), ("page-dark", "dark", 1100, 820),
                                            ("page-phone", "light", 390, 900)):
            page.size(width, height, mobile=width < 500)
            page.colors(scheme)
            page.open(served.url)
            # Between two replays no client is attached.
            page.until("!document.getElementById('main').hidden && document.getElementById('log').textContent != '' && "
                       "document.querySelector('#clients table')")
            page.picture(PICTURES / f"{name}.png", width, height)


if __name__ == "__main__":
    if sys.argv[1] == "first-hit":
        first_hit(sys.argv[2])
        sys.exit(0)
    if sys.argv[2:] == ["broken"]:
        broken(sys.argv[1])
        sys.exit(0)
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 300)
