"""The manual pages that packaging/make-manuals writes."""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)
sys.path.insert(0, str(ROOT / "packaging"))
import help_texts  # noqa: E402

MAKER = ROOT / "packaging" / "make-manuals"


def make(folder, **environment):
    subprocess.run([MAKER, PROGRAM, folder, "1.2.3"], check=True, env={**os.environ, **environment})
    return {x.relative_to(folder).as_posix(): gzip.decompress(x.read_bytes()).decode()
            for x in sorted(pathlib.Path(folder).rglob("*.gz"))}


def sections(page):
    return re.findall(r"^\.SH (.*)$", page, re.M)


def section(page, name):
    return page.partition(f"\n.SH {name}\n")[2].partition("\n.SH ")[0]


class Manuals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-manuals-")
        cls.pages = make(cls.folder.name, SOURCE_DATE_EPOCH="86400")
        cls.whole, cls.commands = help_texts.read(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_command_has_a_page_with_all_its_options(self):
        self.assertGreater(len(self.commands), 12)
        for name, command in self.commands.items():
            page = self.pages[f"man1/troupe-{name}.1.gz"]
            if page.startswith(".so "):
                page = self.pages[page.split()[1] + ".gz"]
            self.assertIn(command.title.split(" (")[0].split("`")[0].replace("-", "\\-"), section(page, "NAME"))
            for option in re.findall(r"^  (?:-\w,)?(--[\w-]+)", help_texts.printed(PROGRAM, name, "--help"), re.M):
                self.assertIn("\\fB" + option.replace("-", "\\-") + "\\fR", section(page, "OPTIONS"), name)

    def test_pages_have_the_usual_sections(self):
        for name, page in self.pages.items():
            if page.startswith(".so "):
                continue
            wanted = ["NAME", "DESCRIPTION", "FILES", '"SEE ALSO"']
            if name.startswith("man1/"):
                wanted += ["SYNOPSIS", "OPTIONS", '"EXIT STATUS"']
            for each in wanted:
                self.assertIn(each.strip('"'), [x.strip('"') for x in sections(page)], name)
            self.assertIn('"1970-01-02" "Troupe 1.2.3"', page)

    def test_exit_codes_have_an_entry_each(self):
        for name, codes in (("troupe-status", "012"), ("troupe-remove-namespace", "01"), ("troupe-check-slabs", "012"),
                            ("troupe", "012"), ("troupe-serve", "012")):
            text = section(self.pages[f"man1/{name}.1.gz"], "EXIT STATUS")
            self.assertEqual(re.findall(r"^\.TP\n\\fB(\d+)\\fR$", text, re.M), list(codes), name)

    def test_cluster_status_has_a_page(self):
        page = self.pages["man1/troupe-cluster-status.1.gz"]
        self.assertIn("\\fBtroupe cluster status\\fR \\fI[OPTIONS] [NODE]", section(page, "SYNOPSIS"))
        self.assertNotIn("WHAT", page)
        self.assertEqual(self.pages["man1/troupe-cluster.1.gz"], ".so man1/troupe-cluster-status.1\n")

    def test_the_config_has_a_page_with_every_key(self):
        page = self.pages["man5/troupe.json.5.gz"]
        keys = help_texts.config_keys()
        self.assertGreater(len(keys), 150)
        for key in keys:
            self.assertIn(f"\n.TP\n\\fB{key.replace('[0]', '[i]').replace('-', chr(92) + '-')}\\fR\n", page)
        self.assertIn('Text; default: \\fB"troupe.sock"\\fR.', page)
        self.assertIn(".SH OVERRIDES", page)
        # Asterisks that belong to a value.
        self.assertIn("\\fBhugetlb.*\\fR", page)
        # Nothing of the Markdown is left: tables, fences, headings, bold letters.
        for mark in (r"^\|", r"^```", r"^#+ ", r"\*\*", r"\]\("):
            self.assertIsNone(re.search(mark, page, re.M), mark)

    def test_examples_are_commands_of_the_documentation(self):
        # The tests of the documentation run them.
        shown = "\n".join(x.read_text(encoding="utf-8") for x in (ROOT / "docs").glob("*.md"))
        shown = re.sub(r" {2,}#.*", "", shown).replace("build/release/", "")
        examples = re.findall(r'\("(troupe [^"]*)",', MAKER.read_text(encoding="utf-8"))
        self.assertGreater(len(examples), 12)
        for command in examples:
            self.assertTrue(re.search(rf"^ *{re.escape(command)}$", shown, re.M), command)
            self.assertTrue(command.split()[1] in [*self.commands, "help"], command)

    def test_the_same_input_makes_the_same_files(self):
        with tempfile.TemporaryDirectory(prefix="troupe-manuals-") as again:
            make(again, SOURCE_DATE_EPOCH="86400")
            for name in self.pages:
                self.assertEqual((pathlib.Path(again) / name).read_bytes(),
                                 (pathlib.Path(self.folder.name) / name).read_bytes(), name)

    def test_man_finds_no_fault(self):
        # Minimized images of Ubuntu have a program of this name that prints a notice.
        if not shutil.which("man") or not subprocess.run(["man", "--version"], capture_output=True, text=True,
                                                         check=False).stdout.startswith("man 2."):
            self.skipTest("there is no man")
        for name in self.pages:
            page, number = pathlib.Path(name).name.split(".gz")[0].rsplit(".", 1)
            shown = subprocess.run(["man", "--warnings=w", "-M", self.folder.name, number, page],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                                   env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
            self.assertEqual((shown.returncode, shown.stderr), (0, ""), name)
            self.assertIn("SEE ALSO", shown.stdout, name)


if __name__ == "__main__":
    unittest.main()
