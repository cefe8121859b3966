"""Reads C++ as tokens, and says which of them no mistake may be put into.

This is no parser. It relies on clang-format: binary operators have a blank on both sides, the brackets of template
arguments have none. What it takes for an expression and is none does not compile, and is then left out (tree.py).
"""

import re

PATTERN = re.compile(r"""
    (?P<directive>^[ \t]*\#(?:\\.|[^\n\\])*)
  | (?P<comment>//(?:\\.|[^\n\\])*|/\*.*?\*/)
  | (?P<string>(?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"\w*|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"\w*)
  | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<mark><<=|>>=|<=>|\.\.\.|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[^\s\w])
""", re.VERBOSE | re.DOTALL | re.MULTILINE)

OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
# What is in the parentheses after these is evaluated by the compiler.
COMPILED = {"static_assert", "noexcept", "decltype", "alignas", "sizeof", "requires", "explicit"}
# These calls only make what follows faster.
WITHOUT_EFFECT = {"reserve", "shrink_to_fit", "assert"}
# These, up to the semicolon.
DECLARATIONS = {"enum", "using", "typedef", "concept", "asm", "namespace", "friend"}
# The namespace of log lines. What they say is no behaviour that each test could know.
LOG = "log"


class Token:
    def __init__(self, kind, text, start):
        self.kind, self.text, self.start, self.end = kind, text, start, start + len(text)

    def __repr__(self):
        return f"{self.kind}:{self.text}"


class Source:
    """The tokens of one file without comments and preprocessor lines; `partner` has the other bracket of each, and
    `fixed` the positions of tokens that must stay as they are."""

    def __init__(self, text):
        self.text = text
        self.tokens = [Token(match.lastgroup if match.lastgroup != "end" else "string", match.group(), match.start())
                       for match in PATTERN.finditer(text)
                       if match.lastgroup not in ("directive", "comment")]
        self.partner, self.fixed = {}, set()
        self._match_brackets()
        self._match_template_arguments()
        self._fix()

    def at(self, position):
        """The text of a token; "" beside the file."""
        return self.tokens[position].text if 0 <= position < len(self.tokens) else ""

    def kind(self, position):
        return self.tokens[position].kind if 0 <= position < len(self.tokens) else ""

    def joined(self, position):
        """Whether there is nothing between a token and the one before it."""
        return position > 0 and self.tokens[position - 1].end == self.tokens[position].start

    def is_binary(self, position):
        """Whether an operator stands by itself, as between two operands."""
        return 0 < position < len(self.tokens) - 1 and not self.joined(position) and not self.joined(position + 1)

    def line(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def _match_brackets(self):
        opened = []
        for position, token in enumerate(self.tokens):
            if token.kind != "mark":
                continue
            if token.text in OPENING:
                opened.append(position)
            elif token.text in CLOSING and opened and OPENING[self.at(opened[-1])] == token.text:
                other = opened.pop()
                self.partner[other], self.partner[position] = position, other

    def _match_template_arguments(self):
        opened = []
        for position, token in enumerate(self.tokens):
            if token.kind != "mark":
                continue
            if token.text == "<" and (self.at(position - 1) == "template" or
                                      (self.joined(position) and self.kind(position - 1) == "name" and
                                       self.at(position - 1) != "operator")):
                opened.append(position)
            elif token.text in (">", ">>") and opened and not self.is_binary(position):
                for _ in token.text:
                    if opened:
                        other = opened.pop()
                        # Of two that are closed by `>>`, the outer one is its partner.
                        self.partner[other], self.partner[position] = position, other
            elif token.text == ";":
                opened = []

    def _fix_range(self, first, last):
        self.fixed.update(range(first, last + 1))

    def _end_of_declaration(self, position):
        """The last token of what begins there: its semicolon, or the end of its body."""
        while position < len(self.tokens):
            if self.at(position) == ";":
                return position
            if self.at(position) in OPENING:
                end = self.partner.get(position, position)
                if self.at(position) == "{" and self.at(end + 1) not in (";", ",", ")", "{"):
                    return end
                position = end
            position += 1
        return len(self.tokens) - 1

    def _fix(self):
        for position, token in enumerate(self.tokens):
            text, following = token.text, self.at(position + 1)
            if text == "<" and position in self.partner:
                self._fix_range(position, self.partner[position])
            elif text == "[" and following == "[":
                self._fix_range(position, self.partner.get(position, position))
            elif token.kind != "name":
                continue
            elif text in ("constexpr", "consteval", "constinit") and self.at(position - 1) == "if":
                self._fix_range(position, self.partner.get(position + 1, position))
            elif text in ("constexpr", "consteval", "constinit"):
                self._fix_range(position, self._end_of_declaration(position))
            elif text in COMPILED | WITHOUT_EFFECT and following == "(":
                self._fix_range(position, self.partner.get(position + 1, position))
            elif text in DECLARATIONS:
                # A namespace that is opened has a body like any other; its name is what stays.
                last = self._end_of_declaration(position) if text != "namespace" else position + 1
                self._fix_range(position, last)
            elif text == "case":
                last = position
                while self.at(last) not in (":", ";", ""):
                    last += 1
                self._fix_range(position, last)
            elif text == LOG and following == "::":
                self._fix_range(position, self._end_of_declaration(position))
