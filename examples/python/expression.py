"""Integer expressions of launch rules, as package ptx/manifest documents them.

    expr    = term { ( "+" | "-" ) term }
    term    = factor { ( "*" | "/" ) factor }
    factor  = integer | name | function "(" expr { "," expr } ")" | "(" expr ")"

Values are 64-bit; division rounds down, of a dividend that is not negative by a
positive divisor. Standard library only.
"""

import re

_TOKEN = re.compile(r" *(?:(\d+)|([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*)|([-+*/(),]))")

_ARITY = {"ceildiv": (2, 2), "roundup": (2, 2), "min": (1, 16), "max": (1, 16), "if": (3, 3)}


class RuleError(ValueError):
    """A rule that cannot be read, or that has no value for these arguments."""


def evaluate(text, values):
    """Returns the value of an expression; values has that of every name."""
    parser = _Parser(text)
    tree = parser.expression()
    if parser.token is not None:
        raise RuleError(f"{text!r}: {parser.token!r} was not expected")
    try:
        return _value(tree, values)
    except RuleError as err:
        raise RuleError(f"{text!r}: {err}") from None


class _Parser:
    """Makes a tree of an expression: ("number", n), ("name", n) or (operation, operand, …)."""

    def __init__(self, text):
        self.text, self.at = text, 0
        self.next()

    def next(self):
        """Moves on to the next token, an int, a str or None at the end."""
        rest = self.text[self.at:]
        if not rest.strip(" "):
            self.token = None
            return
        match = _TOKEN.match(rest)
        if not match:
            raise RuleError(f"{self.text!r}: {rest!r} was not expected")
        self.at += match.end()
        number, name, sign = match.groups()
        self.token = int(number) if number else name or sign

    def expect(self, sign):
        if self.token != sign:
            raise RuleError(f"{self.text!r}: {self.token!r} was found where {sign!r} must follow")
        self.next()

    def expression(self):
        return self.chain(("+", "-"), lambda: self.chain(("*", "/"), self.factor))

    def chain(self, signs, operand):
        left = operand()
        while self.token in signs:
            sign = self.token
            self.next()
            left = (sign, left, operand())
        return left

    def factor(self):
        token = self.token
        if isinstance(token, int):
            self.next()
            return ("number", token)
        if token == "(":
            self.next()
            inner = self.expression()
            self.expect(")")
            return inner
        if token is None or not token[0].isalpha():
            raise RuleError(f"{self.text!r}: {token!r} was found where a number, a name or a bracket must follow")
        self.next()
        if self.token != "(":
            return ("name", token)
        if token not in _ARITY:
            raise RuleError(f"{self.text!r}: there is no function {token!r}")
        arguments = []
        while not arguments or self.token == ",":
            self.next()  # the bracket or the comma
            arguments.append(self.expression())
        self.expect(")")
        least, most = _ARITY[token]
        if not least <= len(arguments) <= most:
            raise RuleError(f"{self.text!r}: {token} has {len(arguments)} arguments, must have {least} to {most}")
        return (token, *arguments)


def _value(tree, values):
    operation, *operands = tree
    if operation == "number":
        return _bounded(operands[0])
    if operation == "name":
        if operands[0] not in values:
            raise RuleError(f"{operands[0]!r} is not known")
        return values[operands[0]]
    if operation == "if":  # only one of the two is evaluated
        condition, yes, no = operands
        return _value(yes if _value(condition, values) != 0 else no, values)
    result, *rest = (_value(operand, values) for operand in operands)
    for operand in rest:
        result = _bounded(_apply(operation, result, operand))
    return result


def _apply(operation, a, b):
    if operation == "+":
        return a + b
    if operation == "-":
        return a - b
    if operation == "*":
        return a * b
    if operation == "min":
        return min(a, b)
    if operation == "max":
        return max(a, b)
    if a < 0 or b <= 0:
        raise RuleError(f"{a} is divided by {b}: the one must be at least 0, the other more")
    if operation == "/":
        return a // b
    quotient = (a + b - 1) // b
    return quotient if operation == "ceildiv" else quotient * b


def _bounded(value):
    if not -(1 << 63) <= value < 1 << 63:
        raise RuleError("the result does not fit 64 bits")
    return value
