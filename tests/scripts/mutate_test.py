"""scripts/mutate: where it puts mistakes, and what it says of them in a project of one file."""

import json
import subprocess
import sys
import unittest

from copied_scripts import ROOT, CopiedScripts

sys.path.insert(0, str(ROOT / "tests" / "mutation"))
import mutate  # noqa: E402
from sites import KINDS, find_sites, write  # noqa: E402

SAMPLE = r'''#define BELOW(a, b) ((a) < (b) && \
                     (a) != 3)
// a < b, and 7 more
/* if (a == b) return true; */
template <typename T, int n = 4> struct box {};
constexpr int bound = 3 + 4;
constexpr bool is_low(int x) {
  return x < 5;
}
static_assert(bound < 8 || bound > 9);
enum class color { red = 1, blue = 2 };

void note(const box<int, 6>& what, std::vector<std::vector<int>>& out) {
  log::get()->info("a < b && {}", 3);
  out.push_back({1'000});
  std::string text = "x < 1 || y" + name(R"(a + 2)");
  char raw[16];
  if constexpr (bound > 2)
    ++out.front()[0];
  out.reserve(20);
  use(R"end(a " + 2 && ")end", 'a', "\"", L"1 - 1");
}

bool choose(int a, T&& b, const int* p) {
  switch (a) {
  case 7: p = nullptr; break;
  }
  if (const auto found = find(a); found != b.end() && *p - 1 >= 'x')
    return true;
  if (const int* q = get<2>(p))
    a_[q[8]] -= 0x1F;
  while (a << 2 > std::max<int>(*p, 1.5) + 5U)
    go_on<int, 3>(a), b->lines.call(a);
  b->lines.clear();
  int x = call(a);
  box<int> y(a);
  return a == 5s;
}
'''
# The kinds of mistakes with what they change, in the order of their places.
EXPECTED = [
    ("early return", "{", "{ return;"),
    ("call", "out.push_back({1'000})", "nothing"),
    ("constant", "1'000", "1'000 + 1"),
    ("assignment", "++out.front()[0]", "nothing"),
    ("constant", "0", "0 + 1"),
    ("condition", "found != b.end() && *p - 1 >= 'x'", "!(found != b.end() && *p - 1 >= 'x')"),
    ("comparison", "found != b.end()", "found == b.end()"),
    ("logic", "found != b.end() && *p - 1 >= 'x'", "found != b.end() || *p - 1 >= 'x'"),
    ("arithmetic", "*p - 1", "*p + 1"),
    ("comparison", "*p - 1 >= 'x'", "*p - 1 > 'x'"),
    ("constant", "1", "1 + 1"),
    ("return", "true", "false"),
    ("assignment", "a_[q[8]] -= 0x1F", "nothing"),
    ("constant", "8", "8 + 1"),
    ("constant", "0x1F", "0x1F + 1"),
    ("condition", "a << 2 > std::max<int>(*p, 1.5) + 5U", "!(a << 2 > std::max<int>(*p, 1.5) + 5U)"),
    ("comparison", "a << 2 > std::max<int>(*p, 1.5) + 5U", "a << 2 >= std::max<int>(*p, 1.5) + 5U"),
    ("constant", "2", "2 + 1"),
    ("arithmetic", "std::max<int>(*p, 1.5) + 5U", "std::max<int>(*p, 1.5) - 5U"),
    ("constant", "5U", "5U + 1"),
    ("call", "b->lines.clear()", "nothing"),
    ("assignment", "p = nullptr", "nothing"),
    ("comparison", "a == 5s", "a != 5s"),
]

