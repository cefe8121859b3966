"""A case of the gauntlet: one kind of report, re-enacted."""

import importlib
import pathlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    number: int
    name: str  # on the command line, beside the number
    title: str
    reports: tuple  # of users of some cache, as "project#number"
    run: object  # a function of a `trial.Trial`
    needs: tuple = ()  # abilities of the cache, see caches/cache.py
    # Defects of the deliberately wrong cache that this case must detect, each with the verdict.
    defects: dict = field(default_factory=dict)
    # Played with a real engine: there is no such thing as a wrong cache for it, and its experiments have controls.
    engine: bool = False


def all_cases():
    """Cases by number. Each module of the folder `cases` has one, or several in `CASES`."""
    out = {}
    for path in sorted((pathlib.Path(__file__).parent / "cases").glob("*.py")):
        if path.stem.startswith("_"):
            continue
        module = importlib.import_module(f"cases.{path.stem}")
        for each in getattr(module, "CASES", None) or (module.CASE,):
            if each.number in out:
                raise ValueError(f"two cases have the number {each.number}")
            out[each.number] = each
    return dict(sorted(out.items()))


def chosen(names):
    """The cases of these numbers or names; all, if none is named. ValueError with a sentence if there is none."""
    known = all_cases()
    if not names:
        return list(known.values())
    out = []
    for name in names:
        found = [each for each in known.values() if name in (str(each.number), each.name)]
        if not found:
            raise ValueError(f"there is no case {name!r}; --list prints the cases")
        out += found
    return out
