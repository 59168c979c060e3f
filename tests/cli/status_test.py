#!/usr/bin/env python3
"""`shoal status --watch`, and what commands say while they work."""
import json
import os
import re
import signal
import subprocess
import unittest

from support import BIN, FAULTY, Daemon, ShoalTest, run_on_a_terminal, shoal, start, write_model, write_npy


class Copied(ShoalTest):
    def test_only_bytes_that_travelled_in_messages_are_told(self):
        empty, full = write_npy(self.tmp / "empty.npy", (0, 4), []), write_npy(self.tmp / "full.npy", (1, 4), [1, 2, 3, 4])
        with Daemon({"echo": "builtin:identity"}) as daemon:
            for file, told in ((empty, None), (full, "the inputs of 0 requests (0 B) and the outputs of 1 answers (16 B) ")):
                run = daemon.shoal("predict", "echo", "--input", f"data={file}", "--output", self.tmp / "out")
                self.assertEqual(run.returncode, 0, run.stderr)
                lines = [line for line in daemon.shoal("status").stdout.splitlines() if line.startswith("  copied")]
                self.assertEqual(len(lines), told is not None, lines)
            self.assertIn(told, lines[0])


class Watch(ShoalTest):
    def test_prints_one_state_below_the_other(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            for words, how in ((["--watch", "0.1", "--json"], signal.SIGINT), (["--watch=0.1", "--json"], signal.SIGTERM)):
                process = start(["status", *words], daemon.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                uptimes = [json.loads(process.stdout.readline())["supervisor"]["uptime_s"] for _ in range(3)]
                self.assertGreater(uptimes[2] - uptimes[0], 0.19)
                process.send_signal(how)
                _, error = process.communicate(timeout=30)
                self.assertEqual((process.returncode, error), (0, ""))
            process = start(["status", "--watch", "0.1"], daemon.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            text = ""
            while text.count("daemon: pid") < 3:
                text += process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
            self.assertNotIn("\033", text)
            self.assertEqual(process.returncode, 0)

    def test_draws_in_place_on_a_terminal(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            for words in (["status", "--watch", "0.1"], ["top", "--interval", "0.1"]):
                code, text = run_on_a_terminal(words, daemon.directory, r"(?s)(\033\[H.*){3}", signal.SIGINT)
                self.assertEqual(code, 0)
                self.assertRegex(text, r"\033\[Hdaemon: pid")
                self.assertNotIn("\033[2J", text)  # that would flicker

    def test_waits_for_the_next_daemon_and_says_so(self):
        self.assert_fails(shoal("status", "--watch", directory=self.tmp), 3, self.tmp)
        with Daemon({"echo": "builtin:identity"}) as daemon:
            process = start(["status", "--watch", "0.1", "--json"], daemon.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            first = json.loads(process.stdout.readline())["supervisor"]["pid"]
            self.assertEqual(first, daemon.process.pid)
            daemon.process.kill()
            daemon.process.wait()
            self.assertRegex(process.stderr.readline(), "waiting for a daemon: .*" + re.escape(str(daemon.directory)))
            daemon.process = subprocess.Popen([BIN / "shoald", "--model", "echo=builtin:identity"], env=dict(os.environ, SHOAL_DIR=str(daemon.directory)),
                                              stderr=daemon.log)
            pid = first
            while pid == first:
                pid = json.loads(process.stdout.readline())["supervisor"]["pid"]
            self.assertEqual(pid, daemon.process.pid)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 0)

    def test_wrong_words_are_usage_errors(self):
        for words in (["--watch", "0"], ["--watch", "nan"], ["--watch", "-1"], ["--watch", "1x"], ["--watch", "1", "--ready"]):
            with self.subTest(words=words):
                self.assertEqual(shoal("status", *words, directory=self.tmp).returncode, 2)


class Working(ShoalTest):
    def test_a_terminal_shows_what_takes_longer_than_a_second(self):
        slow = write_model(self.tmp / "slow", "_fault_spin", 2500)
        x = write_npy(self.tmp / "x.npy", (1, 4), [1, 2, 3, 4])
        predict = ["predict", "m", "--input", f"data={x}", "--output", self.tmp / "out"]
        with Daemon({"m": f"{slow},tuning_ms=0", "echo": "builtin:identity"}, worker=FAULTY) as daemon:
            code, text = run_on_a_terminal(predict, daemon.directory, "$")
            self.assertEqual(code, 0, text)
            self.assertRegex(text, r"\rwaiting for model 'm', \d+ s\033\[K")
            self.assertRegex(text, r"\r\033\[K")  # and nothing of it stays
            self.assertLess(text.rindex("waiting for model"), text.index("float32"))
            process = start(predict, daemon.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(process.communicate(timeout=60)[1], "")  # no terminal: nothing
            code, text = run_on_a_terminal(["bench", "echo", "--in-flight", "1", "--duration", "2", "--warmup", "0"], daemon.directory, "$")
            self.assertEqual(code, 0, text)
            self.assertRegex(text, r"\rmeasuring echo: load 1 of 1, \d+ answers, \d s")


if __name__ == "__main__":
    unittest.main(verbosity=2)
