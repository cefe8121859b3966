"""scripts/test with stand-ins for its programs: which tests it runs a second time, and their result."""

import json
import unittest

from copied_scripts import FAILS, SUCCEEDS, CopiedScripts

# The tests by number and name, as ctest knows them.
TESTS = {1: ("unit/a rule", "unit"), 2: ("actors/a message", "actors"), 3: ("simulation/a seed", "simulation"),
         4: ("integration/a node: it ends", "integration"), 5: ("conformance/a wire", "conformance"),
         **{n: (f"integration/one of many {n}", "integration") for n in range(6, 20)}}

# Notes its arguments, and does at each run of tests what the next entry of `runs` says.
CTEST = """#!/usr/bin/env python3
import json, pathlib, re, sys
here = pathlib.Path(__file__).parent
play = json.loads((here / "play").read_text())
tests = {int(n): x for n, x in play["tests"].items()}
arguments = sys.argv[1:]
if "--show-only" in arguments:
    wanted = re.compile(arguments[arguments.index("--label-regex") + 1])
    for n, (name, label) in tests.items():
        if wanted.search(label):
            print(f"  Test {'#' + str(n):>4}: {name}")
    sys.exit(0)
run = play["runs"][len(play["seen"])]
play["seen"].append(arguments)
(here / "play").write_text(json.dumps(play))
notes = pathlib.Path(arguments[arguments.index("--test-dir") + 1]) / "Testing" / "Temporary" / "LastTestsFailed.log"
notes.parent.mkdir(parents=True, exist_ok=True)
count = len(notes.read_text().splitlines()) if "--rerun-failed" in arguments else len(tests)
failed = run["failed"]
if failed:
    notes.write_text("".join(f"{n}:{tests[n][0]}\\n" for n in failed))
if run["code"] in (0, 8):
    print(f"{100 * (count - len(failed)) // count}% tests passed, {len(failed)} tests failed out of {count}\\n")
    print("Total Test time (real) =   1.00 sec")
sys.exit(run["code"])
"""


class SecondTry(CopiedScripts):
    def setUp(self):
        super().setUp()
        self.copy("scripts/test", "scripts/common.sh")
        for name in ("scripts/bootstrap", "bin/cmake"):
            self.program(name, SUCCEEDS)
        self.program("bin/setarch", FAILS)
        self.program("bin/ctest", CTEST)

    def play(self, *runs, arguments=(), ci=True):
        """scripts/test where each run of ctest is (exit code, numbers of tests that fail). Returns its requests
        and its output, in the order in which they came."""
        (self.root / "bin" / "play").write_text(json.dumps({
            "tests": TESTS, "runs": [{"code": code, "failed": failed} for code, failed in runs], "seen": []}))
        # An empty one is none.
        done = self.run_script("test", *arguments, CI="true" if ci else "")
        self.seen = json.loads((self.root / "bin" / "play").read_text())["seen"]
        self.said = done.stdout
        self.assertEqual(len(self.seen), len(runs), self.said)
        return done.returncode

    def test_all_pass(self):
        self.assertEqual(self.play((0, [])), 0)
        self.assertNotIn("SECOND", self.said)

    def test_passes_at_the_second_try_and_says_so(self):
        self.assertEqual(self.play((8, [4, 5]), (0, [])), 0)
        self.assertNotIn("--rerun-failed", self.seen[0])
        self.assertIn("--rerun-failed", self.seen[1])
        alone = self.seen[1].index("--parallel")
        self.assertEqual(self.seen[1][alone + 1], "1")
        notified = self.said[self.said.index("PASSED ONLY AT THE SECOND TRY"):]
        self.assertIn("\n    integration/a node: it ends\n    conformance/a wire\n", notified)
        # ctest's own word is the last.
        self.assertEqual(self.said.splitlines()[-3:], ["100% tests passed, 0 tests failed out of 2", "",
                                                       "Total Test time (real) =   1.00 sec"])

    def test_names_what_passed_at_the_second_try_in_a_file_until_the_next_run(self):
        listed = self.root / "build" / "release" / "Testing" / "passed-at-second-try"
        self.assertEqual(self.play((8, [4, 5]), (0, [])), 0)
        self.assertEqual(listed.read_text(), "    integration/a node: it ends\n    conformance/a wire\n")
        self.assertEqual(self.play((0, [])), 0)
        self.assertFalse(listed.exists())

    def test_fails_again(self):
        for left in ([4], [4, 5]):
            self.assertEqual(self.play((8, [4, 5]), (8, left)), 8)
            self.assertNotIn("PASSED ONLY", self.said)
            self.assertIn(f"{len(left)} tests failed out of 2", self.said.splitlines()[-3])

    def test_what_depends_on_code_alone_gets_no_second_try(self):
        for failed in ([1], [2], [3], [1, 4], [4, 3, 5]):
            self.assertEqual(self.play((8, failed)), 8)
            self.assertNotIn("SECOND", self.said)

    def test_many_that_fail_are_no_accident(self):
        self.assertEqual(self.play((8, [4, 6, 7, 8, 9]), (0, [])), 0)
        self.assertEqual(self.play((8, [4, 6, 7, 8, 9, 10])), 8)

    def test_a_run_that_breaks_off_gets_no_second_try(self):
        for code in (1, 134):
            self.assertEqual(self.play((code, [4])), code)
            self.assertEqual(self.play((8, [4]), (code, [])), code)
            self.assertNotIn("PASSED ONLY", self.said)

    def test_what_an_earlier_run_has_left_counts_for_nothing(self):
        self.assertEqual(self.play((8, [4]), (8, [4])), 8)
        self.assertEqual(self.play((8, [])), 8)

    def test_only_in_ci_and_only_without_a_sanitizer_or_a_choice(self):
        self.assertEqual(self.play((8, [4]), ci=False), 8)
        self.assertEqual(self.play((8, [5]), arguments=["asan"]), 8)
        self.assertEqual(self.play((8, [5]), arguments=["tsan"]), 8)
        self.assertEqual(self.play((8, [4]), arguments=["-R", "integration"]), 8)
        self.assertEqual(self.seen[0][-2:], ["-R", "integration"])
        self.assertEqual(self.play((8, [4]), (0, []), arguments=["release"]), 0)


if __name__ == "__main__":
    unittest.main()
