"""A terminal of 80×24 that interprets the output of ncurses for the terminal `linux`; its content as text."""

import re

PARAMETERS = re.compile(r"\x1b\[([?>0-9;]*)([A-Za-z@`])")


class Screen:
    def __init__(self, columns=80, rows=24):
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.x = self.y = 0
        self.inserts = False
        self.unread = ""

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def text(self):
        return "\n".join(self.lines())

    def feed(self, text):
        self.unread += text
        while self.unread:
            used = self.take(self.unread)
            if used == 0:
                return  # the rest of a sequence is still to come
            self.unread = self.unread[used:]

    def take(self, text):
        """Executes the first item; returns its number of characters."""
        c = text[0]
        if c == "\x1b":
            if len(text) < 2:
                return 0
            if text[1] == "[":
                found = PARAMETERS.match(text)
                if not found:
                    return 0 if len(text) < 32 else self.refuse(text)
                self.control(found[1], found[2])
                return found.end()
            if text[1] == "]":
                # "P" and seven digits is a colour of the terminal `linux`, "R" takes all of them back.
                return 3 if len(text) > 2 and text[2] == "R" else 10 if len(text) >= 10 else 0
            if text[1] in "()":
                return 3 if len(text) > 2 else 0
            if text[1] == "M":
                self.y = max(self.y - 1, 0)
            return 2
        if c == "\r":
            self.x = 0
        elif c == "\n":
            self.y = min(self.y + 1, self.rows - 1)
        elif c == "\b":
            self.x = max(self.x - 1, 0)
        elif c == "\t":
            self.x = min((self.x // 8 + 1) * 8, self.columns - 1)
        elif c >= " ":
            if self.x >= self.columns:
                self.x, self.y = 0, min(self.y + 1, self.rows - 1)
            row = self.cells[self.y]
            if self.inserts:
                row.insert(self.x, c)
                row.pop()
            row[self.x] = c
            self.x += 1
        return 1

    @staticmethod
    def refuse(text):
        raise ValueError(f"not understood: {text[:32]!r}")

    def control(self, parameters, letter):
        if parameters == "4" and letter in "hl":
            self.inserts = letter == "h"
            return
        if parameters.startswith(("?", ">")) or letter in "mhlrcg":
            return
        numbers = [int(x) if x else 0 for x in parameters.split(";")]
        n = numbers[0] or 1
        row = self.cells[self.y]
        x = min(self.x, self.columns - 1)
        if letter in "Hf":
            self.y = min(n, self.rows) - 1
            self.x = min((numbers[1] if len(numbers) > 1 else 1) or 1, self.columns) - 1
        elif letter == "A":
            self.y = max(self.y - n, 0)
        elif letter in "Be":
            self.y = min(self.y + n, self.rows - 1)
        elif letter in "Ca":
            self.x = min(x + n, self.columns - 1)
        elif letter == "D":
            self.x = max(x - n, 0)
        elif letter in "G`":
            self.x = min(n, self.columns) - 1
        elif letter == "d":
            self.y = min(n, self.rows) - 1
        elif letter == "J":
            if numbers[0] == 2:
                self.cells = [[" "] * self.columns for _ in range(self.rows)]
            else:
                row[x:] = [" "] * (self.columns - x)
                for below in self.cells[self.y + 1:]:
                    below[:] = [" "] * self.columns
        elif letter == "K":
            if numbers[0] == 1:
                row[:x + 1] = [" "] * (x + 1)
            else:
                row[x:] = [" "] * (self.columns - x)
        elif letter == "X":
            for i in range(x, min(x + n, self.columns)):
                row[i] = " "
        elif letter == "P":
            row[x:] = row[x + n:] + [" "] * min(n, self.columns - x)
        elif letter == "@":
            row[x:] = ([" "] * n + row[x:])[:self.columns - x]
        elif letter == "L":
            for _ in range(n):
                self.cells.insert(self.y, [" "] * self.columns)
                self.cells.pop()
        elif letter == "M":
            for _ in range(n):
                self.cells.pop(self.y)
                self.cells.append([" "] * self.columns)
        else:
            self.refuse(f"\x1b[{parameters}{letter}")
