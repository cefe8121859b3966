#!/usr/bin/env python3
"""Packs vLLM or SGLang from PyPI for a machine that has a GPU, Python 3.12 and PyTorch 2.11 for CUDA 13, but no
network: folders that can be copied one at a time, each with a script that unpacks it. scripts/gpu-bundle runs it.

gpu_pack.py vllm|sglang FOLDER [--part-mib 48] [--architecture 90] [--cache FOLDER]

In compiled files only the kernels for one architecture are kept, 90 for Hopper. What does not run with that PyTorch, or
is large and used by few models, is left out: see `RECIPES`. On the machine, `bash PART/unpack.sh [FOLDER]` for each
part puts the engine into ~/engine or that folder, and the last one says what to source.
"""

import argparse
import collections
import fnmatch
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent

# Wheels; what is left out of them; what is replaced in their files; variables of the engine's environment.
recipe = collections.namedtuple("recipe", "wheels without replaced environment")

RECIPES = {
    # Its operators use PyTorch's stable interface, so they load in versions before the one that it asks for, but for
    # DeepGEMM. FlashAttention 2 has no kernels for Hopper; Qutlass, deepselect and fmha_sm100 are for Blackwell.
    "vllm": recipe(
        wheels=("vllm==0.32.0",),
        without=("*/_vllm_fa2_C.*", "vllm/vllm-rs", "vllm/third_party/fmha_sm100/*", "vllm/third_party/deep_gemm/*",
                 "vllm/_qutlass*", "vllm/_deepselect*", "*/benchmarks/*"),
        # What it imports there is for Blackwell, and needs CUTLASS's package of 92 MB.
        replaced={"vllm/models/deepseek_v32/common/kernels.py": [
            ("    if current_platform.is_cuda():\n        from vllm.models.deepseek_v32.nvidia.ops",
             "    if current_platform.has_device_capability(100):\n        from vllm.models.deepseek_v32.nvidia.ops")]},
        environment={"VLLM_USE_FLASHINFER_SAMPLER": "0"}),
    # Operators of 0.4.6 are the newest for that PyTorch; they lack the fused product of gate and up. Those of
    # FlashAttention take 1.1 GB. SGLang's radix tree in Rust is built for a newer PyTorch.
    "sglang": recipe(
        wheels=("sglang==0.5.23", "sglang-kernel==0.4.6"),
        without=("sglang/srt/rust_extensions/*.so", "sglang/multimodal_gen/*", "sglang/test/*", "sglang/benchmark/*",
                 "sgl_kernel/sm100/*", "sgl_kernel/flash*.so", "sgl_kernel/infllm*.so", "sgl_kernel/spatial_ops*.so",
                 "sglang/srt/mem_cache/rust_tree_core/*.so"),
        replaced={"sglang/srt/layers/dual_gemm.py": [
            ("        if not is_cuda():\n            return None", "        if True:\n            return None")]},
        environment={"SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK": "1", "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python"}),
}

# Of wheels for Linux, pip takes exactly the platforms that it is given.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 26, 24, 17, 12, 5)] + \
    ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]

FATBIN, PTX, CUBIN = 0xBA55ED50, 1, 2

UNPACK = """#!/usr/bin/env bash
# Copies this part, and unpacks the engine once all {count} parts are there. Usage: unpack.sh [FOLDER]
set -euo pipefail
part=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
folder=${{1:-$HOME/engine}}
mkdir -p "$folder/parts"
cp "$part"/data.* "$folder/parts/"
here=("$folder"/parts/data.*)
if ((${{#here[@]}} == {count})); then
  cat "$folder"/parts/data.* | xz -dc -T0 | tar x -C "$folder"
  rm -r "$folder/parts"
  echo "$folder is complete: source $folder/environment.sh"
else
  echo "${{#here[@]}} of {count} parts are there"
fi
"""


def download(what, cache, name):
    """Wheels of these requirements, fetched once."""
    place = cache / name
    wanted = "\n".join(what)
    if not (place / "complete").exists() or (place / "complete").read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        platforms = [word for each in PLATFORMS for word in ("--platform", each)]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp", *platforms,
                        "--dest", place, *what],
                       check=True)
        (place / "complete").write_text(wanted)
    return sorted(place.glob("*.whl"))


def unpack_wheel(wheel, site, without):
    """Its files as pip places them, but for programs."""
    with zipfile.ZipFile(wheel) as archive:
        for each in archive.infolist():
            name = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", each.filename)
            if each.is_dir() or ".data/" in name or any(fnmatch.fnmatch(name, pattern) for pattern in without):
                continue
            target = site / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(each) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)


