"""scripts/package with stand-ins for cmake, cpack and lintian: how it builds, what it changes in packages, and when it
fails."""

import hashlib
import shutil
import subprocess
import unittest

from copied_scripts import SUCCEEDS, CopiedScripts

# Notes its arguments. Configuring keeps the flags of the compiler; building compiles a small program with them.
CMAKE = """#!/usr/bin/env python3
import json, pathlib, shlex, subprocess, sys
here, arguments = pathlib.Path(__file__).parent, sys.argv[1:]
with (here / "seen").open("a") as seen:
    seen.write(json.dumps(arguments) + "\\n")
build = pathlib.Path.cwd() / "build" / "package"
if "--preset" in arguments:
    build.mkdir(parents=True, exist_ok=True)
    (here / "flags").write_text(json.dumps([x.partition("=")[2] for x in arguments if x.startswith("CMAKE_")]))
if "--build" in arguments:
    flags = [y for x in json.loads((here / "flags").read_text()) for y in shlex.split(x)]
    source = here / "tiny.cpp"
    build = pathlib.Path(arguments[arguments.index("--build") + 1])
    for name, more in (("troupe", []), ("libtroupe.so", ["-shared", "-fPIC"])):
        subprocess.run(["g++", "-O2", *flags, *more, source, "-o", build / name], check=True)
"""
TINY = """#include <cstdio>
#include <cstring>
int main(int n, char** words) {
  char text[16];
  std::strcpy(text, words[n - 1]);
  return std::printf("%s\\n", text);
}
"""
# Makes packages like those of CPack, with a file that is as old as now.
CPACK = """#!/usr/bin/env bash
set -e
[[ $1 == -G && $2 == DEB && $3 == -B ]]
for name in troupe libtroupe1 libtroupe-dev; do
  folder=$(mktemp -d)
  mkdir -p "$folder/DEBIAN" "$folder/usr/share/$name"
  echo content >"$folder/usr/share/$name/file"
  printf 'Package: %s\\nVersion: 1.0\\nArchitecture: amd64\\nMaintainer: A <a@b.c>\\nDescription: x\\n' "$name" \\
    >"$folder/DEBIAN/control"
  for script in postinst postrm; do
    printf '#!/bin/sh\\nldconfig\\n' >"$folder/DEBIAN/$script"
    chmod 755 "$folder/DEBIAN/$script"
  done
  mkdir -p "$4"
  dpkg-deb -Znone -b "$folder" "$4/${name}_1.0_amd64.deb" >/dev/null
  rm -rf "$folder"
done
echo "epoch ${SOURCE_DATE_EPOCH-}" >"$(dirname "$0")/epoch"
"""
LINTIAN = """#!/bin/sh
echo "$@" >"$(dirname "$0")/lintian-arguments"
exit "${LINTIAN_CODE:-0}"
"""
NEEDED = ("dpkg-deb", "dpkg-buildflags", "dpkg-shlibdeps", "g++", "readelf", "git")
MISSING = [x for x in NEEDED if not shutil.which(x)]


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}")
class Package(CopiedScripts):
    def setUp(self):
        super().setUp()
        self.copy("scripts/package", "scripts/common.sh", "CHANGELOG.md")
        self.program("scripts/bootstrap", SUCCEEDS)
        self.program("bin/cmake", CMAKE)
        self.program("bin/cpack", CPACK)
        self.program("bin/lintian", LINTIAN)
        self.program("bin/tiny.cpp", TINY)

    def package(self, *arguments, **environment):
        return self.run_script("package", *arguments, self.root / "dist", **environment)

    def digests(self):
        return {x.name: hashlib.sha256(x.read_bytes()).hexdigest() for x in (self.root / "dist").glob("*.deb")}

    def field(self, package, name):
        return subprocess.run(["dpkg-deb", "--field", self.root / "dist" / f"{package}_1.0_amd64.deb", name],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def control_files(self, package):
        made = subprocess.run(["dpkg-deb", "--info", self.root / "dist" / f"{package}_1.0_amd64.deb"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        return {x for x in ("postinst", "postrm", "control") if f" {x} " in made or f" {x}\n" in made}

    def test_packages_are_built_hardened_in_a_folder_of_their_own(self):
        done = self.package()
        self.assertEqual(done.returncode, 0, done.stdout)
        seen = (self.root / "bin" / "seen").read_text()
        self.assertIn(str(self.root / "build" / "package"), seen)
        self.assertNotIn("build/release", seen)
        # The preset decides on optimisation.
        self.assertNotIn(" -O2", (self.root / "bin" / "flags").read_text())

    def test_a_program_without_a_flag_is_refused(self):
        for left_out, part in (("CPPFLAGS", "_chk@"), ("LDFLAGS", "BIND_NOW"), ("CXXFLAGS", "__stack_chk_fail")):
            # A compiler may have some of them on by default.
            off = {"CPPFLAGS": "-U_FORTIFY_SOURCE", "LDFLAGS": "-Wl,-z,lazy", "CXXFLAGS": "-fno-stack-protector"}
            self.program("bin/dpkg-buildflags", f"#!/bin/sh\n[ $2 = {left_out} ] && echo '{off[left_out]}' && exit\n"
                                                f"exec {shutil.which('dpkg-buildflags')} \"$@\"\n")
            done = self.package()
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("build/package/troupe is not hardened", done.stdout)
            self.assertIn(part, done.stdout)
        self.assertEqual(self.digests(), {})

    def test_an_existing_build_is_used_as_it_is(self):
        (self.root / "build" / "other").mkdir(parents=True)
        done = self.package("--build", self.root / "build" / "other")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("--preset", (self.root / "bin" / "seen").read_text())
        self.assertEqual(len(self.digests()), 3)

    def test_fields_and_scripts_that_cpack_does_not_write(self):
        done = self.package()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([self.field(x, "Multi-Arch") for x in ("troupe", "libtroupe1", "libtroupe-dev")],
                         ["foreign", "same", "same"])
        self.assertEqual(self.control_files("libtroupe1"), {"control"})
        self.assertEqual(self.control_files("troupe"), {"control", "postinst", "postrm"})

    def test_warnings_of_lintian_fail(self):
        self.assertEqual(self.package().returncode, 0)
        self.assertIn("--fail-on error,warning", (self.root / "bin" / "lintian-arguments").read_text())
        done = self.package(LINTIAN_CODE="2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("lintian found errors or warnings", done.stdout)

    def test_the_same_date_makes_the_same_packages(self):
        self.assertEqual(self.package(SOURCE_DATE_EPOCH="86400").returncode, 0)
        first = self.digests()
        self.assertEqual(self.package(SOURCE_DATE_EPOCH="86400").returncode, 0)
        self.assertEqual(self.digests(), first)
        listed = subprocess.run(["dpkg-deb", "-c", self.root / "dist" / "troupe_1.0_amd64.deb"], stdout=subprocess.PIPE,
                                text=True, check=True, env={"TZ": "UTC", "PATH": "/usr/bin:/bin"}).stdout
        self.assertIn("1970-01-02 00:00 ./usr/share/troupe/file", listed)
        self.assertEqual((self.root / "bin" / "epoch").read_text(), "epoch 86400\n")

    def test_the_date_is_that_of_the_commit(self):
        for command in (["init", "-q"], ["add", "CHANGELOG.md"], ["commit", "-q", "-m", "x"]):
            subprocess.run(["git", "-C", self.root, *command], check=True, stdin=subprocess.DEVNULL, env={
                "PATH": "/usr/bin:/bin", "HOME": str(self.root), "GIT_COMMITTER_DATE": "@172800 +0000",
                **{f"GIT_{x}_{y}": "a@b.c" for x in ("AUTHOR", "COMMITTER") for y in ("NAME", "EMAIL")}})
        self.assertEqual(self.package(SOURCE_DATE_EPOCH="").returncode, 0)
        self.assertEqual((self.root / "bin" / "epoch").read_text(), "epoch 172800\n")


if __name__ == "__main__":
    unittest.main()
