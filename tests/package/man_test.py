#!/usr/bin/env python3
"""The manual pages are well formed and contain everything that --help says."""
import gzip
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

BUILD = Path(os.environ.get("SHOAL_BUILD_DIR", Path(__file__).resolve().parents[2] / "build" / "release"))
PAGES = {"shoal": 1, "shoald": 8}


def help_of(binary):
    """The texts of --help, including those of the commands."""
    def ask(*words):
        return subprocess.run([BUILD / "bin" / binary, *words, "--help"], check=True, capture_output=True, text=True).stdout

    top = ask()
    commands = re.findall(r"^  (\w+) ", top.partition("Subcommands:\n")[2].partition("\n\n")[0], re.M)
    return [top] + [ask(command) for command in commands]


def words_of(text):
    return re.findall(r"[\w/.$@%{}\[\]:=*+-]+", text)


@unittest.skipUnless(shutil.which("man"), "no man here (Debian: man-db)")
class Manual(unittest.TestCase):
    def rendered(self, page):
        environment = dict(os.environ, MANWIDTH="200", LC_ALL="C.UTF-8", MAN_KEEP_FORMATTING="", GROFF_NO_SGR="")
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", page], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_every_word_of_help_is_in_the_page(self):
        for name, section in PAGES.items():
            page = self.rendered(BUILD / "man" / f"{name}.{section}")
            missing = {word for text in help_of(name) for word in words_of(text)} - set(words_of(page))
            with self.subTest(page=name):
                # "[OPTIONS] SUBCOMMAND" and headings of CLI11's own are not taken over.
                self.assertLessEqual(missing, {"Usage:", "Options:", "Positionals:", "Subcommands:", "SUBCOMMAND"})

    def test_the_compressed_page_is_the_page(self):
        for name, section in PAGES.items():
            page = BUILD / "man" / f"{name}.{section}"
            self.assertEqual(gzip.decompress(page.with_name(page.name + ".gz").read_bytes()), page.read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
