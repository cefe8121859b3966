""".ci/steps.sh: its results for steps that end, fail, or time out, and its summary."""

import os
import pathlib
import subprocess
import unittest

from copied_scripts import CopiedScripts


class Steps(CopiedScripts):
    def setUp(self):
        super().setUp()
        self.copy(".ci/steps.sh", "scripts/common.sh")

    def play(self, *lines):
        """Runs a script of these lines with the steps. Returns its exit code; its output is in `said`."""
        script = self.root / ".ci" / "run"
        script.write_text('#!/usr/bin/env bash\nsource "$(dirname "$0")/steps.sh"\n' + "\n".join(lines) + "\nend_steps\n")
        done = subprocess.run(["bash", script], text=True, check=False, stdin=subprocess.DEVNULL, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "TMPDIR": str(self.root)})
        self.said = done.stdout
        return done.returncode

    def test_a_step_that_ends_in_time(self):
        self.assertEqual(self.play('step_until 30 "Good" echo well', "tell_steps"), 0)
        self.assertRegex(self.said, r"Good +\d s  ok")
        self.assertNotIn("LEFT OUT", self.said)

    def test_a_step_that_fails_in_time(self):
        self.assertEqual(self.play('step_until 30 "Bad" bash -c "exit 7"', "tell_steps"), 1)
        self.assertRegex(self.said, r"Bad +\d s  failed with 7")

    def test_no_time_left_at_all(self):
        self.assertEqual(self.play('step_until 0 "Late" false', "tell_steps"), 0)
        self.assertIn("LEFT OUT, since this machine is too slow for them: Late;", self.said)

    def test_a_step_that_has_found_nothing_until_its_time_is_left_out(self):
        # Output that results from ending the step is no finding.
        self.assertEqual(self.play("step_until 1 'Slow' bash -c 'trap \"echo 1/2 Test 1: a ***Failed; exit 1\" TERM; "
                                   "echo 1/2 Test 0: b Passed; sleep 40 & wait'", "tell_steps"), 0)
        self.assertIn("LEFT OUT, since this machine is too slow for them: Slow;", self.said)

    def test_a_step_that_has_found_something_until_its_time_has_failed(self):
        for finding in ("1/9 Test #1: unit/a rule ....***Failed    0.01 sec", "5/9 Test #5: x ***Timeout 60.0 sec",
                        "base/a.cpp:3:1: error: no [misc-thing]", "WARNING: ThreadSanitizer: data race (pid=1)",
                        "a.cpp:1:2: runtime error: shift exponent 64 is too large"):
            # A second may end at once, and a busy machine needs a while to begin.
            self.assertEqual(self.play(f"step_until 8 'Slow' bash -c 'echo \"{finding}\"; sleep 40'", "tell_steps"), 1)
            self.assertNotIn("LEFT OUT", self.said)
            self.assertRegex(self.said, r"Slow +\d+ s  failed before its time limit")
            self.assertIn("failed: Slow;", self.said.splitlines()[-1])

    def test_all_processes_of_a_step_are_ended(self):
        self.assertEqual(self.play("step_until 8 'Slow' bash -c 'sleep 4711 & echo $! > pids; echo $$ >> pids; wait'"
                                   .replace("pids", str(self.root / "pids"))), 0)
        for pid in (self.root / "pids").read_text().split():
            state = pathlib.Path(f"/proc/{pid}/stat")
            self.assertFalse(state.exists() and state.read_text().split()[2] != "Z", pid)

    def test_the_summary_of_the_tests_is_the_end(self):
        listed = self.root / "build" / "release" / "Testing"
        listed.mkdir(parents=True)
        (listed / "passed-at-second-try").write_text("    integration/a node\n    conformance/a wire\n")
        tests = self.root / "tests"
        tests.write_text("echo 50% tests passed, 1 tests failed out of 2\necho again\n"
                         "echo 100% tests passed, 0 tests failed out of 1\necho\necho 'Total Test time (real) =   1 sec'\n")
        self.assertEqual(self.play('step_until 0 "Fuzz" true', f'last_step "Tests" bash {tests}'), 0)
        end = self.said.splitlines()[-7:]
        self.assertEqual(end, ["==> Passed only at the second try: 2", "    integration/a node", "    conformance/a wire",
                               "==> LEFT OUT, since this machine is too slow for them: Fuzz; ",
                               "100% tests passed, 0 tests failed out of 1", "", "Total Test time (real) =   1 sec"])

    def test_tests_that_fail(self):
        self.assertEqual(self.play("last_step Tests bash -c 'echo 50% tests passed, 1 tests failed out of 2; exit 8'"), 1)
        self.assertRegex(self.said, r"Tests +\d s  failed with 8")
        self.assertEqual(self.play("last_step Tests bash -c 'exit 1'"), 1)
        self.assertNotIn("tests passed", self.said)

    def test_what_a_step_has_found_is_the_end(self):
        rows = (("step", ""), ("step_until 30", ""), ("last_step", "echo 90% tests passed, 1 tests failed out of 9; "))
        for kind, first in rows:
            says = f"{first}echo 'a.cpp:1:2: error: no [misc-thing]'; seq 20; exit 3"
            self.assertEqual(self.play(f'{kind} "Bad" bash -c "{says}"', 'step "Good" true', "tell_steps"), 1)
            self.assertEqual(self.said.splitlines()[-3:-1], ["==> Found in Bad:", "a.cpp:1:2: error: no [misc-thing]"])
        # Where nothing looks like a finding, its last lines.
        self.assertEqual(self.play('step "Bad" bash -c "seq 20; exit 3"', "tell_steps"), 1)
        self.assertEqual(self.said.splitlines()[-7:-1], ["==> Found in Bad:", "16", "17", "18", "19", "20"])

    def test_skipped_tests_are_a_number_in_the_summary(self):
        tests = self.root / "tests"
        tests.write_text("echo '100% tests passed, 0 tests failed out of 3'\necho\n"
                         "echo 'Total Test time (real) =   1 sec'\necho\necho The following tests did not run:\n"
                         "printf '\\t  1 - gpu/a (Skipped)\\n\\t  2 - gpu/b (Skipped)\\n'\n")
        self.assertEqual(self.play(f'last_step "Tests" bash {tests}'), 0)
        self.assertEqual(self.said.splitlines()[-5:],
                         ["100% tests passed, 0 tests failed out of 3", "", "Total Test time (real) =   1 sec", "",
                          "2 tests were skipped, whose names are above"])


if __name__ == "__main__":
    unittest.main()
