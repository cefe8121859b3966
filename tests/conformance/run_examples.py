#!/usr/bin/env python3
"""Runs the examples of docs/http-api.md against a node, one after the other in one shell.

Every block marked `sh` must succeed. Where a block marked `json` follows it, the answer must have that shape, and the
same values where they do not depend on chance or on what the node did before.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Members whose values are the same each time.
FIXED = {"status", "state", "matched", "complete", "pages", "owner", "sequence", "name", "model", "dtype", "layout",
         "world_size", "page_bytes", "automatic", "slots", "live", "rank", "children", "protocol"}


def read_examples(text):
    """Pairs of commands and the answer they have, or None."""
    examples = []
    for kind, body in re.findall(r"^```(sh|json)\n(.*?)^```$", text, re.M | re.S):
        if kind == "sh":
            examples.append([body, None])
        elif examples and examples[-1][1] is None:
            examples[-1][1] = json.loads(body)
        else:
            raise ValueError("an answer without a command: " + body)
    return examples


def difference(expected, got, where="answer", fixed=False):
    """The mismatch of an answer, or None."""
    if isinstance(expected, dict) and isinstance(got, dict):
        if expected.keys() != got.keys():
            return f"{where} has the members {sorted(got)}, not {sorted(expected)}"
        for name, value in expected.items():
            if wrong := difference(value, got[name], f"{where}.{name}", name in FIXED):
                return wrong
        return None
    if isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            return f"{where} has {len(got)} items, not {len(expected)}"
        for i, (one, other) in enumerate(zip(expected, got)):
            if wrong := difference(one, other, f"{where}[{i}]", fixed):
                return wrong
        return None
    if type(expected) is not type(got):
        return f"{where} is {got!r}, not like {expected!r}"
    if fixed and expected != got:
        return f"{where} is {got!r}, not {expected!r}"
    return None


def run(examples, url, token, directory):
    """Runs all commands in one bash, so that variables last; stops at the first that fails."""
    script = ["set -u -o pipefail"]
    for i, (commands, _) in enumerate(examples):
        script.append(f"{{ set -e\n{commands}\n}} > {directory}/{i}.out 2> {directory}/{i}.err")
        script.append(f"echo done > {directory}/{i}.done")
    environment = dict(os.environ, TROUPE=url.rstrip("/"), CURL_HOME=str(directory), no_proxy="*")
    (directory / ".curlrc").write_text("max-time = 30\n" +
                                       (f'header = "Authorization: Bearer {token}"\n' if token else ""))
    return subprocess.run(["bash", "-c", "\n".join(script)], env=environment, check=False, timeout=600).returncode


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="where the node is: http://host:port")
    parser.add_argument("--token", help="of the role admin, if the node has a tokens file")
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=root / "docs" / "http-api.md")
    arguments = parser.parse_args()
    examples = read_examples(arguments.file.read_text(encoding="utf-8"))
    if not examples:
        sys.exit(f"{arguments.file} has no examples")
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        run(examples, arguments.url, arguments.token, directory)
        for i, (commands, expected) in enumerate(examples):
            out = directory / f"{i}.out"
            text = out.read_text(encoding="utf-8") if out.exists() else ""
            wrong = None
            if not (directory / f"{i}.done").exists():
                errors = directory / f"{i}.err"
                wrong = "the command fails: " + (errors.read_text(encoding="utf-8") if errors.exists() else "")
            elif expected is not None:
                try:
                    wrong = difference(expected, json.loads(text))
                except ValueError as e:
                    wrong = f"the answer is no JSON: {e}"
            if wrong:
                sys.exit(f"{arguments.file}, example {i + 1}:\n{commands}\n{wrong}\n{text}")
    print(f"{len(examples)} examples work")


if __name__ == "__main__":
    main()
