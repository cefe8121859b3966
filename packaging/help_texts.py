"""Commands, options and exit codes of a built program, read from its help; keys of its config, from the reference."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Where CLI11 begins the texts of a list.
TEXT_COLUMN = 30
REFERENCE = ROOT / "docs" / "configuration.md"


class Entry:
    """An option or argument. `value` is what it takes, empty for a flag; `choices` are its values, if they are known;
    `notes` are sentences about its bounds, default and relation to other options."""

    def __init__(self, left, text):
        self.text, self.notes, self.choices = text, [], []
        left = self._notes(left)
        words = re.match(r"(?:(-\w),)?(--[\w-]+)?\s*(.*)$", left)
        self.short, self.name, value = words[1], words[2], words[3]
        if self.name is None:
            self.name, _, value = value.partition(" ")
        self.value = self._value(value)

    def _notes(self, left):
        """Takes the notes off the end."""
        for word, sentence in (("Excludes", "Not together with {}."), ("Needs", "Only with {}.")):
            found = re.search(rf" {word}: ((?:--[\w-]+ ?)+)", left)
            if found:
                self.notes.insert(0, sentence.format(", ".join(found[1].split())))
                left = left[:found.start()] + " " + left[found.end():]
        left = left.strip()
        self.is_repeated, self.is_required = left.endswith(" ..."), "REQUIRED" in left.split()
        if self.is_required:
            self.notes.insert(0, "Required.")
        return re.sub(r" (\.\.\.|REQUIRED)", "", left)

    def _value(self, value):
        number = re.match(r"N(?::(?:FLOAT in \[(\S+) - (\S+)\]|(\d+) to (\d+)))?(?:=(\S+))?$", value)
        if number:
            least, most = number[1] or number[3], number[2] or number[4]
            if least:
                self.notes.append(f"From {least} to {most}.")
            if number[5]:
                self.notes.append(f"Default: {number[5]}.")
            return "N"
        choice = re.match(r"(\w+):\{([^}]*)\}$", value)
        if choice:
            self.choices = choice[2].split(",")
            return "|".join(self.choices)
        if re.fullmatch(r"[\w:|]+", value) and "|" in value:
            self.choices = [x for x in value.split("|") if not x.endswith(":N")]
        return value

    @property
    def takes_file(self):
        return self.name in ("FILE", "NODE") or self.value in ("FILE", "NODE", "HOST:PORT")


class Command:
    """The help of a command: its title, usage, arguments, options, subcommands and the paragraphs at the end."""

    def __init__(self, text):
        head, *parts = re.split(r"\n\n", text.strip("\n"))
        lines = head.split("\n")
        self.title = lines[0].rstrip(".")
        self.usage = next(x[len("Usage: "):] for x in lines if x.startswith("Usage: "))
        entries = {"Positionals": [], "Options": [], "Subcommands": []}
        self.footer = []
        for part in parts:
            first, _, rest = part.partition("\n")
            if first.rstrip(":") in entries:
                entries[first.rstrip(":")] = self._entries(rest)
            else:
                self.footer += part.split("\n")
        self.arguments = [Entry(*x) for x in entries["Positionals"]]
        self.options = [Entry(*x) for x in entries["Options"]]
        self.subcommands = dict(entries["Subcommands"])

    @staticmethod
    def _entries(text):
        """(left column, text) of each entry. The text begins at a fixed column, and on the next line where the left column
        is too wide."""
        lines, out = text.split("\n"), []
        for line, after in zip(lines, [*lines[1:], ""]):
            if line.startswith(" " * TEXT_COLUMN):
                out[-1] = (out[-1][0], line.strip())
            elif line:
                alone = after.startswith(" " * TEXT_COLUMN)
                out.append((line.strip(), "") if alone else (line[:TEXT_COLUMN].strip(), line[TEXT_COLUMN:].strip()))
        return out

    @property
    def exit_codes(self):
        """The sentence about exit codes; empty if there is none of its own."""
        return next((x.partition(": ")[2] for x in self.footer if x.startswith("Exit codes: ")), "") or next(
            (x.partition("Exit codes: ")[2] for x in self.footer if "Exit codes: " in x), "")

    @property
    def remarks(self):
        """The lines at the end, without the sentence about exit codes."""
        return [x for x in (re.sub(r" ?Exit codes: .*", "", line) for line in self.footer) if x]


def printed(program, *arguments):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def read(program):
    """The help of the program, and of each of its commands by name."""
    whole = Command(printed(program, "--help"))
    return whole, {name: Command(printed(program, name, "--help")) for name in whole.subcommands}


def topics(program):
    """Topics of `help`: {name: title}."""
    lines = printed(program, "help", "topics").split("\n\n", 1)[1].strip("\n").split("\n")
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines)


def config_keys():
    """The keys of a config in their order: {key: its possible values}, empty where any value of a type is possible."""
    out = {}
    for key, kind in re.findall(r"^\| `([a-z0-9_.\[\]]+)` \| ([^|]*) \|", REFERENCE.read_text(encoding="utf-8"), re.M):
        words = re.findall(r'"([^"]+)"', kind)
        out[key.replace("[i]", "[0]")] = ["true", "false"] if kind == "true or false" else words
    return out
