"""Runs the tests of a build: which sites each of them reaches, and which of them notices a mistake."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

PASSED, FAILED, TIMED_OUT, SKIPPED = "passed", "failed", "timed out", "skipped"


class Test:
    def __init__(self, name, layer, command, folder, environment, skip_code):
        self.name, self.layer, self.command = name, layer, command
        self.folder, self.environment, self.skip_code = folder, environment, skip_code
        self.seconds = 0.0


def tests_of(build, layers, chosen, excluded):
    """The tests of these layers, which are labels of ctest, whose program is in the build."""
    done = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, stdout=subprocess.PIPE)
    out = []
    for each in json.loads(done.stdout)["tests"]:
        properties = {one["name"]: one["value"] for one in each.get("properties", [])}
        layer = next((one for one in layers if one in properties.get("LABELS", [])), None)
        command = each.get("command")
        if layer is None or not command or not pathlib.Path(command[0]).is_relative_to(build) or \
                not pathlib.Path(command[0]).is_file() or not re.search(chosen, each["name"]) or \
                (excluded and re.search(excluded, each["name"])) or "WILL_FAIL" in properties:
            continue
        environment = dict(one.split("=", 1) for one in properties.get("ENVIRONMENT", []))
        out.append(Test(each["name"], layer, command, properties.get("WORKING_DIRECTORY", build), environment,
                        properties.get("SKIP_RETURN_CODE")))
    return out


def run(test, limit, environment):
    """Runs a test: how it ended, and how long it took. What it starts ends with it."""
    # Short, as the path of a local socket may have a hundred characters.
    place = tempfile.mkdtemp(prefix="m-")
    began = time.monotonic()
    with subprocess.Popen(test.command, cwd=test.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, start_new_session=True,
                          env={**os.environ, **test.environment, **environment, "TMPDIR": place}) as process:
        try:
            code = process.wait(timeout=limit)
            how = SKIPPED if code == test.skip_code else PASSED if code == 0 else FAILED
        except subprocess.TimeoutExpired:
            how = TIMED_OUT
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    shutil.rmtree(place, ignore_errors=True)
    return how, time.monotonic() - began


class Player:
    """Runs `jobs` tests at once. A test may take `patience` seconds and ten times what it took without a mistake."""

    def __init__(self, tests, layers, jobs, patience):
        self.tests = {test.name: test for test in tests}
        self.layers, self.jobs, self.patience = layers, jobs, patience
        self.reached = {}
        self.left_out = []

    def record(self, say):
        """Runs each test once and notes the sites that it reaches. Tests that fail without a mistake are left out."""
        scratch = pathlib.Path(tempfile.mkdtemp(prefix="troupe-reached-"))

        def one(number, test):
            file = scratch / str(number)
            how, test.seconds = run(test, 3600, {"TROUPE_MUTANT": "-1", "TROUPE_MUTANTS_REACHED": str(file)})
            numbers = enumerate(file.read_bytes()) if file.is_file() else ()
            return test, how, [number for number, reached in numbers if reached and number > 0]

        try:
            with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
                runs = [pool.submit(one, *each) for each in enumerate(self.tests.values())]
                for count, each in enumerate(concurrent.futures.as_completed(runs), 1):
                    test, how, numbers = each.result()
                    if how == PASSED:
                        self.reached[test.name] = numbers
                    elif how != SKIPPED:
                        self.left_out.append(test.name)
                    if count % 250 == 0 or count == len(runs):
                        say(f"{count} of {len(runs)} tests recorded")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self.left_out.sort()

    def to_save(self):
        return {"tests": {name: {"seconds": round(self.tests[name].seconds, 3), "reached": numbers}
                          for name, numbers in self.reached.items()}, "left_out": self.left_out}

    def restore(self, saved):
        """Takes over what an earlier run has recorded: whether it was about the same tests."""
        if saved is None or not set(saved["tests"]) | set(saved["left_out"]) <= set(self.tests):
            return False
        self.left_out = saved["left_out"]
        for name, each in saved["tests"].items():
            self.tests[name].seconds, self.reached[name] = each["seconds"], each["reached"]
        return True

    def tests_for(self, number):
        """The tests that reach a site: the cheapest layer first, and the quickest of each."""
        out = [self.tests[name] for name, numbers in self.reached.items() if number in numbers]
        return sorted(out, key=lambda test: (self.layers.index(test.layer), test.seconds, test.name))

    def judge(self, number):
        """What happens with one mistake: a dictionary for the report."""
        tests, ran = self.tests_for(number), 0
        if not tests:
            return {"result": "not reached"}
        for test in tests:
            ran += 1
            limit = self.patience + 10 * test.seconds
            how, _ = run(test, limit, {"TROUPE_MUTANT": str(number)})
            if how in (PASSED, SKIPPED):
                continue
            # One that fails without the mistake as well says nothing about it.
            if run(test, limit, {"TROUPE_MUTANT": "-1"})[0] == PASSED:
                return {"result": "noticed", "layer": test.layer, "test": test.name, "how": how, "ran": ran}
        return {"result": "not noticed", "ran": ran}

    def judge_all(self, numbers, done):
        """`done` is called with the number and the result of each."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            runs = {pool.submit(self.judge, number): number for number in numbers}
            try:
                for each in concurrent.futures.as_completed(runs):
                    done(runs[each], each.result())
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
