#!/usr/bin/env python3
"""Checks the references of the documentation: links, anchors, config keys, options of the plug-ins, metrics and pages.

Needs nothing but the sources. Each check is a function of texts, so that the tests at the end can show that it finds
its errors.
"""

import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)|<img src=\"([^\"]+)\"")
IN_CODE = re.compile(r"\bdocs/[\w/.-]+\.md(?:#[\w-]+)?")
ROW = re.compile(r"^\| `([a-z0-9_.\[\]]+)` \|", re.M)
CODE = re.compile(r"`([^`\n]+)`")
KEY = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+|\[(?:\d+|i|)\])+$")
PATH = re.compile(r"(?:[\w.-]+/)+(?:[\w-]+\.\w+)?|[\w-]+\.(?:hpp|cpp|h|py|md)")
SET = re.compile(r"--set[ =]\"?([a-z0-9_.\[\]]+)=")
METRIC = re.compile(r"\btroupe_[a-z0-9_]+[a-z0-9]\b")

# Written as keys of a config are, and none: options of other programs, and names of modules and files.
FOREIGN = ("lmcache.mp.", "lmcache.integration.", "lmcache.v1.")
# Files of Linux's control groups.
CONTROL_GROUP = {"memory.max", "memory.high", "memory.current", "memory.limit_in_bytes"}
# Names of CAF's threads.
THREADS = {"caf.actor", "caf.clock", "caf.multiplexer"}
FILE_ENDINGS = (".json", ".jsonl", ".md", ".yml", ".py", ".pem", ".key", ".csr", ".so", ".cpp", ".hpp", ".sock",
                ".slab", ".log", ".svg", ".service", ".html", ".js", ".css", ".sh", ".txt")
IGNORED = {"build", "data", "dist", ".git", ".cache", "__pycache__"}
# Names that metrics are made of, or that are no metrics.
NO_METRIC = {"troupe_capi", "troupe_client", "troupe_node", "troupe_node_states", "troupe_node_files",
             "troupe_client_states", "troupe_add_library", "troupe_page", "troupe_io"}


