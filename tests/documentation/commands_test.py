#!/usr/bin/env python3
"""Runs the commands that the documentation shows, and checks that they end as documented.

Commands are those of blocks marked `sh` or `bash`, and indented lines that begin with the program, a script or curl.
The action for each is in commands.py; a command that is not listed there fails the test, and so does one that is
listed and no longer shown. The commands of a block run in one shell, in a directory that has the configs and traces of
a clone, but for sizes and ports: nodes get 128 MiB in place of gigabytes, and free ports of the loopback interface.
Each block begins with `node.json`, a copy of configs/single-node.json.

Also compares numbers that the text repeats with those of the program.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from commands import EXAMPLES, FILES, ONE_RUN, REASONS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from free_ports import free_ports  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORTS = (18000, 18010, 18001, 18002, 7001, 7002, 7000, 4600, 5555)
INDENTED = re.compile(r"^ {4,}((?:troupe|troupe-simulation|scripts/\S+|build/release/\S+|curl)(?: .*)?)$")
BLOCK_SECONDS = 300

# The kind of a block: `start` runs a node until the next one, or until `stop`. Processes that a block leaves in the
# background have to end on request, too.
PRELUDE = r"""
set -e -u -o pipefail
nodes=()
# Also where a command fails: the next block needs the ports.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
stop() {
  local pid
  for pid in "${nodes[@]}"; do
    kill "$pid" 2>/dev/null || true
    wait "$pid"
  done
  nodes=()
}
start() {
  stop
  # The output of the previous node does not count as that of this one.
  rm -f started.out started.err
  touch started.out
  "$@" > started.out 2> started.err &
  nodes=($!)
  until grep -q '"event":"ready"' started.out; do
    kill -0 $! 2>/dev/null || { cat started.err >&2; wait $!; return 1; }
    sleep 0.05
  done
}
"""
EPILOGUE = r"""
stop
for pid in $(jobs -p); do
  kill "$pid"
  wait "$pid"
done
"""

# Stands for the program: finds the node of this test where an address is left out.
WRAPPER = r"""#!/usr/bin/env bash
arguments=("$@")
case ${1:-} in
serve)
  [[ " $* " == *" --config "* ]] || arguments+=(--set "http.port=$HTTP_PORT")
  arguments+=(--set "memory.bytes=128 MiB")
  ;;
init)
  "$PROGRAM" "$@" | sed "s/18000/$HTTP_PORT/"
  exit "${PIPESTATUS[0]}"
  ;;
status | top | explain) [[ ${2:--} != -* ]] || arguments=("$1" "127.0.0.1:$HTTP_PORT" "${@:2}") ;;
cluster | list-namespaces | remove-namespace)
  [[ " $* " == *" --url "* ]] || arguments+=(--url "http://127.0.0.1:$HTTP_PORT")
  ;;
