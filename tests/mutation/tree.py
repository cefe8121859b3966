"""The copy of the project with the mistakes in it, and its build."""

import json
import os
import pathlib
import re
import subprocess

from sites import write

HEADER = "troupe_mutants.hpp"
# Warnings about what a mistake looks like are no reason to leave it out where warnings are errors.
HEADER_TEXT = r"""// Part of a copy of the sources, see tests/mutation/tree.py.
#pragma once
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace troupe_mutants {
inline constexpr int numbers_end = 100'000;

inline int chosen_number() noexcept {
  const char* text = std::getenv("TROUPE_MUTANT");
  return text == nullptr ? -1 : std::atoi(text);
}

// A byte for each site, which is set when it is reached; null where nothing is recorded. A file that several processes
// map, because a program may have no descriptor left when it reaches a site.
inline unsigned char* mapped_record() noexcept {
  const char* path = std::getenv("TROUPE_MUTANTS_REACHED");
  const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0)
    return nullptr;
  void* at = MAP_FAILED;
  if (::ftruncate(file, numbers_end) == 0)
    at = ::mmap(nullptr, numbers_end, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return at == MAP_FAILED ? nullptr : static_cast<unsigned char*>(at);
}

inline bool at(int number) noexcept {
  static const int chosen = chosen_number();
  static unsigned char* const record = mapped_record();
  if (record != nullptr && number >= 0 && number < numbers_end)
    std::atomic_ref<unsigned char>(record[number]).store(1, std::memory_order_relaxed);
  return number == chosen;
}

// When the program begins.
inline const bool ready = at(0);
} // namespace troupe_mutants
"""
IGNORED = ("sign-conversion", "conversion", "narrowing", "sign-compare", "parentheses", "type-limits", "unused-value",
           "int-in-bool-context", "bool-compare", "extra", "logical-op", "maybe-uninitialized", "array-bounds",
           "stringop-overflow", "stringop-overread", "unused-but-set-variable", "unused-variable", "unused-parameter",
           "unused-function", "dangling-reference", "nonnull", "overflow", "null-dereference", "restrict")
PRAGMAS = "".join(f'#pragma GCC diagnostic ignored "-W{each}"\n' for each in ("pragmas", *IGNORED))
# Names of files in the copy's objects are those of the original (asserts and tests have them), so that what no mistake
# changes comes out of the compiler's cache where the original was built with the same preset.
RENAMED = "-fmacro-prefix-map="
ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: ", re.MULTILINE)
ROUNDS = 12


class BuildFailed(Exception):
    pass


def files_of(root):
    """What a commit of everything would have."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    return sorted({name for name in names.decode().split("\0") if name and (root / name).is_file()})


class Tree:
    """A copy of `root` in `place`, of which only what changed is written, so that a build takes little."""

    def __init__(self, root, place, preset, definitions):
        self.root, self.place = root, place
        self.build = place / "build" / "release"
        self.preset, self.definitions = preset, definitions
        self.jobs = 1

    def put(self, name, content, mode=0o644):
        path = self.place / name
        if path.is_file() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    def copy(self, sites):
        """Brings the copy up to date, with the numbered sites in it."""
        names, by_path = files_of(self.root), {}
        for number, site in sites.items():
            by_path.setdefault(site.path, []).append((number, site))
        for name in names:
            content = (self.root / name).read_bytes()
            if name in by_path:
                content = write(content.decode(), by_path[name], HEADER).encode()
            self.put(name, content, (self.root / name).stat().st_mode & 0o777)
        self.put(HEADER, (PRAGMAS + HEADER_TEXT).encode())
        kept = set(names) | {HEADER}
        for folder, folders, files in os.walk(self.place):
            folder = pathlib.Path(folder)
            if folder == self.place and "build" in folders:
                folders.remove("build")
            for each in files:
                if (folder / each).relative_to(self.place).as_posix() not in kept:
                    (folder / each).unlink()

    def configure(self):
        flags = f"{os.environ.get('CXXFLAGS', '')} {RENAMED}{self.place}={self.root}".strip()
        command = ["cmake", "--preset", self.preset, "-B", self.build, "-D", "TROUPE_BENCHMARKS=OFF",
                   "-D", f"CMAKE_CXX_FLAGS={flags}",
                   *(part for each in self.definitions for part in ("-D", each))]
        done = subprocess.run(command, cwd=self.place, text=True, check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise BuildFailed(f"{done.stdout}configuring the copy failed; the lines above say why")

    def compile(self, targets, log):
        """Builds: "" on success, else what the compilers say."""
        command = ["cmake", "--build", self.build, "--parallel", str(self.jobs), "--target", *targets, "--", "-k", "0"]
        with open(log, "w", encoding="utf-8") as file:
            code = subprocess.run(command, cwd=self.place, check=False, stdin=subprocess.DEVNULL, stdout=file,
                                  stderr=subprocess.STDOUT,
                                  env={**os.environ, "CCACHE_IGNOREOPTIONS": RENAMED + "*"}).returncode
        return "" if code == 0 else log.read_text(encoding="utf-8", errors="replace")

    def blamed(self, output, sites):
        """The numbers of the sites that the errors of compilers are about."""
        out = set()
        for match in ERROR.finditer(output):
            path = pathlib.Path(os.path.normpath(self.build / match["file"]))
            if not path.is_relative_to(self.place):
                continue
            name, line = path.relative_to(self.place).as_posix(), int(match["line"])
            near = {number: site for number, site in sites.items() if site.path == name}
            on_line = [number for number, site in near.items() if site.first_line <= line <= site.last_line]
            # The compiler may find out some lines later: the last one before that.
            before = sorted((site.last_line, number) for number, site in near.items() if site.last_line < line)
            out.update(on_line or [number for _, number in before[-1:]])
        return out

    def build_with(self, sites, targets, log, say):
        """Builds the copy without those sites that do not compile: the sites that are left."""
        sites = dict(sites)
        self.place.mkdir(parents=True, exist_ok=True)
        for attempt in range(ROUNDS):
            self.copy(sites)
            if attempt == 0:
                self.configure()
            output = self.compile(targets, log)
            if not output:
                return sites
            wrong = self.blamed(output, sites)
            if not wrong:
                break
            say(f"{len(wrong)} sites do not compile and are left out")
            for number in wrong:
                del sites[number]
        raise BuildFailed(f"the copy does not build; the compilers' output: {log}")


def save(path, content):
    """A whole file or none, as a run may be interrupted."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def load(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
