"""Facts: pages whose every byte follows from a seed, an owner, a prompt and a position, so that a wrong byte is seen
and the page that it came from is named."""

import hashlib
import random

PAGE_BYTES = 16384
LABEL_BYTES = 128
# What a page's memory holds before it is loaded: a load that writes nothing is not a hit.
POISON = b"\xa7"


def page(seed, owner, chain, number, size=PAGE_BYTES):
    """The fact of page `number` of a prompt, as its owner computes it."""
    label = f"fact of {owner}: page {number} of {chain}, seed {seed}\n".encode()
    if len(label) > LABEL_BYTES:
        raise ValueError(f"the label of a fact is longer than {LABEL_BYTES} bytes: {label!r}")
    dice = random.Random(hashlib.sha256(label).digest())
    return label.ljust(LABEL_BYTES, b".") + dice.randbytes(size - LABEL_BYTES)


def difference(wanted, got):
    """None if the bytes are the right ones, else a sentence about what they are."""
    if wanted == got:
        return None
    if got == POISON * len(got):
        return f"was reported as loaded, and nothing was written: wanted {label_of(wanted)}"
    if not any(got):
        return f"is all zeroes: wanted {label_of(wanted)}"
    if len(wanted) != len(got):
        return f"has {len(got)} bytes instead of {len(wanted)}"
    different = [i for i in range(len(wanted)) if wanted[i] != got[i]]
    foreign = label_of(got)
    if foreign is not None and got[:LABEL_BYTES] != wanted[:LABEL_BYTES]:
        return f"holds the {foreign}: wanted the {label_of(wanted)}"
    return f"has {len(different)} wrong bytes from byte {different[0]} on: wanted the {label_of(wanted)}"


def label_of(page_bytes):
    """The label of a fact; None if the bytes do not begin with one."""
    line = page_bytes[:LABEL_BYTES].split(b"\n")[0]
    return line.decode() if line.startswith(b"fact of ") and line.isascii() else None


def key(chain, number):
    """The key of page `number` of a prompt: 32 bytes. Engines with other settings have the same keys."""
    return hashlib.sha256(f"{chain}/{number}".encode()).digest()
