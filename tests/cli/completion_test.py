#!/usr/bin/env python3
"""What bash and zsh complete for `shoal` and `shoald`."""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest
import unittest.mock

from support import BIN, SHAPES, Daemon, ShoalTest, shoal, write_model

ZSH = shutil.which("zsh")


def help_of(*words, program="shoal"):
    return subprocess.run([BIN / program, *words, "--help"], capture_output=True, text=True).stdout


def options_in(text):
    return re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)", text)


def asked(*words, of="words", **options):
    """What `shoal completion words` answers: the kind of files, and {word: about}."""
    lines = shoal("completion", of, *words, **options).stdout.splitlines()
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
                self.assertEqual(list(asked(command, "-")[1]), options_in(help_of(command)))
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

    def test_presets_are_offered(self):
        for command in ("classify", "detect"):
            found = list(asked(command, "m", "a.png", "--preset", "")[1])
            self.assertLess({"imagenet", "mnist", "mxnet-ssd", "none"}, set(found))
            run = shoal(command, "m", "a.png", "--preset", "nonsense", directory=self.tmp)
            self.assertEqual(run.returncode, 2)
            self.assertIn(",".join(found), run.stderr)

    def test_inputs_of_the_model_are_offered(self):
        two = write_model(self.tmp / "two", "_plus_scalar", 1)
        (two / "model.toml").write_text('inputs = [{name = "data", shape = [-1, 4]}, {name = "other", shape = [1]}]\n')
        with Daemon({"echo": "builtin:identity", "two": two}, wait=False) as daemon:
            daemon.wait_until_it_answers()
            daemon.wait_for("echo", lambda model: model["serving"])
            daemon.wait_for("two", lambda model: model["state"] == "failed")
            for line in (["predict", "echo", "--input", ""], ["predict", "echo", "--json", "--input="], ["predict", "echo", "--input", "da"],
                         ["bench", "echo", "--shape", ""], ["bench", "--rate", "1", "echo", "--input", ""]):
                with self.subTest(line=line):
                    self.assertEqual(asked(*line, directory=daemon.directory), ("none", {"data=": "an input of echo"}))
            for line in (["predict", "--input", ""], ["predict", "two", "--input", ""], ["predict", "nobody", "--input", ""], ["load", "m"]):
                with self.subTest(line=line):
                    self.assertEqual(asked(*line, directory=daemon.directory), ("none", {}))
            os.kill(daemon.process.pid, signal.SIGSTOP)
            self.assertEqual(asked("predict", "echo", "--input", "", directory=daemon.directory), ("none", {}))
            os.kill(daemon.process.pid, signal.SIGCONT)
        for line in (["run", two, "--input", ""], ["bench", two, "--input", "d"], ["bench", two, "--shape", ""]):
            with self.subTest(line=line):
                self.assertEqual(list(asked(*line, directory=self.tmp)[1]), ["data=", "other="])
        with unittest.mock.patch.dict(os.environ, HOME=str(self.tmp)):  # bash and zsh hand over the words as they were typed
            self.assertEqual(list(asked("run", "~/two", "--input", "", directory=self.tmp)[1]), ["data=", "other="])
        self.assertEqual(asked("run", self.tmp / "nothing" / "m", "--input", "", directory=self.tmp), ("none", {}))
        self.assertEqual(asked("bench", two, "--shape", "data=1", directory=self.tmp), ("none", {}))

    def test_the_daemon_has_its_own_options(self):
        options = options_in(help_of(program="shoald"))
        self.assertIn("--config", options)
        for words in ((), ("",), ("-",), ("--model", "m=a", "--")):
            self.assertEqual(sorted(asked(*words, of="daemon-words")[1]), sorted(options))
        for line, files in ((["--model", "m"], "none"), (["--model", "m=a"], "files"), (["--model", "m", "=", "a"], "files"), (["--config", ""], "files"),
                            (["--config="], "files"), (["--worker", ""], "files"), (["--socket-group", ""], "none"), (["nonsense", ""], "none")):
            with self.subTest(line=line):
                self.assertEqual(asked(*line, of="daemon-words"), (files, {}))
        self.assertEqual(list(asked("--log-format", "", of="daemon-words")[1]), ["text", "json"])

    def test_its_help_says_what_it_completes(self):
        told = " ".join(help_of("completion").split())
        self.assertIn("commands, options, models, their inputs, presets and files, for shoal and shoald", told)

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
                             ("shoal run --input data=x-\t", "shoal run --input data=x-one.npy "), ("shoal inspect x\t", "shoal inspect x-one.npy "),
                             ("shoal predict echo --input d\tx-\t", "shoal predict echo --input data=x-one.npy "), ("shoal detect m x --preset dark\t", "--preset darknet "),
                             ("shoald --conf\t", "shoald --config "), ("shoald --config x\t", "shoald --config x-one.npy "), ("shoald --model m=x-\t", "shoald --model m=x-one.npy ")):
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
            terminal.type("\x15shoald --conf\t")
            terminal.read_until("shoald --config ")
            terminal.type("\x15exit\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
