"""Finds the places of a C++ source where a mistake can be put, and writes a source with some of them.

A mistake is a choice at run time: `a < b` becomes `(troupe_mutants::at(17) ? (a <= b) : (a < b))`, so that one build
has them all, and the environment chooses one.
"""

import re

from tokens import WITHOUT_EFFECT, Source

OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+"}
KINDS = ("comparison", "logic", "arithmetic", "condition", "call", "assignment", "constant", "return", "early return")
# How tightly binary operators bind, from the loosest. A comma, an assignment and `? :` end any operand.
BINDING = {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<=>": 8,
           "<<": 9, ">>": 9, "+": 10, "-": 10}
ENDS = {",", ";", "?", ":", "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
ASSIGNMENTS = ENDS - {",", ";", "?", ":"}
BEFORE_OPERANDS = {"return", "co_return", "co_yield", "throw", "else", "do", "case"}
KEYWORDS = BEFORE_OPERANDS | {
    "alignas", "asm", "auto", "break", "catch", "class", "const", "constexpr", "consteval", "constinit", "continue",
    "co_await", "decltype", "default", "delete", "enum", "explicit", "extern", "for", "friend", "goto", "if", "inline",
    "mutable", "namespace", "new", "operator", "private", "protected", "public", "requires", "sizeof", "static",
    "static_assert", "static_cast", "struct", "switch", "template", "thread_local", "try", "typedef", "typename",
    "union", "using", "virtual", "void", "volatile", "while"}
INTEGER = re.compile(r"(0[xX][0-9a-fA-F']+|\d[\d']*)([uU]?[lLzZ]{0,2}|[lLzZ]{1,2}[uU])")
AT = "::troupe_mutants::at({})"
NEW_LINE = "\n"


def is_plain(text):
    """Whether text can be written twice, and on one line."""
    return "//" not in text and "/*" not in text and 'R"' not in text and "\n#" not in text


class Site:
    """A place for a mistake: characters `start` to `end` of a file, and what they become."""

    def __init__(self, path, kind, start, end, text, replacement, wrong):
        self.path, self.kind, self.start, self.end, self.replacement = path, kind, start, end, replacement
        self.before, self.after = " ".join(text[start:end].split()), " ".join(wrong.split())
        self.first_line = text.count("\n", 0, start) + 1
        self.last_line = text.count("\n", 0, end) + 1
        begin = text.rfind("\n", 0, start) + 1
        stop = text.find("\n", start)
        self.line = " ".join(text[begin:stop if stop >= 0 else len(text)].split())

    def key(self):
        """What stays the same when lines above change."""
        return {"path": self.path, "line": self.line, "before": self.before, "after": self.after}

    def overlaps(self, other):
        return self.path == other.path and self.start <= other.end and other.start <= self.end


class Finder:
    def __init__(self, path, text):
        self.path, self.source, self.out = path, Source(text), []

    def find(self):
        for position, token in enumerate(self.source.tokens):
            if position in self.source.fixed:
                continue
            if token.text in OTHER and token.kind == "mark" and self.source.is_binary(position):
                self.operator(position)
            elif token.kind == "number":
                self.constant(position)
            elif token.text in ("if", "while") and self.source.at(position + 1) == "(":
                self.condition(position + 1)
            elif token.text == "return" and self.source.at(position + 2) == ";":
                self.truth(position + 1)
            elif token.text == "void":
                self.early_return(position)
            if self.begins_statement(position):
                self.statement(position)
        return self.out

    def add(self, kind, first, last, replacement, wrong):
        """`first` and `last` are tokens; none between them may be fixed. Template arguments may be, as nothing of them
        is changed."""
        source = self.source
        start, end = source.tokens[first].start, source.tokens[last].end
        self.out.append(Site(self.path, kind, start, end, source.text, replacement, wrong))

    def left_end(self, position, binding):
        """The first token of the operand before an operator."""
        source, position = self.source, position - 1
        while position >= 0:
            text = source.at(position)
            if position in source.partner and source.partner[position] < position:
                position = source.partner[position]
            elif text in ENDS or text in BEFORE_OPERANDS or text in ("(", "[", "{", "}") or \
                    (source.is_binary(position) and 0 < BINDING.get(text, 0) < binding):
                return position + 1
            position -= 1
        return 0

    def right_end(self, position, binding):
        """The last token of the operand after an operator."""
        source, position = self.source, position + 1
        while position < len(source.tokens):
            text = source.at(position)
            if position in source.partner and source.partner[position] > position:
                position = source.partner[position]
            elif text in ENDS or text in (")", "]", "}", "{") or \
                    (source.is_binary(position) and 0 < BINDING.get(text, 0) <= binding):
                return position - 1
            position += 1
        return len(source.tokens) - 1

    def operator(self, position):
        source, token = self.source, self.source.tokens[position]
        binding = BINDING[token.text]
        first, last = self.left_end(position, binding), self.right_end(position, binding)
        if first >= position or last <= position:
            return
        left = source.text[source.tokens[first].start:token.start]
        right = source.text[token.end:source.tokens[last].end]
        if not is_plain(left + right):
            return
        wrong = f"{left}{OTHER[token.text]}{right}"
        kind = "logic" if binding < 3 else "comparison" if binding < 8 else "arithmetic"
        # On the lines of the original, so that what the compiler says of a line is said of this site.
        self.add(kind, first, last, f"({AT} ? ({wrong.replace(NEW_LINE, ' ')}) : ({left}{token.text}{right}))", wrong)

    def constant(self, position):
        source, text = self.source, self.source.at(position)
        is_size = source.at(position - 1) == "[" and source.kind(position - 2) == "name" and \
            (source.kind(position - 3) == "name" or source.at(position - 3) in (">", "*"))
        if INTEGER.fullmatch(text) and not is_size and source.at(position - 1) != ".":
            self.add("constant", position, position, f"({AT} ? ({text} + 1) : {text})", f"{text} + 1")

    def condition(self, position):
        source, last = self.source, self.source.partner.get(position, position) - 1
        first, at, declares = position + 1, position + 1, False
        while at <= last:
            if source.at(at) == ";":
                first, declares = at + 1, False
            declares = declares or source.at(at) == "="
            at = max(source.partner.get(at, at), at) + 1
        if declares:
            return
        if first > last or source.at(first) in ("true", "false"):
            return
        text = source.text[source.tokens[first].start:source.tokens[last].end]
        if is_plain(text):
            self.add("condition", first, last, f"{AT} != static_cast<bool>({text})", f"!({text})")

    def truth(self, position):
        other = {"true": "false", "false": "true"}.get(self.source.at(position))
        if other:
            text = self.source.at(position)
            self.add("return", position, position, f"({AT} ? {other} : {text})", other)

    def early_return(self, position):
        """The beginning of the body of a function that returns nothing."""
        source, at = self.source, position + 1
        while source.kind(at) == "name" or source.at(at) == "::":
            at += 1
        if at == position + 1 or source.at(at) != "(":
            return
        at = source.partner.get(at, at) + 1
        while source.at(at) in ("const", "noexcept", "override", "final"):
            at += 1
        if source.at(at) == "{" and source.partner.get(at, at + 1) > at + 1:
            self.add("early return", at, at, f"{{ if ({AT}) return;", "{ return;")

    def begins_statement(self, position):
        before = self.source.at(position - 1)
        behind_label = before == ":" and position - 1 in self.source.fixed
        return (before in (";", "{", "}", ")", "else", "do") or behind_label) and \
            (self.source.kind(position) == "name" or self.source.at(position) in ("++", "--", "*"))

    def chain(self, position):
        """Follows `a.b->c[i](x)` from its first token: the token behind it, and whether it ends with a call."""
        source, called = self.source, False
        if source.kind(position) != "name" or source.at(position) in KEYWORDS:
            return position, False
        last_name, position = source.at(position), position + 1
        while position < len(source.tokens):
            text = source.at(position)
            if text in ("::", ".", "->") and source.kind(position + 1) == "name":
                last_name, called = source.at(position + 1), False
                position += 2
            elif text in ("(", "[") or (text == "<" and position in source.partner):
                called = text == "(" and last_name not in WITHOUT_EFFECT and not last_name.isupper()
                position = source.partner.get(position, position) + 1
            else:
                break
        return position, called

    def statement(self, position):
        source = self.source
        first = position + 1 if source.at(position) in ("++", "--", "*") else position
        end, called = self.chain(first)
        mark = source.at(end)
        if end == first:
            return
        if mark == ";" and called and first == position:
            kind = "call"
        elif mark == ";" and source.at(position) in ("++", "--"):
            kind = "assignment"
        elif mark in ("++", "--") and source.at(end + 1) == ";":
            kind, end = "assignment", end + 1
        elif mark in ASSIGNMENTS and source.at(end + 1) not in ("default", "delete"):
            kind = "assignment"
            while source.at(end) not in (";", ")", "}", ""):
                end = max(source.partner.get(end, end), end) + 1
            if source.at(end) != ";":
                return
        else:
            return
        text = source.text[source.tokens[position].start:source.tokens[end - 1].end]
        if is_plain(text):
            self.add(kind, position, end - 1, f"({AT} ? void() : static_cast<void>({text}))", "nothing")


def find_sites(path, text):
    return Finder(path, text).find()


def write(text, sites, header):
    """The source with the sites in it: pairs of a number and a site that do not overlap. Lines keep their numbers."""
    out, at = [], 0
    for number, site in sorted(sites, key=lambda pair: pair[1].start):
        out += [text[at:site.start], site.replacement.replace("{}", str(number), 1)]
        at = site.end
    return f'#include "{header}"\n#line 1\n' + "".join(out) + text[at:]
