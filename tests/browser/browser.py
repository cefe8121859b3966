"""A browser without a window, driven by its own protocol over a pipe: needs Chromium and nothing else."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

PATIENCE = 60

# Errors of the browser while the requested page is being unloaded and the next one is not loaded yet.
LEFT = ("Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context",
        "Cannot find default execution context", "Promise was collected")


class PageIsLeft(RuntimeError):
    """The call has no answer because the page was left meanwhile."""


def find():
    """The path of the program, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    return None


class Browser:
    def __init__(self, program, width=1200, height=900):
        self.profile = tempfile.mkdtemp(prefix="troupe-browser-")
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()

        def set_descriptors():
            # The browser reads from and writes to descriptors 3 and 4. The pipes may have these numbers, so they are
            # duplicated first.
            read, write = os.dup(to_read), os.dup(to_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
             f"--window-size={width},{height}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=set_descriptors)
        os.close(to_read)
        os.close(to_write)
        self.number = 0
        self.unread = b""
        self.complaints = []
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    session = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self):
        while b"\0" not in self.unread:
            more = os.read(self.from_browser, 65536)
            if not more:
                raise RuntimeError("the browser has ended")
            self.unread += more
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, parameters=None):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            got = self.read()
            if got.get("id") == self.number:
                if "error" in got:
                    kind = PageIsLeft if any(x in got["error"].get("message", "") for x in LEFT) else RuntimeError
                    raise kind(f"{method}: {got['error']}")
                return got["result"]
            # Violations by the page: errors of its script, and requests that its policy blocks.
            if got.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(got["params"]))
            if got.get("method") == "Log.entryAdded" and got["params"]["entry"]["level"] == "error":
                self.complaints.append(got["params"]["entry"]["text"])

    def run(self, script):
        """The value of a JavaScript expression, on the next page if the current one is being left. Expressions that
        leave the page themselves are for `leave`, as they may run twice here."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.evaluate(script)
            except PageIsLeft:
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def leave(self, script):
        """Runs an expression that loads another page, or this one again, and waits until it is loaded."""
        self.run("window.isLeft = true")
        try:
            self.evaluate(script)
        except PageIsLeft:
            pass  # as it should
        self.until("window.isLeft === undefined && document.readyState == 'complete'")

    def evaluate(self, script):
        """The value of a JavaScript expression. Raises PageIsLeft if the page was left."""
        got = self.call("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in got:
            raise RuntimeError(f"{script}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def open(self, url):
        """Opens the URL and drops the violations of the previous page."""
        for target in ("about:blank", url):
            self.call("Page.navigate", {"url": target})
            self.until(f"document.readyState == 'complete' && location.href == '{target}'")
            if target != url:
                self.complaints.clear()

    def until(self, script):
        """Waits until an expression is true."""
        end = time.monotonic() + PATIENCE
        # An element that does not exist yet is no error.
        while not self.run(f"(() => {{ try {{ return Boolean({script}) }} catch (e) {{ return false }} }})()"):
            if time.monotonic() > end:
                raise RuntimeError(f"never true: {script}; the page says: {self.text()}")
            time.sleep(0.1)

    def text(self):
        return self.run("document.body ? document.body.innerText : ''")

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})

    def colors(self, scheme):
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def picture(self, path, width, height):
        """A PNG of the top of the page."""
        got = self.call("Page.captureScreenshot", {
            "format": "png", "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}})
        with open(path, "wb") as file:
            file.write(base64.b64decode(got["data"]))
