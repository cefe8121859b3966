"""What a run has found, as text."""

import collections

NOTICED, NOT_NOTICED, NOT_REACHED = "noticed", "not noticed", "not reached"


def share(results):
    """The part of the mistakes that a test notices. One that no test reaches is one that none notices."""
    return sum(each["result"] == NOTICED for each in results) / len(results) if results else 0.0


def table(rows):
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(str(cell).ljust(width) if column == 0 else str(cell).rjust(width)
                               for column, (cell, width) in enumerate(zip(row, widths))) for row in rows)


def counted(results, layers, name, key):
    """A row for each value of `key`, and one for all."""
    head = [name, "mistakes", *layers, NOT_NOTICED, NOT_REACHED, "share"]
    groups = collections.defaultdict(list)
    for each in results:
        groups[key(each)].append(each)
    rows = [head]
    for value, members in [*sorted(groups.items()), ("all", results)]:
        by_layer = collections.Counter(each.get("layer") for each in members)
        ends = collections.Counter(each["result"] for each in members)
        rows.append([value, len(members), *(by_layer[layer] for layer in layers), ends[NOT_NOTICED],
                     ends[NOT_REACHED], f"{100 * share(members):.1f} %"])
    return table(rows)


def text_of(results, layers):
    """`results`: those of all mistakes, each with what it was."""
    parts = [counted(results, layers, "folder", lambda each: each["path"].rpartition("/")[0]),
             counted(results, layers, "kind", lambda each: each["kind"])]
    for end in (NOT_NOTICED, NOT_REACHED):
        found = [each for each in results if each["result"] == end]
        if found:
            parts.append(f"{end}:\n" + "\n".join(
                f"  {each['number']:4}  {each['path']}:{each['first_line']}: {each['before']}\n"
                f"        {each['kind']}: {each['after']}" for each in found))
    return "\n\n".join(parts)
