#!/usr/bin/env python3
"""docs/where-to-begin.md names functions that exist, and each of its stories has at most 300 lines of code."""
import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "where-to-begin.md"
STORIES = ["Load once", "Fork many", "Answer once", "Through a worker", "A weight, from file to kernel"]
MOST_LINES = 300


def lines_of(text, name):
    """How many lines each definition of this name has, with the comment above it. The closing brace stands below the beginning of
    the signature, as clang-format puts it.

    A name may end with the beginning of the parameters. A function that is written inside of its class has no "Class::" there."""
    scope, function = re.match(r"(?:([\w:]+)::)?(\w+(?:\(.*)?)$", name).groups()
    if scope and not re.search(rf"^class {scope}\b", text, re.M):
        function = f"{scope}::{function}"
    start = re.escape(function) + ("" if "(" in function else r"\(")
    definition = rf"(?:^ *//.*\n)*^( *)(?!return )(?:[\w:<>,&*\[\] ]+ )?{start}[^;{{}}]*\{{(?:.*\}}\n|.*\n(?:.*\n)*?\1\}}\n)"
    return [found[0].count("\n") for found in re.finditer(definition, text, re.M)]


def problems():
    for title in STORIES:
        story = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
        functions = re.findall(r"\]\((\S+)\) `([^`]+)`", story[1] if story else "")
        total = 0
        for file, name in functions:
            found = lines_of((PAGE.parent / file).read_text(), name)
            total += sum(found)
            if len(found) != 1:
                yield f"{title}: {file} has {len(found)} definitions of {name}, and should have one"
        print(f"{title}: {len(functions)} functions, {total} lines")
        if not 0 < total <= MOST_LINES:
            yield f"{title}: {total} lines, and 1 to {MOST_LINES} are allowed: shorten a function, or choose others"


sys.exit("\n".join(problems()) or 0)