RULES = r'''#include "rules.hpp"

#include <string>

static const char* const text = "a < b";

bool checked(int a, int b) { return a < b; }

bool checked_later(int a, int b) { return a == b; }

bool only_reached(int a, int b) { return a != b; }

bool never_reached(int a, int b) { return a > b; }

bool reached_by_moody(int a, int b) { return a >= b; }

std::string joined(const std::string& a) { return a + text; }

int count_to(int end) {
  int at = 0;
  while (at != end) ++at;
  return at;
}
'''
RULES_HEADER = r'''#pragma once
#include <string>
bool checked(int a, int b);
bool checked_later(int a, int b);
bool only_reached(int a, int b);
bool never_reached(int a, int b);
bool reached_by_moody(int a, int b);
std::string joined(const std::string& a);
int count_to(int end);
'''
# One program for all tests. `moody` passes once, `broken` never; `reaches` can open no file. Files have the names that
# they have in the original, so that objects without a mistake come out of the compiler's cache.
CHECKS = r'''#include "rules.hpp"
#include <cstdio>
#include <string>
#include <sys/resource.h>
int main(int, char** arguments) {
  const std::string name = arguments[1];
  if (name == "unit")
    return checked(1, 2) && !checked(2, 2) && joined("") == "a < b" && std::string(__FILE__).find("mutants") ==
                   std::string::npos ? 0 : 1;
  if (name == "later")
    return checked_later(2, 2) && checked(1, 2) ? 0 : 1;
  if (const rlimit none{}; name == "reaches" && setrlimit(RLIMIT_NOFILE, &none) == 0)
    return only_reached(1, 2) || !only_reached(1, 2) ? 0 : 1;
  if (name == "counts")
    return count_to(1000) == 1000 ? 0 : 1;
  if (name == "skips")
    return checked(1, 2) ? 77 : 77;
  if (name == "moody") {
    reached_by_moody(1, 2);
    std::FILE* const before = std::fopen(MOODY, "r");
    std::fclose(std::fopen(MOODY, "w"));
    return before == nullptr ? 0 : 1;
  }
  return 1;
}
'''
BUILD = r'''cmake_minimum_required(VERSION 3.25)
project(stand_in LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
enable_testing()
add_executable(checks tests/checks.cpp rules.cpp)
target_include_directories(checks PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_options(checks PRIVATE -Wall -Wextra -Wconversion -Werror)
target_compile_definitions(checks PRIVATE MOODY="${PROJECT_BINARY_DIR}/moody")
foreach(pair "unit unit" "later actors" "reaches unit" "counts unit" "skips unit" "moody unit" "broken unit")
  string(REPLACE " " ";" pair "${pair}")
  list(GET pair 0 name)
  list(GET pair 1 layer)
  add_test(NAME ${name} COMMAND checks ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${layer} SKIP_RETURN_CODE 77)
endforeach()
'''
PRESETS = {"version": 6, "configurePresets": [{"name": "ci", "generator": "Ninja", "binaryDir": "build/release"}]}


class Places(unittest.TestCase):
    def test_finds_what_is_code_and_nothing_else(self):
        sites = sorted(find_sites("a.cpp", SAMPLE), key=lambda site: site.start)
        found = sorted((site.kind, site.before) for site in sites)
        self.assertEqual(found, sorted((kind, before) for kind, before, _ in EXPECTED))
        after = {(site.kind, site.before): site.after for site in sites}
        for kind, before, wrong in EXPECTED:
            self.assertEqual(after[(kind, before)], wrong)

    def test_keeps_lines_and_everything_else(self):
        for site in find_sites("a.cpp", SAMPLE):
            written = write(SAMPLE, [(41, site)], "header.hpp").removeprefix('#include "header.hpp"\n#line 1\n')
            self.assertEqual(written.count("\n"), SAMPLE.count("\n"), site.before)
            self.assertTrue(written.startswith(SAMPLE[:site.start]) and written.endswith(SAMPLE[site.end:]))
            self.assertEqual(written.count("::troupe_mutants::at(41)"), 1, written)
            self.assertIn(SAMPLE[site.start:site.end], written[site.start:])

    def test_chosen_places_do_not_overlap(self):
        options = mutate.options_of(["--seed", "5", "--count", "60", "io"])
        sites = list(mutate.choose(["io/page.cpp", "io/slab/slab_file.cpp"], options).values())
        self.assertEqual(len(sites), 60)
        self.assertEqual({site.kind for site in sites}, set(KINDS))
        for site in sites:
            self.assertEqual([other.before for other in sites if other.overlaps(site)], [site.before])

    def test_a_change_elsewhere_leaves_the_choice_as_it_is(self):
        options = mutate.options_of(["--seed", "5", "--count", "40", "io"])
        few = mutate.choose(["io/page.cpp"], options).values()
        more = mutate.choose(["io/page.cpp", "io/data_directory.cpp"], options).values()
        kept = [site for site in more if site.path == "io/page.cpp"]
        self.assertLess(len(kept), 40)
        self.assertGreater(sum(site.key() in [other.key() for other in few] for site in kept), 0.9 * len(kept))

    def test_equivalent_mistakes_are_still_in_the_sources(self):
        for each in json.loads((ROOT / "tests/mutation/equivalent.json").read_text()):
            sites = find_sites(each["path"], (ROOT / each["path"]).read_text())
            self.assertTrue(each["why"])
            self.assertIn({key: each[key] for key in ("path", "line", "before", "after")},
                          [site.key() for site in sites], each)


