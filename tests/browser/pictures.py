#!/usr/bin/env python3
"""Makes the pictures of docs/pictures/: a node that is used for some minutes, in a browser.

Usage: pictures.py PROGRAM [SECONDS]
"""

import pathlib
import sys
import time

import browser
import node

PICTURES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pictures"


def main(program, seconds):
    trace = "mixed:1,200,40,20,20,120"
    with node.Node(program, more={"memory": {"bytes": "32 MiB"}}) as served, \
            browser.Browser(browser.find()) as page:
        end = time.monotonic() + seconds
        salt = 0
        while time.monotonic() < end:
            served.replay("--salt", str(salt % 3), trace=trace)
            salt += 1
        for name, scheme, width, height in (("page", "light", 1100, 1500), ("page-dark", "dark", 1100, 820),
                                            ("page-phone", "light", 390, 900)):
            page.size(width, height, mobile=width < 500)
            page.colors(scheme)
            page.open(served.url)
            page.until("!document.getElementById('main').hidden && document.getElementById('log').textContent != ''")
            page.picture(PICTURES / f"{name}.png", width, height)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 300)
