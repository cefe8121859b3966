"""Completion for bash, zsh and fish, as packaging/make-completion prints it."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)

# Prints what is completed for words, of which the last is the one at the cursor.
BASH = """source "$1"; shift
COMP_WORDS=(troupe "$@"); COMP_CWORD=$#; _troupe
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Stands for the completion system of zsh: prints what the function hands to it.
ZSH = """emulate zsh; file=$1; shift
compdef() { :; }
_describe() { print -l -- "${(@P)2}" }
_arguments() { print -l -- "$@" }
_files() { print files }
compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@" }
words=(troupe "$@"); CURRENT=$(($# + 1))
source $file
"""
FISH = 'source $argv[1]; complete -C "troupe $argv[2]"'


def made(shell):
    return subprocess.run([ROOT / "packaging" / "make-completion", PROGRAM, shell], stdout=subprocess.PIPE, text=True,
                          check=True).stdout


class Completion(unittest.TestCase):
    shell = ""

    @classmethod
    def setUpClass(cls):
        if not cls.shell:
            raise unittest.SkipTest("has no shell of its own")
        if not shutil.which(cls.shell):
            raise unittest.SkipTest(f"there is no {cls.shell}")
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-completion-")
        cls.file = pathlib.Path(cls.folder.name) / "completion"
        cls.file.write_text(made(cls.shell), encoding="utf-8")
        cls.empty = pathlib.Path(cls.folder.name) / "empty"
        cls.empty.mkdir()
        (cls.empty / "node.sock").touch()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def ask(self, *command):
        x = subprocess.run(command, cwd=self.empty, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           check=False, timeout=60, env={"PATH": "/usr/bin:/bin", "HOME": str(self.empty)})
        self.assertEqual((x.returncode, x.stderr), (0, ""))
        return [line for line in x.stdout.split("\n") if line]


class Bash(Completion):
    shell = "bash"

    def complete(self, *words):
        return self.ask("bash", "--norc", "-c", BASH, "bash", self.file, *words)

    def test_commands_and_topics(self):
        first = self.complete("")
        for word in ("help", "serve", "replay", "check-config", "whatif", "check-slabs", "explain", "--version"):
            self.assertIn(word, first)
        self.assertEqual(self.complete("help", "check-s"), ["check-slabs"])
        self.assertEqual(self.complete("help", "conf"), ["configuration"])
        self.assertEqual(self.complete("help", "topi"), ["topics"])
        self.assertEqual(self.complete("cluster", "st"), ["status"])
        self.assertEqual(self.complete("cluster", "--json", ""), ["status"])

    def test_options(self):
        self.assertEqual(self.complete("replay", "--tr"), ["--trace", "--transfer-only"])
        self.assertIn("--capacity", self.complete("whatif", "--"))

    def test_files(self):
        for words in (("status", "no"), ("top", "--plain", ""), ("check-config", "n"), ("status", "--ca", "node.s")):
            self.assertEqual(self.complete(*words), ["node.sock"])
        self.assertEqual(self.complete("top", "--interval", "n"), [])

    def test_values(self):
        self.assertEqual(self.complete("replay", "--device", "c"), ["cuda"])
        self.assertEqual(self.complete("whatif", "--policy", ""), ["lru", "s3-fifo", "reuse"])
        self.assertEqual(self.complete("whatif", "--policy", "lru,re"), ["lru,reuse"])

    def test_keys_of_a_config_and_their_values(self):
        self.assertEqual(self.complete("serve", "--set", "http.po"), ["http.port="])
        self.assertIn("storage.ranks[0].slab_bytes=", self.complete("init", "--set", "storage.ra"))
        # The shell makes three words of key=value.
        self.assertEqual(self.complete("serve", "--set", "log.format", "="), ["text", "json"])
        self.assertEqual(self.complete("serve", "--set", "http.enabled", "=", "t"), ["true"])
        self.assertEqual(self.complete("serve", "--set", "node_name", "=", "t"), [])


class Zsh(Completion):
    shell = "zsh"

    def complete(self, *words):
        return self.ask("zsh", "-f", "-c", ZSH, "zsh", self.file, *words)

    def test_commands_and_topics(self):
        first = self.complete("")
        self.assertTrue([x for x in first if x.startswith("serve:Run a node")], first)
        self.assertTrue([x for x in first if x.startswith("version:")], first)
        topics = self.complete("help", "")
        self.assertIn("configuration:Configuration", topics)
        self.assertTrue([x for x in topics if x.startswith("check-slabs:")], topics)

    def test_options_and_values(self):
        replay = self.complete("replay", "--tr")
        self.assertTrue([x for x in replay if x.startswith("--trace[") and x.endswith(":trace:_files")], replay)
        self.assertTrue([x for x in replay if x.startswith("--device[") and x.endswith(":device:(host cuda)")], replay)
        self.assertTrue([x for x in replay if x.startswith("*--set[") and x.endswith(":setting:_troupe_settings")])
        policy = next(x for x in self.complete("whatif", "") if x.startswith("--policy["))
        self.assertTrue(policy.endswith(":_values -s , policy lru s3-fifo reuse"), policy)
        self.assertIn(":what:(status)", self.complete("cluster", ""))
        self.assertIn(":node:_files", self.complete("status", ""))
        self.assertEqual(self.complete("sevre", ""), ["files"])

    def test_keys_of_a_config(self):
        self.file.write_text(made("zsh") + "\n_troupe_settings\n", encoding="utf-8")
        self.addCleanup(self.file.write_text, made("zsh"), encoding="utf-8")
        self.assertIn("storage.ranks[0].slab_bytes", self.complete(""))


class Fish(Completion):
    shell = "fish"

    def complete(self, line):
        return [x.split("\t")[0] for x in self.ask("fish", "--no-config", "-c", FISH, self.file, line)]

    def test_commands_and_topics(self):
        for word in ("help", "serve", "check-slabs", "version"):
            self.assertIn(word, self.complete(""))
        self.assertEqual(self.complete("help conf"), ["configuration"])
        self.assertEqual(self.complete("help check-s"), ["check-slabs"])
        self.assertEqual(self.complete("cluster stat"), ["status"])

    def test_options_values_and_files(self):
        self.assertEqual(self.complete("replay --tr"), ["--trace", "--transfer-only"])
        self.assertEqual(self.complete("replay --device c"), ["cuda"])
        self.assertEqual(self.complete("serve --set http.po"), ["http.port="])
        self.assertEqual(self.complete("status no"), ["node.sock"])
        self.assertEqual(self.complete("status --ca no"), ["node.sock"])
        self.assertEqual(self.complete("top --interval n"), [])


class Generator(unittest.TestCase):
    def test_a_wrong_command_line_ends_with_2(self):
        for arguments in ([], [PROGRAM, "csh"], [PROGRAM, "bash", "zsh"]):
            x = subprocess.run([ROOT / "packaging" / "make-completion", *arguments], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((x.returncode, x.stdout), (2, ""))
            self.assertIn("Usage:", x.stderr)
        x = subprocess.run([ROOT / "packaging" / "make-completion", "--help"], stdout=subprocess.PIPE, text=True,
                           check=False)
        self.assertEqual(x.returncode, 0)
        self.assertIn("Usage:", x.stdout)


if __name__ == "__main__":
    unittest.main()
