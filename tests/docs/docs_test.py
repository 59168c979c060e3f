#!/usr/bin/env python3
"""The pages of docs/ name every key, code, operator and command, and no link is broken.

With SHOAL_UPDATE_DOCS=1 this rewrites the table of docs/operators.md."""
import collections
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("SHOAL_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BIN = Path(os.environ.get("SHOAL_BIN_DIR", SOURCE / "build" / "release" / "bin"))
DOCS = SOURCE / "docs"
PAGES = sorted(DOCS.glob("*.md")) + [SOURCE / "README.md"]


def ask(*words):
    return subprocess.run([BIN / words[0], *words[1:]], capture_output=True, text=True, timeout=60)


def keys_named_by(error):
    """Asks the reader of model.toml, which lists all its keys when it finds an unknown one."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(f'[models.m]\npath = "p"\n{error}\n')
        config.flush()
        message = ask("shoald", "--config", config.name).stderr
    listed = re.search(r"there are (.*)|is not a key of an? [\w ]+ \(([^;)]*)|of preprocess \((.*)\)", message)
    assert listed, message
    return re.findall(r"[\w]+", listed[1] or listed[2] or listed[3])


def shell_lines(page):
    """The lines of the page's code blocks that have no language."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(), re.M | re.S)
    return [line.strip() for language, text in blocks if not language for line in text.splitlines()]


class Docs(unittest.TestCase):
    def assert_described(self, names, pattern):
        text = (DOCS / "serving-your-checkpoint.md").read_text()
        for name in names:
            with self.subTest(key=name):
                self.assertRegex(text, pattern.format(name))

    def test_every_key_of_model_toml_is_described(self):
        keys = keys_named_by("nonsense = 1")
        self.assertIn("timeout_ms", keys)
        preprocess = keys_named_by("preprocess = {nonsense = 1}")
        self.assertIn("crop", preprocess)
        self.assert_described(keys + preprocess, r"(?m)^\| `{}`")  # a row each
        inputs = keys_named_by('inputs = [{name = "x", shape = [1], nonsense = 1}]')
        self.assertIn("dtype", inputs)
        buckets = keys_named_by('buckets = [{nonsense = 1}]')
        state = keys_named_by('state = [{nonsense = 1}]')
        self.assertIn("out", state)
        self.assert_described(inputs + buckets + state, "`{}`")

    def test_every_status_code_has_its_entry(self):
        codes = re.findall(r"^  k(\w+) = (\d+),", (SOURCE / "shm/include/shoal/status.hpp").read_text(), re.M)
        self.assertGreaterEqual(len(codes), 14)
        headings = re.findall(r"^## (\w+) \((\d+)\)$", (DOCS / "errors.md").read_text(), re.M)
        written = [("OK" if name == "Ok" else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper(), number) for name, number in codes]
        self.assertEqual(headings, written)

    def test_the_table_of_operators_is_the_registry(self):
        table = ask("shoal", "operators", "--markdown").stdout
        self.assertIn("| Convolution |", table)
        page = DOCS / "operators.md"
        if os.environ.get("SHOAL_UPDATE_DOCS"):
            page.write_text(re.sub(r"(?ms)^\| MXNet operator.*\Z", lambda _: table, page.read_text()))
        self.assertTrue(page.read_text().endswith("\n\n" + table), "docs/operators.md is old: SHOAL_UPDATE_DOCS=1 tests/docs/docs_test.py")
        families = sorted({*re.findall(r"\(operators/(\w+)\.md\)", table), "sequence"})
        self.assertGreaterEqual(len(families), 12)
        for family in [*families, "types"]:
            page = DOCS / "operators" / f"{family}.md"
            text = ask("shoal", "operators", *(["--types"] if family == "types" else ["--family", family])).stdout
            if os.environ.get("SHOAL_UPDATE_DOCS"):
                page.parent.mkdir(exist_ok=True)
                page.write_text(text)
            self.assertEqual(page.read_text(), text, f"{page} is old: SHOAL_UPDATE_DOCS=1 tests/docs/docs_test.py")
        self.assertEqual(sorted(page.stem for page in (DOCS / "operators").glob("*.md")), sorted([*families, "types"]))

    def test_every_command_and_option_in_the_docs_exists(self):
        found = collections.Counter()
        for page in PAGES:
            for line in shell_lines(page):
                command = re.match(r"(?:\w+=\S* )*(?:.* -- )?(?:[\w/]*/)?(shoald|shoal) (.*)", line.split("#")[0])
                if not command:
                    continue
                found[page] += 1
                words = command[2].split()
                sub = [words[0]] if command[1] == "shoal" and not words[0].startswith("-") else []
                known = ask(command[1], *sub, "--help")
                with self.subTest(page=page.name, line=line):
                    self.assertEqual(known.returncode, 0, known.stderr)
                    for option in re.findall(r"(?<= )--[a-z-]+", line.split("#")[0]):
                        self.assertRegex(known.stdout, rf"{option}\b")
        # Pages about the use of Shoal show it.
        for page in [SOURCE / "README.md", *(DOCS / f"{name}.md" for name in ("getting-started", "migrating-from-mxnet", "serving-your-checkpoint"))]:
            self.assertIn(page, found, "it shows no command, or none was found")

    def test_every_promise_names_tests_that_exist(self):
        """Of the table of docs/faults.md: a row for each promise of design.md, with the tests that guard it."""
        promises = re.findall(r"^(\d+)\. \*\*", (DOCS / "design.md").read_text(), re.M)
        rows = re.findall(r"^\| (\d+)\. [^|]*\|([^|]*)\|", (DOCS / "faults.md").read_text(), re.M)
        self.assertEqual([number for number, _ in rows], promises)
        self.assertGreaterEqual(len(promises), 10)
        sources = {suffix: "\n".join(path.read_text() for path in (SOURCE / "tests").rglob("*" + suffix)) for suffix in (".cpp", ".py", "CMakeLists.txt")}
        for number, guards in rows:
            names = re.findall(r"`([^`]+)`", guards)
            self.assertTrue(names, f"promise {number} has no test")
            for name in names:
                with self.subTest(promise=number, test=name):
                    if name.endswith(".patch"):
                        self.assertTrue((SOURCE / "tests" / "crash" / name).exists())
                    elif name.startswith("test_"):
                        self.assertTrue(f"def {name}(self)" in sources[".py"], "no such test")
                    elif "." in name:
                        suite, test = name.split(".")
                        self.assertTrue(re.search(rf"\bTEST(_F|_P)?\({suite}, {test}\)", sources[".cpp"]), "no such test")
                    else:
                        self.assertTrue(re.search(rf"add_test\(NAME {name} ", sources["CMakeLists.txt"]), "no such test")

    def test_every_seeded_bug_stands_beside_its_promise(self):
        page = (DOCS / "faults.md").read_text()
        for patch in (SOURCE / "tests" / "crash" / "bugs").glob("*.patch"):
            self.assertIn(f"`bugs/{patch.name}`", page)

    def test_readme_quotes_the_examples(self):
        """Each quoted piece of code stands in its example as it is, and the table names every example."""
        text = (SOURCE / "README.md").read_text()
        section = re.search(r"(?ms)^## Examples$(.*?)^## ", text)[1]
        quotes = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", section)
        quoted = [("cpp", "client/examples/hello.cpp"), ("c", "client/examples/hello.c"), ("python", "client/python/examples/hello.py"),
                  ("cpp", "client/examples/frame_loop.cpp"), ("cpp", "client/examples/coroutine_server.cpp")]
        self.assertEqual([language for language, _ in quotes], [language for language, _ in quoted])
        for (_, code), (_, file) in zip(quotes, quoted):
            with self.subTest(file=file):
                self.assertGreater(len(code.splitlines()), 4)
                self.assertIn(code, (SOURCE / file).read_text())
        linked = set(re.findall(r"\]\(([^)#]+)\)", section))
        examples = {str(path.relative_to(SOURCE)) for path in SOURCE.glob("client/**/examples/*") if path.suffix in (".cpp", ".c", ".py")}
        self.assertGreaterEqual(len(examples), 13)
        self.assertEqual(examples - linked, set())

    def test_every_link_leads_somewhere(self):
        for page in PAGES:
            text = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text())  # in code, ]( begins a lambda of C++
            for target in re.findall(r"\]\(([^)]+)\)", text):
                if target.startswith("http"):
                    continue
                file, _, anchor = target.partition("#")
                path = (page.parent / file).resolve() if file else page
                with self.subTest(page=page.name, link=target):
                    self.assertTrue(path.exists())
                    if anchor:
                        headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
                        self.assertIn(anchor, [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings])


if __name__ == "__main__":
    unittest.main(verbosity=2)
