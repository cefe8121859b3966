"""scripts/test --stress with stand-ins for its programs: how often it runs the tests, beside what, and what it says."""

import json
import unittest

from copied_scripts import SUCCEEDS, CopiedScripts

# Fails the tests of each run that `runs` names, notes its arguments and how many processes of load there are.
CTEST = """#!/usr/bin/env python3
import json, os, pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
play = json.loads((here / "play").read_text())
arguments = sys.argv[1:]
failed = play["runs"][len(play["seen"])]
busy = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getppid())], text=True,
                      stdout=subprocess.PIPE).stdout
play["seen"].append({"arguments": arguments, "busy": busy.count("os.getppid() == parent")})
(here / "play").write_text(json.dumps(play))
if failed is None:
    print("No tests were found!!!")
    sys.exit(1)
names = {"unit/a rule": "run", "integration/a node: it ends": "run", "gpu/a kernel": "skipped"}
names.update((name, "missing" if name in play["missing"] else "fail") for name in failed)
marks = {"skipped": '<skipped message="SKIP_RETURN_CODE=77"/>',
         "missing": '<skipped message="Unable to find executable"/>'}
cases = "".join(f'<testcase name="{name}" status="{"notrun" if status in marks else status}">{marks.get(status, "")}'
                f'<system-out>what {name} said</system-out></testcase>' for name, status in names.items())
pathlib.Path(arguments[arguments.index("--output-junit") + 1]).write_text(f"<testsuite>{cases}</testsuite>")
sys.exit(8 if failed else 0)
"""


class Stress(CopiedScripts):
    def setUp(self):
        super().setUp()
        self.copy("scripts/test", "scripts/common.sh", "tests/stress/stress.py")
        for name in ("scripts/bootstrap", "bin/cmake"):
            self.program(name, SUCCEEDS)
        self.program("bin/ctest", CTEST)

    def play(self, *arguments, runs=(), missing=()):
        """scripts/test where the tests fail in each run that `runs` names, because their program is not there if they
        are `missing`; None: ctest finds no tests."""
        (self.root / "bin" / "play").write_text(json.dumps({"runs": runs, "missing": missing, "seen": []}))
        done = self.run_script("test", *arguments)
        self.seen = json.loads((self.root / "bin" / "play").read_text())["seen"]
        self.said = done.stdout
        return done.returncode

    def test_all_pass_beside_the_load(self):
        self.assertEqual(self.play("--stress", "2", "--load", "3", "-L", "integration", runs=[[], []]), 0, self.said)
        self.assertEqual(len(self.seen), 2)
        for run in self.seen:
            self.assertEqual(run["arguments"][-2:], ["-L", "integration"])
            # And the one that writes.
            self.assertEqual(run["busy"], 4)
        self.assertIn("2 rounds beside 3 busy processes: 4 of 4 runs passed", self.said)

    def test_names_what_failed_and_keeps_its_output(self):
        node = "integration/a node: it ends"
        self.assertEqual(self.play("--stress", "3", "--load", "0", runs=[[node], [], [node]]), 1)
        self.assertEqual(self.seen[0]["busy"], 0)
        self.assertIn("3 rounds beside 0 busy processes: 4 of 6 runs passed\n  failed 2 of 3: " + node, self.said)
        kept = self.root / "build/release/Testing/stress"
        outputs = sorted(kept.glob("integration-a-node-it-ends-*.txt"))
        self.assertEqual([each.name.split(".")[-2] for each in outputs], ["round-1", "round-3"])
        self.assertEqual(outputs[1].read_text(), f"what {node} said")
        # Those of an earlier build do not stay.
        self.assertEqual(self.play("--stress", "1", "--load", "0", runs=[[]]), 0)
        self.assertEqual(list(kept.glob("*.txt")), [])

    def test_a_program_that_is_not_there_is_a_failure(self):
        self.assertEqual(self.play("--stress", "1", "--load", "0", runs=[["unit/a rule"]], missing=["unit/a rule"]), 1)
        self.assertIn("failed 1 of 1: unit/a rule", self.said)

    def test_says_what_it_has_when_ctest_breaks(self):
        self.assertEqual(self.play("--stress", "3", "--load", "0", runs=[["unit/a rule"], None]), 1)
        self.assertIn("No tests were found", self.said)
        self.assertIn("1 rounds beside 0 busy processes: 1 of 2 runs passed", self.said)

    def test_no_tests_is_no_success(self):
        self.assertEqual(self.play("--stress", "2", "--load", "0", runs=[None, []]), 1)
        self.assertEqual(len(self.seen), 1)
        self.assertIn("No tests were found", self.said)

    def test_refuses_what_is_no_number(self):
        for wrong in (["--stress"], ["--stress", "0"], ["--stress", "x"], ["--stress", "2", "--load", "-1"]):
            self.assertEqual(self.play(*wrong), 1, wrong)
            self.assertIn("needs", self.said)
            self.assertEqual(self.seen, [])
        for late in (["-R", "a", "--stress", "2"], ["--stress=2"], ["asan", "-L", "unit", "--load", "3"]):
            self.assertEqual(self.play(*late), 1, late)
            self.assertIn("has to come first", self.said)
            self.assertEqual(self.seen, [])


if __name__ == "__main__":
    unittest.main()
