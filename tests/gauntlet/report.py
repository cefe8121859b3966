"""What a run of the gauntlet prints, and writes as JSON."""

import datetime
import json
import platform

from verdicts import BAD, MEANING, ORDER

NOT_RUN = "not run"


class Report:
    def __init__(self, against, version, seed, short):
        self.head = {"against": against, "version": version, "seed": seed, "short": short,
                     "began": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                     "machine": f"{platform.system()} {platform.release()}, {platform.machine()}"}
        self.results = []

    def add(self, case, tally, seconds, settings=None, remarks=(), not_run=None):
        """`not_run`: why a case shows nothing."""
        result = {"number": case.number, "name": case.name, "title": case.title, "reports": list(case.reports),
                  "verdict": NOT_RUN if not_run else tally.verdict(), "seconds": round(seconds, 1),
                  "counts": {each: tally.of(each) for each in ORDER if tally.of(each)},
                  "remarks": {each: tally.remarks[each] for each in ORDER if tally.remarks.get(each)},
                  "notes": list(remarks), "settings": settings or {}}
        if not_run:
            result["not_run"] = not_run
        self.results.append(result)
        return result

    def bad(self):
        return [each for each in self.results if each["verdict"] in BAD]

    def not_run(self):
        return [each for each in self.results if each["verdict"] == NOT_RUN]

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**self.head, "cases": self.results}, file, indent=1, ensure_ascii=False)
            file.write("\n")

    def heading(self):
        length = "short" if self.head["short"] else "full length"
        return (f"{self.head['against']} {self.head['version']}; seed {self.head['seed']}, {length}\n"
                f"{'':3} {'case':16} {'verdict':8} " + " ".join(f"{each:>6}" for each in ORDER) + "  seconds")

    @staticmethod
    def line(result):
        counts = " ".join(f"{result['counts'].get(each, 0) or '-':>6}" for each in ORDER)
        out = [f"{result['number']:3} {result['name']:16} {result['verdict']:8} {counts} {result['seconds']:8.1f}"]
        if "not_run" in result:
            out.append(f"    not run: {result['not_run']}")
        for verdict in reversed(ORDER):
            # Why something was a miss is of no interest.
            if verdict in BAD or verdict == "error":
                out += [f"    {verdict}: {each}" for each in result["remarks"].get(verdict, ())[:3]]
        return "\n".join(out + [f"    {each}" for each in result["notes"]])

    def summary(self):
        bad, left = self.bad(), self.not_run()
        out = [f"{len(self.results)} cases: {len(bad)} with a hang, a crash or a wrong byte, {len(left)} not run"]
        if bad:
            out.append("; ".join(f"{each['name']}: {each['verdict']}, {MEANING[each['verdict']]}" for each in bad))
        return "\n".join(out)
