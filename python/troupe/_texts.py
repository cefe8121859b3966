"""What users say, as the library takes it: its texts end at a NUL and have a limit, and users' need not."""

import hashlib

BYTES_MAX = 4096

# Begins what stands for a text, and nothing else: a text that begins so has a stand-in as well, so that nobody can say
# what stands for the text of somebody else.
MARK = b"troupe stand-in sha256 "


def fitting(value):
    """The text itself, or what stands for it; another for each text."""
    try:
        said = value.encode()
        if 0 < len(said) <= BYTES_MAX and b"\0" not in said and not said.startswith(MARK):
            return said
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can say
        said = value.encode(errors="surrogatepass")
    return MARK + hashlib.sha256(said).hexdigest().encode()


def is_stand_in(said):
    return said.startswith(MARK)


def joined(values):
    """All of them, fitting, with a NUL behind each. They are many in each step, and fit but for the odd one."""
    try:
        out = "\0".join(values).encode() + b"\0"
        fit = (out.count(b"\0") == len(values) and max(map(len, values)) <= BYTES_MAX // 4
               and MARK not in out and b"\0\0" not in out and out[0])
    except UnicodeEncodeError:
        fit = False
    return out if fit else b"".join(fitting(value) + b"\0" for value in values)
