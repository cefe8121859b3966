"""What .ci/nightly runs: a simulation, an engine or the gauntlet that it leaves out is noticed here."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Nightly(unittest.TestCase):
    def setUp(self):
        self.steps = [line for line in (ROOT / ".ci/nightly").read_text().splitlines() if re.match(r" *step ", line)]

    def some_step(self, pattern):
        return any(re.search(pattern, step) for step in self.steps)

    def test_each_simulation_gets_fresh_seeds(self):
        simulations = [each.parent.name for each in ROOT.glob("tests/*/CMakeLists.txt")
                       if re.search(r"troupe_sim_main|troupe_simulate\(", each.read_text())
                       and each.parent.name != "sim_main"]
        self.assertGreaterEqual(len(simulations), 9)
        for name in simulations:
            self.assertTrue(self.some_step(rf" simulate {name}( |$)"), name)
        for kind in ("--slot-clients", "--made-namespaces"):
            self.assertTrue(self.some_step(rf" simulate simulation {kind} "), kind)

    def test_each_engine_runs_with_all_of_its_experiments(self):
        usage = subprocess.run(["bash", ROOT / "scripts/engines", "--help"], text=True, check=True, timeout=60,
                               stdout=subprocess.PIPE).stdout
        engines = re.findall(r"^ *(?:Usage:)? *scripts/engines (\w+) \[", usage, re.M)
        self.assertEqual(sorted(engines), ["lmcache", "nixl", "sglang", "vllm"])
        for name in engines:
            self.assertTrue(self.some_step(rf'/scripts/engines" {name}( --version "\$version")?$'), name)

    def test_the_gauntlet_runs_with_all_of_its_cases(self):
        self.assertTrue(self.some_step(r'/scripts/gauntlet" --short$'))


if __name__ == "__main__":
    unittest.main()