esac
exec "$PROGRAM" "${arguments[@]}"
"""


def is_whole(text):
    """Whether that is a command, and not the beginning of one."""
    return not text.endswith("\\") and subprocess.run(["bash", "-n", "-c", text], stderr=subprocess.DEVNULL,
                                                      check=False).returncode == 0


def commands_in(lines):
    """The commands of a block, without comments."""
    out, open_text = [], ""
    for line in lines:
        line = re.sub(r"(^|\s)#\s.*$", "", line).rstrip()
        open_text = f"{open_text}\n{line}" if open_text else line.strip()
        if open_text and is_whole(open_text):
            out.append(open_text)
            open_text = ""
    if open_text:
        raise ValueError(f"no whole command: {open_text}")
    return out


def blocks_of(name):
    """The blocks of commands of a page, each with its line."""
    fence, indented, out = None, [], []
    for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").split("\n") + [""], 1):
        mark = re.match(r"^ *```(\w*)$", line)
        if mark and fence is None:
            fence = (mark[1], number, [])
        elif mark:
            kind, begin, lines = fence
            fence = None
            if kind == "bash" or (kind == "sh" and name not in EXAMPLES):
                out.append((begin, commands_in(lines)))
        elif fence is not None:
            fence[2].append(line)
        elif (m := INDENTED.match(line)) or (indented and indented[-1].endswith("\\")):
            indented.append(m[1] if m else line.strip())
        elif indented:
            out.append((number - len(indented), commands_in(indented)))
            indented = []
    return out


def is_meant(listed, text):
    """Whether a listed command is this one; with … at its end, it is its beginning."""
    text = re.sub(r"\s*\\?\n\s*", " ", text)
    return text.startswith(listed[:-1].rstrip()) if listed.endswith("…") else text == listed


class Pages:
    """The pages with the actions for their commands."""

    def __init__(self):
        self.wrong = []
        self.blocks = []
        shown = [str(x.relative_to(ROOT)) for pattern in ("*.md", "*/README.md", "docs/*.md", "docs/decisions/*.md")
                 for x in sorted(ROOT.glob(pattern))]
        shown = list(dict.fromkeys(shown))
        for name in shown:
            left = list(FILES.get(name, []))
            for line, texts in blocks_of(name):
                block = []
                for text in texts:
                    found = next((x for x in left if is_meant(x.text, text)), None)
                    if found is None:
                        self.wrong.append(f"{name}:{line}: not listed in tests/documentation/commands.py: {text}")
                        continue
                    left.remove(found)
                    block.append((text, found))
                if name in ONE_RUN and self.blocks and self.blocks[-1][0] == name:
                    self.blocks[-1][2].extend(block)
                else:
                    self.blocks.append((name, line, block))
            self.wrong += [f"{name}: listed, and not shown any more: {x.text}" for x in left]
        self.wrong += [f"{name}: there is no such page" for name in FILES if name not in shown]
        self.wrong += [f"{x.text}: '{x.reason}' is no reason" for listed in FILES.values() for x in listed
                       if x.how == "skip" and not any(x.reason.startswith(known) for known in REASONS)]


class Clone:
    """The files of a clone after a build, with ports that are free here and small nodes."""

    def __init__(self, program, directory):
        self.directory = directory
        self.ports = dict(zip(PORTS, free_ports(len(PORTS))))
        (directory / "bin").mkdir()
        wrapper = directory / "bin" / "troupe"
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)
        release = directory / "build" / "release"
        release.mkdir(parents=True)
        (release / "troupe").symlink_to(wrapper)
        if (program.parent / "examples").is_dir():
            (release / "examples").symlink_to(program.parent / "examples")
        shutil.copytree(ROOT / "traces", directory / "traces")
        shutil.copytree(ROOT / "configs", directory / "configs")
        for config in (directory / "configs").rglob("*"):
            if config.is_file():
                config.write_text(re.sub(r'"\d+ GiB"', '"128 MiB"', self.adapted(config.read_text(encoding="utf-8"))))
        (directory / "token").write_text("0123456789abcdef0123456789abcdef\n")
        self.environment = dict(os.environ, PATH=f"{directory / 'bin'}:{os.environ['PATH']}", PROGRAM=str(program),
                                HTTP_PORT=str(self.ports[18000]), no_proxy="*", HOME=str(directory))

    def adapted(self, text):
        ports = self.ports
        text = text.replace("1800$i", f"$((i == 1 ? {ports[18001]} : {ports[18002]}))")
        text = text.replace("700$i", f"$((i == 1 ? {ports[7001]} : {ports[7002]}))")
        text = re.sub(r"\b(" + "|".join(map(str, PORTS)) + r")\b", lambda m: str(ports[int(m[1])]), text)
        return text.replace("/srv/troupe/data", str(self.directory / "troupe-data")).replace("node-7", "127.0.0.1")

    def run(self, block):
        """Runs the commands of a block. Returns their number and the error, or None."""
        script, wanted = [PRELUDE], []
        for number, (text, how) in enumerate(block):
            missing = [x for x in how.needs if not (shutil.which(x) or (self.directory / x).exists())]
            if how.how == "skip" or missing:
                continue
            wanted.append((number, text, how))
            if how.before:
                script.append(self.adapted(how.before))
            command = self.adapted(how.instead or text)
            if how.how == "start":
                script.append(f"start {command}")
            elif command.rstrip().endswith("&") or command.startswith("start ") or how.prints is None and not how.code:
                script.append(command)
            else:
                script.append(f"code=0\n{{ {command}\n}} > {number}.out 2>&1 || code=$?\ncat {number}.out\n"
                              f"(( code == {how.code} ))")
            script.append(f"echo done > {number}.done")
        if not wanted:
            return 0, None
        for left in self.directory.glob("*.done"):
            left.unlink()
        shutil.copy(self.directory / "configs" / "single-node.json", self.directory / "node.json")
        with open(self.directory / "block.log", "w+", encoding="utf-8") as log:
            code = subprocess.run(["bash", "-c", "\n".join(script) + EPILOGUE], cwd=self.directory, check=False,
                                  env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  timeout=BLOCK_SECONDS).returncode
            log.seek(0)
            said = log.read()
        for number, text, how in wanted:
            if not (self.directory / f"{number}.done").exists():
                return len(wanted), f"{text}\n{said[-4000:]}"
            if how.prints is not None and how.prints not in (self.directory / f"{number}.out").read_text():
                return len(wanted), f"{text}\nprints no '{how.prints}':\n{said[-4000:]}"
        if code != 0:
            return len(wanted), f"a node or a program in the background does not end with 0\n{said[-4000:]}"
        return len(wanted), None


def wrong_numbers(program):
    """Numbers in the text that the program prints too."""
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout
    protocol = re.search(r"^protocol.*: (\d+)$", version, re.M)
    if not protocol:
        return [f"troupe --version does not name its protocol: {version}"]
    out = []
    for page in sorted(ROOT.glob("docs/*.md")):
        for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
            for said in re.findall(r'"protocol": (\d+)|\bprotocol (\d+), process', line):
                if max(said) != protocol[1]:
                    out.append(f"{page.relative_to(ROOT)}:{number}: protocol {max(said)}, and it is {protocol[1]}")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("troupe", type=pathlib.Path, help="the program")
    parser.add_argument("only", nargs="*", help="pages, as docs/install.md, or blocks, as docs/install.md:3")
    arguments = parser.parse_args()
    program = arguments.troupe.resolve()
    pages = Pages()
    wrong = pages.wrong + wrong_numbers(program)
    ran = 0
    # Not below /tmp/…/…: paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="troupe-doc.") as name:
        clone = Clone(program, pathlib.Path(name))
        for page, line, block in pages.blocks:
            if arguments.only and not {page, f"{page}:{line}"} & set(arguments.only):
                continue
            count, problem = clone.run(block)
            ran += count
            if problem:
                wrong.append(f"{page}:{line}: {problem}")
    if wrong:
        sys.exit("\n\n".join(wrong))
    print(f"{ran} commands do what the documentation says")


if __name__ == "__main__":
    main()