def slug(heading):
    """The anchor that GitHub gives to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    text = re.sub(r"[^\w\- ]", "", text)
    return text.replace(" ", "-")


def without_blocks(text):
    """The text, with blocks of code made empty."""
    out, fenced = [], False
    for line in text.split("\n"):
        if re.match(r"^ *```", line):
            fenced = not fenced
            out.append("")
        else:
            out.append("" if fenced else line)
    return "\n".join(out)


def anchors(text):
    seen, out = {}, set()
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", without_blocks(text), re.M):
        name = slug(heading.replace("`", ""))
        count = seen.get(name, 0)
        seen[name] = count + 1
        out.add(f"{name}-{count}" if count else name)
    out.update(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    return out


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def wrong_links(name, text, files, anchors_of):
    """Dead links of a page. `files` are all paths of the tree, `anchors_of` gives those of a page."""
    out, plain = [], without_blocks(text)
    for m in LINK.finditer(plain):
        target = m[1] or m[2]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        where = name
        if path:
            parts = [x for x in pathlib.PurePosixPath(name).parent.parts]
            for part in pathlib.PurePosixPath(path).parts:
                if part == "..":
                    parts = parts[:-1]
                elif part != ".":
                    parts.append(part)
            where = "/".join(parts)
        here = f"{name}:{line_of(plain, m.start())}"
        if where not in files and not any(x.startswith(where + "/") for x in files):
            out.append(f"{here}: there is no {where}")
        elif anchor and anchor not in anchors_of(where):
            out.append(f"{here}: {where} has no heading for #{anchor}")
    return out


def wrong_names_of_pages(name, text, files, anchors_of):
    """`docs/….md#anchor` in code, configs and packages."""
    out = []
    for m in IN_CODE.finditer(text):
        path, _, anchor = m[0].partition("#")
        if path not in files:
            out.append(f"{name}:{line_of(text, m.start())}: there is no {path}")
        elif anchor and anchor not in anchors_of(path):
            out.append(f"{name}:{line_of(text, m.start())}: {path} has no heading for #{anchor}")
    return out


def keys_of(reference):
    """All keys of docs/configuration.md, as `a.b[i].c`."""
    return set(ROW.findall(reference))


def is_key(text, keys):
    """Whether that is a key, the beginning of one, or one relative to its group (`ranks[i].directory`)."""
    general = re.sub(r"\[\d*\]", "[i]", text)
    return any(x == general or x.startswith((general + ".", general + "[")) for x in keys)


def wrong_keys(name, text, keys):
    """Config keys that a page names and the reference does not have."""
    groups = {x.split(".")[0].split("[")[0] for x in keys if "." in x or "[" in x}
    found = [(m.start(), m[1]) for m in CODE.finditer(without_blocks(text))
             if KEY.match(m[1]) and m[1].split(".")[0].split("[")[0] in groups]
    found += [(m.start(), m[1]) for m in SET.finditer(text)]
    return [f"{name}:{line_of(text, at)}: there is no config key {word}" for at, word in found
            if not word.startswith(FOREIGN) and not word.endswith(FILE_ENDINGS)
            and word not in CONTROL_GROUP | THREADS and not is_key(word, keys)]


def paths_of(value, before=""):
    """All paths of a config to its values."""
    if isinstance(value, dict):
        return [x for key, inner in value.items() for x in paths_of(inner, f"{before}.{key}" if before else key)]
    if isinstance(value, list) and any(isinstance(x, dict) for x in value):
        return [x for inner in value for x in paths_of(inner, f"{before}[i]")]
    return [before]


def wrong_config_blocks(name, text, keys):
    """Keys that examples of configs have and the reference does not. An example is a block of JSON, or members of one,
    with only names of the config at its top."""
    top = {x.split(".")[0].split("[")[0] for x in keys}
    out = []
    for m in re.finditer(r"^```jsonc?\n(.*?)^```", text, re.M | re.S):
        # Without comments, and commas before them.
        plain = re.sub(r",(\s*[}\]])", r"\1", re.sub(r"(^|\s)//[^\n]*", r"\1", m[1]))
        try:
            value = json.loads(plain if plain.lstrip().startswith("{") else "{" + plain + "}")
        except json.JSONDecodeError:
            continue
        inner = {"etcd": "cluster.etcd", "kv_cache": "namespaces[i].kv_cache"}
        if isinstance(value, dict) and len(value) == 1 and (first := next(iter(value))) in inner:
            paths = paths_of(value[first], inner[first])
        elif isinstance(value, dict) and value and set(value) <= top:
            paths = paths_of(value)
        else:
            continue
        out += [f"{name}:{line_of(text, m.start())}: an example has {x}, and there is no such config key"
                for x in paths if not is_key(x, keys)]
    return out


def wrong_options(name, text, options):
    """Options of the plug-ins that a page names and neither docs/vllm.md nor docs/handshake.md has in a table."""
    return [f"{name}:{line_of(text, m.start())}: the plug-ins have no option {m[1]}"
            for m in re.finditer(r"[`\"](troupe\.[a-z_]+)[`\"]", text)
            if m[1] not in options and m[1] not in ("troupe.json", "troupe.sock", "troupe.service", "troupe.h",
                                                    "troupe.vllm", "troupe.sglang", "troupe.nixl", "troupe.hpp",
                                                    "troupe.sglang_linker", "troupe.request", "troupe.lookup",
                                                    "troupe.fetch", "troupe.wait", "troupe.save")]


def wrong_metrics(name, text, code):
    """Metrics that a page names and no source has. Names are whole there, but for what histograms and scrapers add."""
    out = []
    for m in METRIC.finditer(text):
        base = re.sub(r"_(bucket|sum|count)$", "", m[0])
        if m[0] in NO_METRIC or text[m.end():m.end() + 1] in ("(", "*"):
            continue
        if not any(x in code for x in (m[0], base, base.removesuffix("_total"), base.removeprefix("troupe_"),
                                       base.removeprefix("troupe_").removesuffix("_total"))):
            out.append(f"{name}:{line_of(text, m.start())}: nothing has a metric {m[0]}")
    return out


def wrong_paths(name, text, files):
    """Paths in the page of a folder that are neither in it nor in the root, and names that no file has."""
    folder = name.rsplit("/", 1)[0]
    paths = [pathlib.PurePath(x) for x in files]
    known = files | {x.name for x in paths} | {f"{up}/" for x in paths for up in x.parents}
    return [f"{name}: there is no {path}" for path in CODE.findall(without_blocks(text))
            if PATH.fullmatch(path) and path not in known and f"{folder}/{path}" not in known]


def unreachable(start, pages, links_of):
    """Pages to which no link leads from the first one."""
    seen, left = set(), [start]
    while left:
        page = left.pop()
        if page in pages and page not in seen:
            seen.add(page)
            left += links_of(page)
    return sorted(set(pages) - seen)


def wrong_decision(name, text):
    """A decision has its date and status, and a link to what amends or replaces it."""
    status = next((x for x in text.split("\n")[:6] if x.startswith("*Decided ")), None)
    if status is None:
        return [f"{name}: has no line '*Decided YYYY-MM-DD. Status: …*' under its title"]
    if not re.match(r"^\*Decided 20\d\d-\d\d-\d\d\. Status: (in force|in force, amended by .+|superseded by .+|"
                    r"decided, not built|proposed)\.\*$", status):
        return [f"{name}: '{status}' is not '*Decided YYYY-MM-DD. Status: …*' with 'in force', 'in force, amended by "
                "[NNNN](…)', 'superseded by [NNNN](…)', 'decided, not built' or 'proposed'"]
    if (" by " in status) and not re.search(r"\(\d{4}-[\w-]+\.md\)", status):
        return [f"{name}: does not link to what amends or replaces it"]
    return []


class Tree:
    def __init__(self):
        # A tree without git, as of a source archive, is checked as it lies there.
        self.tracked = self.listed("-c") or [str(x.relative_to(ROOT)) for x in ROOT.rglob("*")
                                             if not IGNORED & set(x.relative_to(ROOT).parts)]
        names = [*self.tracked, *self.listed("-o", "--exclude-standard")]
        self.files = {x for x in names if x and (ROOT / x).is_file()}
        self.pages = {x: (ROOT / x).read_text(encoding="utf-8") for x in self.files if x.endswith(".md")}
        self.found = {}

    @staticmethod
    def listed(*options):
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", *options], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=False)
        return listed.stdout.split("\n")[:-1] if listed.returncode == 0 else []

    def anchors_of(self, page):
        if page not in self.found:
            self.found[page] = anchors(self.pages[page]) if page in self.pages else set()
        return self.found[page]

    def links_of(self, page):
        folder = pathlib.PurePosixPath(page).parent
        out = []
        for m in LINK.finditer(self.pages[page]):
            path = (m[1] or m[2]).partition("#")[0]
            if path.endswith(".md") and ":" not in path:
                parts = []
                for part in (folder / path).parts:
                    parts = parts[:-1] if part == ".." else parts + [part]
                out.append("/".join(parts))
            elif path and ":" not in path:
                # A link to a folder leads to what is in it.
                parts = []
                for part in (folder / path).parts:
                    parts = parts[:-1] if part == ".." else parts + [part]
                out += [x for x in self.pages if x.startswith("/".join(parts) + "/")]
        return out

    def sources(self):
        return {x: (ROOT / x).read_text(encoding="utf-8", errors="replace") for x in self.files
                if not x.endswith((".md", ".png", ".gz", ".svg"))
                and not x.startswith(("fuzz/corpus/", "tests/fixtures/"))
                and (ROOT / x).stat().st_size < 1_000_000}


class Documentation(unittest.TestCase):
    """Checks of the tree itself."""

    @classmethod
    def setUpClass(cls):
        cls.tree = Tree()
        cls.keys = keys_of(cls.tree.pages["docs/configuration.md"])
        cls.current = {name: text for name, text in cls.tree.pages.items() if name != "CHANGELOG.md"}

    def check_none(self, wrong):
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_links_lead_somewhere(self):
        self.check_none([x for name, text in sorted(self.tree.pages.items())
                         for x in wrong_links(name, text, self.tree.files, self.tree.anchors_of)])

    def test_pages_that_code_names_are_there(self):
        # This file has some that are not, to show that they are found.
        self.check_none([x for name, text in sorted(self.tree.sources().items())
                         if name != "tests/documentation/references_test.py"
                         for x in wrong_names_of_pages(name, text, self.tree.files, self.tree.anchors_of)])

    def test_every_page_is_found_from_the_first_one(self):
        pages = [x for x in self.tree.pages if x.startswith("docs/")]
        self.check_none(unreachable("README.md", [*pages, "README.md", "CONTRIBUTING.md"], self.tree.links_of))

    def test_every_top_folder_has_a_page(self):
        folders = {x.split("/")[0] for x in self.tree.tracked if "/" in x and not x.startswith(".")}
        self.assertGreater(len(folders), 20)
        self.check_none([f"{x} has no README.md" for x in sorted(folders) if f"{x}/README.md" not in self.tree.files])

    def test_pages_of_folders_name_paths_that_are_there(self):
        pages = {x: text for x, text in self.tree.pages.items() if re.fullmatch(r"[^/]+/README\.md", x)}
        self.assertGreater(len(pages), 20)
        self.check_none([x for name, text in sorted(pages.items()) for x in wrong_paths(name, text, self.tree.files)])

    def test_decisions_have_date_and_status(self):
        decisions = {x: text for x, text in self.tree.pages.items() if x.startswith("docs/decisions/0")}
        self.assertGreater(len(decisions), 20)
        self.check_none([x for name, text in sorted(decisions.items()) for x in wrong_decision(name, text)])

    def test_config_keys_exist(self):
        self.assertGreater(len(self.keys), 100)
        self.check_none([x for name, text in sorted(self.current.items()) for x in wrong_keys(name, text, self.keys)])
        self.check_none([x for name, text in sorted(self.current.items())
                         for x in wrong_config_blocks(name, text, self.keys)])

    def test_options_of_the_plug_ins_exist(self):
        rows = re.findall(r"^\| (`troupe\.[^|]*) \|", "\n".join(self.tree.pages[x] for x in
                                                               ("docs/vllm.md", "docs/handshake.md")), re.M)
        options = set(re.findall(r"`(troupe\.[a-z_]+)`", "\n".join(rows)))
        self.assertGreater(len(options), 15)
        self.check_none([x for name, text in sorted(self.current.items()) for x in wrong_options(name, text, options)])

    def test_metrics_exist(self):
        code = "\n".join(text for name, text in self.tree.sources().items()
                         if not name.startswith("tests/documentation"))
        self.check_none([x for name, text in sorted(self.current.items()) for x in wrong_metrics(name, text, code)])


class Checks(unittest.TestCase):
    """Tests that the checks find their errors."""

    def test_anchors(self):
        self.assertEqual(anchors("# A `b` c\n\n## Alert: node down\n\n## A b c\n```\n# no heading\n```\n"),
                         {"a-b-c", "alert-node-down", "a-b-c-1"})

    def test_links(self):
        files, known = {"docs/a.md", "docs/pictures/x.png", "README.md"}, {"there"}
        right = "[x](a.md#there) ![y](pictures/x.png) [z](../README.md) [w](https://q)"
        self.assertEqual(wrong_links("docs/b.md", right, files, lambda _: known), [])
        self.assertEqual(len(wrong_links("docs/b.md", "[x](a.md#not-there)\n[y](c.md)\n[z](../a.md)", files,
                                         lambda _: known)), 3)
        self.assertEqual(wrong_links("docs/a.md", "[x](#there)", files, lambda _: known), [])
        self.assertEqual(wrong_links("docs/a.md", "\n[x](#gone)", files, lambda _: known),
                         ["docs/a.md:2: docs/a.md has no heading for #gone"])

    def test_paths_of_folders(self):
        files = {"a/b/c.hpp", "d/e.py"}
        right = "`b/`, `b/c.hpp`, `a/b/`, `d/e.py`, `e.py`, `NAME_state`, `/v1/x`, `--f`, `a.b/c`\n```\nx/y/\n```\n"
        self.assertEqual(wrong_paths("a/README.md", right, files), [])
        self.assertEqual(wrong_paths("a/README.md", "`wire/` and `b/d.hpp`, `x.cpp`", files),
                         ["a/README.md: there is no wire/", "a/README.md: there is no b/d.hpp",
                          "a/README.md: there is no x.cpp"])

    def test_pages_that_code_names(self):
        files = {"docs/a.md"}
        self.assertEqual(wrong_names_of_pages("x.cpp", "// docs/a.md, docs/a.md#one.", files, lambda _: {"one"}), [])
        self.assertEqual(len(wrong_names_of_pages("x.cpp", "docs/b.md docs/a.md#two", files, lambda _: {"one"})), 2)

    def test_keys(self):
        keys = {"memory.bytes", "storage.ranks[i].slab_bytes", "actors.tls.ca", "log_level"}
        right = "`memory.bytes` `storage.ranks` `storage.ranks[0].slab_bytes` `actors.tls` `a.md` --set log_level=x"
        self.assertEqual(wrong_keys("a.md", right, keys), [])
        wrong = "`memory.byte`\n`storage.ranks[i].bytes`\n--set memory.size=1"
        self.assertEqual(len(wrong_keys("a.md", wrong, keys)), 3)

    def test_examples_of_configs(self):
        keys = {"memory.bytes", "storage.ranks[i].slab_bytes", "node_name"}
        block = '```jsonc\n{ "node_name": "a", // a name\n  "storage": {"ranks": [{"%s": 1}]} }\n```\n'
        answer = '```json\n{"status": "ok"}\n```\n'
        self.assertEqual(wrong_config_blocks("a.md", block % "slab_bytes" + answer, keys), [])
        self.assertEqual(len(wrong_config_blocks("a.md", block % "bytes" + '```json\n"memory": {"size": 1}\n```\n',
                                                 keys)), 2)

    def test_options(self):
        self.assertEqual(wrong_options("a.md", '`troupe.salt` "troupe.vllm"', {"troupe.salt"}), [])
        self.assertEqual(len(wrong_options("a.md", '`troupe.salts` "troupe.pepper"', {"troupe.salt"})), 2)

    def test_metrics(self):
        code = '"troupe_hits_total", histogram("troupe_load_seconds")'
        self.assertEqual(wrong_metrics("a.md", "troupe_hits_total troupe_load_seconds_bucket", code), [])
        self.assertEqual(len(wrong_metrics("a.md", "troupe_misses_total", code)), 1)

    def test_decisions(self):
        for status in ("in force", "superseded by [0002](0002-other.md)", "in force, amended by [0002](0002-other.md)"):
            self.assertEqual(wrong_decision("a.md", f"# A\n\n*Decided 2026-11-21. Status: {status}.*\n"), [])
        for line in ("**Question.**", "*Decided 2026-11-21. Status: fine.*", "*Decided today. Status: in force.*",
                     "*Decided 2026-11-21. Status: superseded by 0002.*"):
            self.assertEqual(len(wrong_decision("a.md", f"# A\n\n{line}\n")), 1)

    def test_pages_that_nothing_leads_to(self):
        links = {"README.md": ["docs/a.md"], "docs/a.md": []}
        self.assertEqual(unreachable("README.md", ["README.md", "docs/a.md", "docs/b.md"], lambda x: links.get(x, [])),
                         ["docs/b.md"])


if __name__ == "__main__":
    sys.exit(unittest.main())
