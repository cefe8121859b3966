"""Texts of users in the form of the library, whose texts end at a NUL and have a limit."""

import hashlib

BYTES_MAX = 4096

# The prefix of all stand-ins, and of nothing else: a text with this prefix gets a stand-in as well, so that no user can
# forge the stand-in of another user's text.
MARK = b"troupe stand-in sha256 "


def fitting(value):
    """The text itself, or its stand-in, which is unique for each text."""
    try:
        said = value.encode()
        if 0 < len(said) <= BYTES_MAX and b"\0" not in said and not said.startswith(MARK):
            return said
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON allows
        said = value.encode(errors="surrogatepass")
    return MARK + hashlib.sha256(said).hexdigest().encode()


def is_stand_in(said):
    return said.startswith(MARK)


def joined(values):
    """All texts, fitting, each followed by a NUL. They are many in each step, and almost all of them fit unchanged."""
    try:
        out = "\0".join(values).encode() + b"\0"
        fit = (out.count(b"\0") == len(values) and max(map(len, values)) <= BYTES_MAX // 4
               and MARK not in out and b"\0\0" not in out and out[0])
    except UnicodeEncodeError:
        fit = False
    return out if fit else b"".join(fitting(value) + b"\0" for value in values)