def replace(site, replaced):
    for name, pairs in replaced.items():
        text = (site / name).read_text()
        for before, after in pairs:
            if before not in text:
                raise SystemExit(f"{name} does not contain {before!r}: this recipe is for another version")
            text = text.replace(before, after)
        (site / name).write_text(text)


def sections(data):
    """Name, offset and length of each section of a library for 64 bits."""
    table, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)

    def part(number):
        return struct.unpack_from("<QQ", data, table + number * size + 0x18)

    for number in range(count):
        start = part(names)[0] + struct.unpack_from("<I", data, table + number * size)[0]
        if number != names:
            yield (bytes(data[start:data.index(b"\0", start)]).decode(), *part(number))


def kernels(data, start, length):
    """Of each container of kernels in a section: kind, architecture, offset and length of its entries."""
    at, end = start, start + length
    while at + 16 <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN:
            at += 8 - (at - start) % 8  # padding
            continue
        entry, at, found = at + header, at + header + size, []
        while entry < at:
            kind, _, header, size = struct.unpack_from("<HHIQ", data, entry)
            found.append((kind, struct.unpack_from("<I", data, entry + 28)[0], entry + header, size))
            entry += header + size
        yield found


def cut(data, architecture):
    """Overwrites kernels for other architectures, and what debuggers read, with zeroes, which take no room once they
    are compressed. Offsets stay. PTX stays where there is no machine code for the architecture."""
    for name, start, length in list(sections(data)):
        if name.startswith(".debug_") or name in (".strtab", ".symtab"):
            data[start:start + length] = bytes(length)
        if name != ".nv_fatbin":
            continue
        for entries in kernels(data, start, length):
            ours = any(kind == CUBIN and made_for == architecture for kind, made_for, *_ in entries)
            for kind, made_for, at, size in entries:
                kept = made_for == architecture if kind == CUBIN else not ours and made_for <= architecture
                if not kept:
                    data[at:at + size] = bytes(size)


def cut_libraries(site, architecture):
    for path in site.rglob("*.so"):
        data = bytearray(path.read_bytes())
        if data[:5] == b"\x7fELF\x02":
            cut(data, architecture)
            path.write_bytes(data)


def write_environment(folder, variables):
    lines = ["export PYTHONPATH=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)/site${PYTHONPATH:+:$PYTHONPATH}",
             "export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1"]
    lines += [f"export {name}={value}" for name, value in variables.items()]
    (folder / "environment.sh").write_text("\n".join(lines) + "\n")


def write_parts(tree, folder, part_bytes):
    """Compresses the tree, and divides that among as few parts as it needs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    whole = folder / "whole"
    with open(whole, "wb") as file:
        packer = subprocess.Popen(["xz", "-T0", "-6", "-c"], stdin=subprocess.PIPE, stdout=file)
        with tarfile.open(fileobj=packer.stdin, mode="w|") as archive:
            archive.add(tree, ".", filter=lambda each: None if "__pycache__" in each.name else each)
        packer.stdin.close()
        if packer.wait() != 0:
            raise SystemExit("xz failed")
    count = -(-whole.stat().st_size // part_bytes)
    with open(whole, "rb") as file:
        for number in range(1, count + 1):
            part = folder / f"part{number}"
            part.mkdir()
            (part / f"data.{number:02}").write_bytes(file.read(part_bytes))
            (part / "unpack.sh").write_text(UNPACK.format(count=count))
    whole.unlink()
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=sorted(RECIPES))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--part-mib", type=int, default=48, help="the size of a part at most")
    parser.add_argument("--architecture", type=int, default=90, help="of the GPU")
    parser.add_argument("--cache", type=pathlib.Path, help="keeps downloads; else ~/.cache/troupe/gpu-engines")
    arguments = parser.parse_args()
    if arguments.part_mib < 1:
        parser.error("a part has at least one MiB")
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "troupe" / "gpu-engines"
    cache = (arguments.cache or default) / arguments.engine
    this = RECIPES[arguments.engine]
    listed = (HERE / "gpu_packs" / f"{arguments.engine}.txt").read_text().splitlines()
    others = [line for line in listed if line and not line.startswith("#")]
    tree = cache / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for wheel in download(this.wheels, cache, "engine") + download(others, cache, "others"):
        unpack_wheel(wheel, tree / "site", this.without)
    replace(tree / "site", this.replaced)
    cut_libraries(tree / "site", arguments.architecture)
    write_environment(tree, this.environment)
    count = write_parts(tree, arguments.folder, arguments.part_mib << 20)
    shutil.rmtree(tree)
    sizes = ", ".join(f"{(arguments.folder / f'part{each}' / f'data.{each:02}').stat().st_size / (1 << 20):.0f}"
                      for each in range(1, count + 1))
    print(f"{arguments.folder}: {arguments.engine} in {count} parts of {sizes} MiB")


if __name__ == "__main__":
    main()
