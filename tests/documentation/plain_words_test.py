#!/usr/bin/env python3
"""Words that must not come back: in identifiers and file names of the sources, in comments, strings and pages.

docs/STYLE.md says what to write instead. What is left is counted in plain_words_allowed.json; a number there may only
shrink, and the test says when it can.
"""

import json
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALLOWED = pathlib.Path(__file__).with_name("plain_words_allowed.json")
CODE = (".hpp", ".cpp", ".h", ".cu", ".cuh", ".js", ".py")
PAGES = (".md", ".html", ".css", ".json", ".yml", ".sh", ".txt")
# Formats of others, what was recorded, and the list of these words itself.
SKIPPED = ("tests/fixtures/", "fuzz/corpus/", "traces/", "docs/STYLE.md", "tests/documentation/plain_words")

# Components of identifiers and of file names.
IDENTIFIERS = ("nobody", "nobodys", "whoever", "somebody", "anybody", "everybody", "told", "untold", "tie", "ties",
               "bringing", "brings", "departed", "shortcoming", "shortcomings", "lent", "lend", "lends", "lending",
               "borrow", "borrows", "borrowed", "borrower", "scribbled", "shelf", "desk", "entrance", "door", "doors",
               "greet", "greets", "greeted", "guest", "guests", "passing_memory", "passing_copier", "at_rest",
               "give_up", "given_up", "gives_up", "gave_up", "wind_clock", "conductor", "space", "spaces")
# In comments, strings and pages.
BE = "(?:is|are|was|were)"
TEXTS = re.compile(rf"\b(nobody|whoever|somebody|anybody|everybody|{BE} told|hears of|heard of|asked who|at rest|"
                   rf"comes? to rest|(?:{BE}|be|been|has|have|had) gone|departed|g[ai]ve(?:s|n)? up|giving up|"
                   rf"{BE} away|{BE} over|memory wanders|scribbled|shortcomings?|lent|lends?|borrow(?:s|ed|ing|ers?)?|"
                   r"doors?|door ?man|greet(?:s|ed)?|guests?|proven with|how a node is|wire of|"
                   r"(?:LMCache|HF3FS|SGLang|vLLM)'s wire|as ever|the pace of)\b", re.IGNORECASE)

CPP = re.compile(r"(?P<include>^[ \t]*#[ \t]*include[^\n]*)|(?P<text>//[^\n]*|/\*.*?\*/)|"
                 r"(?P<raw>R\"(?P<end>\w*)\(.*?\)(?P=end)\")|"
                 r"(?P<string>\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+')", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"(?P<string>[rbfu]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"
                    r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'))|(?P<text>\#[^\n]*)", re.DOTALL)
# Names of the language, of libraries, of the disk, of the set of keys, and of a message's type.
FOREIGN = re.compile(r"(?:std|fs|filesystem)::(?:tie|space)\b|tie_word_embeddings|\bno_space\b|\bkey_spaces?\w*|"
                     r"\b(?:give|take|least)_space\w*|CMSG_SPACE|TROUPE_NO_SPACE|\blend_atom\w*")
# The end of a line and the mark of a comment on the next one.
LINE_END = re.compile(r"[ \t]*\n[ \t]*(?:///?|\*|#)?[ \t]*")


def split(name, text):
    """The code of a source without comments and strings, and these."""
    pattern = PYTHON if name.endswith(".py") else CPP
    texts = [m.group() for m in pattern.finditer(text) if m.lastgroup != "include"]
    return pattern.sub(" ", text), "\n".join(texts)


def words_in(identifier):
    """The banned components of an identifier."""
    parts = "_" + identifier.strip("_").lower() + "_"
    return [word for word in IDENTIFIERS if f"_{word}_" in parts]


def found_in(name, text):
    """How often each banned word is in a file: {"word": count}."""
    counts = {}

    def count(word):
        counts[word] = counts.get(word, 0) + 1

    for part in pathlib.PurePath(name).parts:
        for word in words_in(re.sub(r"\W+", "_", part)):
            count(f"file:{word}")
    texts = text
    if name.endswith(CODE):
        code, texts = split(name, text)
        for identifier in re.findall(r"[A-Za-z_]\w*", FOREIGN.sub(" ", code)):
            for word in words_in(identifier):
                count(f"name:{word}")
    for match in TEXTS.finditer(LINE_END.sub(" ", texts)):
        count(f"text:{match[1].lower()}")
    return counts


def all_files():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False).stdout
    for name in names.split("\n"):
        if name.endswith(CODE + PAGES) and not name.startswith(SKIPPED) and (ROOT / name).is_file():
            yield name, (ROOT / name).read_text(encoding="utf-8", errors="replace")


def compare(found, allowed):
    """What is wrong, as sentences."""
    out = []
    for name in sorted(set(found) | set(allowed)):
        for word in sorted(set(found.get(name, {})) | set(allowed.get(name, {}))):
            is_there, may = found.get(name, {}).get(word, 0), allowed.get(name, {}).get(word, 0)
            if is_there > may:
                out.append(f"{name}: {word} is there {is_there} times, {may} are allowed; see docs/STYLE.md")
            elif is_there < may:
                out.append(f"{name}: {word} is there {is_there} times only: lower {may} in {ALLOWED.name}")
    return out


class PlainWords(unittest.TestCase):
    def test_words_do_not_come_back(self):
        files = dict(all_files())
        if not files:
            self.skipTest("no git repository")
        found = {name: counts for name, text in files.items() if (counts := found_in(name, text))}
        self.assertEqual(compare(found, json.loads(ALLOWED.read_text(encoding="utf-8"))), [])

    def test_words_are_found_where_they_count(self):
        self.assertEqual(found_in("a/b.cpp", "int told_ = 0; // A peer is told.\n"),
                         {"name:told": 1, "text:is told": 1})
        self.assertEqual(found_in("a/door_man.hpp", "std::tie(a, b); int key_space = 1;"), {"file:door": 1})
        self.assertEqual(found_in("a.md", "Nobody waits.\n"), {"text:nobody": 1})
        self.assertEqual(found_in("a.md", "A peer is notified.\n"), {})
        self.assertEqual(found_in("a.md", "A peer is told.\nNobody listens.\n| x | whoever |\n"),
                         {"text:is told": 1, "text:nobody": 1, "text:whoever": 1})
        self.assertEqual(found_in("a.cpp", "/// The client has\n/// gone.\nvoid lend();\n"),
                         {"name:lend": 1, "text:has gone": 1})
        self.assertEqual(found_in("a.md", "The lease is over. A client gives up.\n"),
                         {"text:gives up": 1, "text:is over": 1})
        self.assertEqual(found_in("a.py", "notified = 1  # all is well\n"), {})
        self.assertEqual(found_in("a.cpp", 'f("space"); ns space;'), {"name:space": 1})

    def test_numbers_may_only_shrink(self):
        self.assertEqual(compare({"a": {"w": 2}}, {"a": {"w": 2}}), [])
        self.assertIn("2 times, 1 are allowed", compare({"a": {"w": 2}}, {"a": {"w": 1}})[0])
        self.assertIn("lower 3", compare({"a": {"w": 2}}, {"a": {"w": 3}})[0])


if __name__ == "__main__":
    unittest.main()
