#!/usr/bin/env python3
"""What bash and zsh complete for `shoal`."""
import os
import pty
import re
import select
import shutil
import subprocess
import time
import unittest

from support import BIN, SHAPES, Daemon, ShoalTest, shoal

ZSH = shutil.which("zsh")


def help_of(*words):
    return subprocess.run([BIN / "shoal", *words, "--help"], capture_output=True, text=True).stdout


def asked(*words, **options):
    """What `shoal completion words` answers: the kind of files, and {word: about}."""
    lines = shoal("completion", "words", *words, **options).stdout.splitlines()
    return lines[0], dict(line.split("\t") for line in lines[1:])


class Terminal:
    """A shell in a terminal of its own, for a with-statement. Its prompt is "% "."""

    def __init__(self, words, directory, **environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            keep = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
            os.execve(words[0], words, dict(keep, TERM="dumb", PATH=f"{BIN}:/usr/bin:/bin", **environment))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)
        os.waitpid(self.pid, 0)

    def type(self, text):
        os.write(self.fd, text.encode())

    def read_until(self, pattern, seconds=30):
        text, deadline = "", time.monotonic() + seconds
        while not re.search(pattern, text):
            if not select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no {pattern!r} in {text!r}")
            text += os.read(self.fd, 4096).decode(errors="replace")
        return text


class Words(ShoalTest):
    def test_every_command_and_every_option_is_offered(self):
        commands = re.findall(r"(?m)^  ([a-z]+) {2,}\S", help_of().split("Subcommands:")[1])
        self.assertIn("bench", commands)
        files, words = asked("")
        self.assertEqual((files, list(words)), ("none", commands))
        for command in commands:
            with self.subTest(command=command):
                options = re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)", help_of(command))
                self.assertEqual(list(asked(command, "-")[1]), options)
        self.assertIn("print JSON", asked("predict", "--")[1]["--json"])

    def test_values_follow_from_their_names(self):
        with Daemon({"echo": "builtin:identity", "shapes": SHAPES}) as daemon:
            def words(*line):
                return asked(*line, directory=daemon.directory)
            for line in (["predict", ""], ["predict", "--json", ""], ["scale", "sh"], ["unload", ""], ["crashes", "--model", ""], ["crashes", "--model="]):
                with self.subTest(line=line):
                    files, found = words(*line)
                    self.assertEqual((files, list(found)), ("none", ["echo", "shapes"]))
            self.assertEqual(words("classify", ""), ("files", dict.fromkeys(["echo", "shapes"], "a model of the running daemon")))
        for line, files in ((["inspect", ""], "files"), (["classify", "shapes", ""], "files"), (["classify", "shapes", "a.png", "b"], "files"),
                            (["run", "m", "--output", ""], "directories"), (["run", "m", "--input", "data=x"], "files"),
                            (["run", "m", "--input", "data", "=", "x"], "files"), (["load", "m=a/b"], "files"), (["load", "m", "=", "a/b"], "files"),
                            (["scale", "shapes", ""], "none"), (["status", ""], "none"), (["nonsense", ""], "none"), (["inspect", "m", ""], "none"),
                            (["bench", "m", "--csv", ""], "files"), (["run", "--threads", ""], "none")):
            with self.subTest(line=line):
                self.assertEqual(asked(*line, directory=self.tmp), (files, {}))
        self.assertEqual(list(asked("run", "m", "--precision", "")[1]), ["f32", "f32-fast", "bf16", "auto"])
        self.assertEqual(list(asked("run", "--precision=")[1]), ["f32", "f32-fast", "bf16", "auto"])
        self.assertEqual(list(asked("completion", "")[1]), ["bash", "zsh"])

    def test_any_words_get_an_answer(self):
        for line in ([], ["--"], ["--", ""], ["run", "--", "-"], ["="], ["", ""], ["run", "=", "="], ["--nonsense", "x", ""], ["run", "--nonsense="], ["\xff" * 5000]):
            self.assertEqual(shoal("completion", "words", *line, directory=self.tmp).returncode, 0)
        self.assert_fails(shoal("completion", "fish"), 2)


class InAShell(ShoalTest):
    """A real shell in a terminal, in which somebody presses Tab."""

    def setUp(self):
        super().setUp()
        (self.tmp / "x-one.npy").touch()

    def lines(self, terminal):
        """What is typed, what must stand there after Tab, and what else."""
        for typed, whole in (("shoal stat\t", "shoal status "), ("shoal predict ec\t", "shoal predict echo "), ("shoal run --prec\t", "shoal run --precision "),
                             ("shoal run --precision f32-\t", "shoal run --precision f32-fast "), ("shoal run --precision=b\t", "shoal run --precision=bf16 "),
                             ("shoal run --input data=x-\t", "shoal run --input data=x-one.npy "), ("shoal inspect x\t", "shoal inspect x-one.npy ")):
            with self.subTest(typed=typed):
                terminal.type(typed)
                terminal.read_until(re.escape(whole))
                terminal.type("\x15")  # removes the line

    def test_bash(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            with Terminal(["/bin/bash", "--norc", "--noprofile", "-i"], self.tmp, SHOAL_DIR=str(daemon.directory), PS1="% ") as terminal:
                terminal.type('bind "set enable-bracketed-paste off"; eval "$(shoal completion bash)"; echo rea""dy\n')
                terminal.read_until("ready")
                self.lines(terminal)
                terminal.type("exit\n")

    @unittest.skipUnless(ZSH, "no zsh here")
    def test_zsh(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            with Terminal([ZSH, "-f", "-i"], self.tmp, SHOAL_DIR=str(daemon.directory), PS1="% ") as terminal:
                terminal.type("autoload -U compinit && compinit -D -u; source <(shoal completion zsh); echo rea''dy\n")
                terminal.read_until("ready")
                self.lines(terminal)
                terminal.type("exit\n")

    @unittest.skipUnless(ZSH, "no zsh here")
    def test_zsh_finds_the_installed_function(self):
        functions = self.tmp / "functions"
        functions.mkdir()
        (functions / "_shoal").write_text(shoal("completion", "zsh").stdout)
        with Terminal([ZSH, "-f", "-i"], self.tmp, PS1="% ") as terminal:
            terminal.type(f"fpath=({functions} $fpath); autoload -U compinit && compinit -D -u; echo rea''dy\n")
            terminal.read_until("ready")
            terminal.type("shoal stat\t")
            terminal.read_until("shoal status ")
            terminal.type("\x15exit\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