class Runs(CopiedScripts):
    def setUp(self):
        super().setUp()
        self.copy("scripts/mutate", "scripts/common.sh",
                  *(f"tests/mutation/{path.name}" for path in (ROOT / "tests/mutation").glob("*.py")))
        for name, text in (("rules.cpp", RULES), ("rules.hpp", RULES_HEADER), ("tests/checks.cpp", CHECKS),
                           ("CMakeLists.txt", BUILD), ("CMakePresets.json", json.dumps(PRESETS)),
                           (".gitignore", "/build/\n")):
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text)
        subprocess.run(["git", "init", "--quiet", self.root], check=True)

    def mutate(self, *arguments):
        """The exit code; the report, and what was said, are members."""
        done = self.run_script("mutate", "--seed", "1", "--targets", "checks", *arguments)
        self.said = done.stdout
        report = self.root / "build/mutants/report.json"
        self.report = json.loads(report.read_text()) if report.is_file() else None
        return done.returncode

    def results(self):
        return {each["before"]: each["result"] for each in self.report["results"]}

    def test_says_who_notices(self):
        rules = str(self.root / "rules.cpp")
        kinds = ("--kinds", "comparison,arithmetic", "--tests", "unit|later|reaches|skips|moody|broken")
        self.assertEqual(self.mutate(*kinds, rules), 1, self.said)
        self.assertEqual(self.results(), {
            "a < b": "noticed", "a == b": "noticed", "a != b": "not noticed", "a > b": "not reached",
            "a >= b": "not noticed", "at != end": "not reached"}, self.said)
        # `a - text` is nothing that compiles.
        self.assertEqual((self.report["chosen"], self.report["do_not_compile"]), (7, 1))
        self.assertEqual(self.report["left_out"], ["broken"])
        by = {each["before"]: (each["layer"], each["test"], each["how"]) for each in self.report["results"]
              if each["result"] == "noticed"}
        self.assertEqual(by, {"a < b": ("unit", "unit", "failed"), "a == b": ("actors", "later", "failed")})
        self.assertAlmostEqual(self.report["share"], 2 / 6)
        self.assertIn("33.3 % of 6 mistakes noticed", self.said)
        self.assertEqual(self.mutate(*kinds, "--at-least", "0.3", rules), 0, self.said)

        # Where a run was interrupted, it continues.
        state = self.root / "build/mutants/state.json"
        saved = json.loads(state.read_text())
        number = next(str(each["number"]) for each in self.report["results"] if each["before"] == "a == b")
        del saved["results"][number]
        state.write_text(json.dumps(saved))
        self.assertEqual(self.mutate(*kinds, rules), 1)
        self.assertEqual(self.said.count("rules.cpp:9 comparison: noticed: later"), 1, self.said)
        self.assertEqual(self.said.count(": noticed: "), 1, self.said)
        self.assertEqual(self.results()["a == b"], "noticed")

        # Another test notices more.
        checks = self.root / "tests/checks.cpp"
        checks.write_text(CHECKS.replace("only_reached(1, 2) || !only_reached(1, 2)", "only_reached(1, 2)"))
        self.assertEqual(self.mutate(*kinds, "--again", rules), 1)
        self.assertEqual(self.results()["a != b"], "noticed", self.said)
        self.assertEqual(self.said.count(": noticed: "), 1, self.said)
        # Results of other tests do not count.
        checks.write_text(checks.read_text() + "\n")
        self.assertEqual(self.mutate(*kinds, rules), 1)
        self.assertEqual(self.said.count(": noticed: "), 3, self.said)

    def test_a_test_that_does_not_end_notices(self):
        self.assertEqual(self.mutate("--kinds", "assignment", "--tests", "counts", "--patience", "5",
                                     str(self.root / "rules.cpp")), 0, self.said)
        self.assertEqual([each["how"] for each in self.report["results"]], ["timed out"])

    def test_leaves_out_what_is_equivalent(self):
        (self.root / "tests/mutation/equivalent.json").write_text(json.dumps([
            {"path": "rules.cpp", "line": "bool only_reached(int a, int b) { return a != b; }", "before": "a != b",
             "after": "a == b", "why": "a test"}]))
        self.assertEqual(self.mutate("--list", "--kinds", "comparison", str(self.root / "rules.cpp")), 0)
        self.assertIn("rules.cpp:7  comparison  a < b  ->  a <= b", self.said)
        self.assertNotIn("only_reached", self.said)
        self.assertNotIn("rules.cpp:11", self.said)

    def test_chooses_what_has_changed(self):
        commit = ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "a"]
        (self.root / "more.cpp").write_text("int more(int a) { return a - 3; }\n")
        subprocess.run(["git", "-C", self.root, "add", "--all"], check=True)
        subprocess.run(commit, check=True)
        self.assertEqual(self.mutate("--list", "--since", "HEAD"), 2)
        self.assertIn("no place", self.said)
        (self.root / "more.cpp").write_text("int more(int a) { return a - 4; }\n")
        self.assertEqual(self.mutate("--list", "--since", "HEAD", "--kinds", "arithmetic"), 0)
        self.assertEqual(self.said, "    1  more.cpp:1  arithmetic  a - 4  ->  a + 4\n")

    def test_refuses_what_it_cannot_do(self):
        rules = str(self.root / "rules.cpp")
        for wrong, words in (([], "names no sources"), ([str(self.root / "tests")], "no source of the product"),
                             (["--kinds", "spelling", rules], "no such kind"), (["--count", "0", rules], "from 1 on"),
                             (["--tests", "nothing", rules], "no test is left"),
                             (["--tests", "broken", rules], "no test passes")):
            self.assertEqual(self.mutate(*wrong), 2, wrong)
            self.assertIn(words, self.said)


if __name__ == "__main__":
    unittest.main()
