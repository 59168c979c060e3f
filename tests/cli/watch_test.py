#!/usr/bin/env python3
"""What an operator sees: crash reports, `shoal top`, lines of JSON in the log."""
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import unittest

from support import BIN, FAULTY, SOURCE, Daemon, ShoalTest, write_model, write_npy


class Watching(ShoalTest):
    def wait_for(self, what, seconds=20):
        deadline = time.monotonic() + seconds
        while not (result := what()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return result

    def crashes(self, daemon, *words):
        run = daemon.shoal("crashes", "--json", *words)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["crashes"]

    def let_go(self, worker):
        with contextlib.suppress(ProcessLookupError):  # the daemon may have ended a worker that was stopped in a probe
            os.kill(worker, signal.SIGCONT)

    def predict(self, daemon, first):
        file = write_npy(self.tmp / "x.npy", (1, 4), [first, 1, 2, 3])
        return daemon.shoal("predict", "m", "--input", f"data={file}", "--output", self.tmp / "out")

    def test_a_crash_is_reported_with_its_operator_and_what_became_of_the_request(self):
        with Daemon({"m": write_model(self.tmp / "m", "_fault_abort", 666)}, worker=FAULTY) as daemon:
            self.assertIn("no worker has died", daemon.shoal("crashes").stdout)
            self.assertEqual(self.predict(daemon, 1).returncode, 0)
            self.assert_fails(self.predict(daemon, 666), 1, "_fault_abort 'op0'")
            first, second = self.wait_for(lambda: (c := self.crashes(daemon)) and all(d["how"] for d in c) and c)
            for death in (first, second):
                self.assertEqual(death["cause"], "crash")
                self.assertEqual(death["crash"]["signal"], signal.SIGABRT)
                self.assertEqual(death["crash"]["operator"], "_fault_abort 'op0'")
                self.assertEqual(death["how"], "killed by signal 6")
                self.assertEqual(len(death["requests"]), 1)
                self.assertTrue(death["requests"][0]["was_running"])
            self.assertEqual(first["answered"], 1)
            self.assertRegex(first["requests"][0]["decision"], "^runs again")
            self.assertEqual(second["requests"][0]["decision"], "answered POISON")
            self.assertEqual(second["requests"][0]["attempts"], 2)
            text = daemon.shoal("crashes").stdout
            self.assertIn("crash: signal 6 (code -6) at address 0x0 in _fault_abort 'op0'", text)
            self.assertIn("answered POISON", text)
            self.assertEqual(daemon.model("m")["quarantined"], 1)
            self.assertIn("1 inputs are refused because they crashed workers", daemon.shoal("status").stdout)
            self.assertEqual(len(self.crashes(daemon, "--model", "m")), 2)
            self.assert_fails(daemon.shoal("crashes", "--model", "other"), 1, "no model 'other' (served: m)")
            self.assert_fails(daemon.shoal("trace", "--model", "other", "--chrome", self.tmp / "t.json"), 1, "no model 'other'")
            self.assertEqual(daemon.shoal("unload", "m").returncode, 0)
            self.assertEqual(len(self.crashes(daemon, "--model", "m")), 2)

    def test_a_model_whose_workers_crash_by_themselves_rests_until_one_answers_a_probe(self):
        with Daemon({"m": write_model(self.tmp / "m", "_fault_later", 666)}, worker=FAULTY) as daemon:
            self.assertEqual(daemon.model("m")["breaker"], {"state": "closed", "crashes": 0, "reason": None})

            deaths = 0

            def rest():
                """Returns the refused request and what the daemon said while the model rested. Stops its worker, so that it rests on."""
                nonlocal deaths
                refused = self.predict(daemon, 666)
                if "resting" not in refused.stderr:
                    deaths = self.wait_for(lambda: (now := daemon.model("m")["counts"]["worker_deaths"]) > deaths and now)
                    return None
                worker = self.wait_for(lambda: [w for w in daemon.model("m")["workers"] if w["state"] == "ready"])[0]["pid"]
                os.kill(worker, signal.SIGSTOP)
                model, text = daemon.model("m"), daemon.shoal("status").stdout
                if model["breaker"]["state"] != "closed" and "resting " in text:
                    return refused, model, text, worker
                self.let_go(worker)  # the probe was answered first

            refused, model, text, worker = self.wait_for(rest, 150)  # until the machine lets five of them start and die within 10 s
            self.assertRegex(refused.stderr, "UNAVAILABLE.*'m' is resting: 5 of its workers crashed within 10 s.*signal 6")
            self.assertEqual((model["state"], model["serving"]), ("resting", False))
            self.assertIn("signal 6", model["breaker"]["reason"])
            self.assertGreaterEqual(model["counts"]["worker_deaths"], 5)
            self.assertEqual(model["counts"]["poison"], 0)
            self.assertRegex(text, r"(?m)^m: resting, .*\n(.*\n)*  resting .*signal 6")
            self.assert_fails(daemon.shoal("status", "--ready"), 3, "'m' is resting")
            self.let_go(worker)
            self.wait_for(lambda: daemon.model("m")["breaker"]["state"] == "closed", 60)
            self.assertEqual(self.predict(daemon, 1).returncode, 0)
            self.assertEqual(daemon.model("m")["state"], "ready")

    def test_a_kill_from_outside_is_told_from_a_crash(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            for number, name in ((signal.SIGKILL, "killed by signal 9 from outside"), (signal.SIGSEGV, f"signal 11 sent by process {os.getpid()}")):
                worker = self.wait_for(lambda: [w for w in daemon.model("echo")["workers"] if w["state"] == "ready"])[0]["pid"]
                os.kill(worker, number)
                death = self.wait_for(lambda: [d for d in self.crashes(daemon) if d["pid"] == worker and d["how"]])[0]
                self.assertEqual(death["cause"], "killed")
                self.assertEqual(death["what"], name)
                self.assertEqual(death["requests_held"], 0)
                self.assertGreaterEqual(death["unrouted_ns"], death["noticed_ns"])

    def test_the_last_request_of_a_killed_worker_is_in_the_trace(self):
        with Daemon({"m": write_model(self.tmp / "m", "_fault_spin", 3000)}, worker=FAULTY) as daemon:
            worker = self.wait_for(lambda: [w for w in daemon.model("m")["workers"] if w["state"] == "ready"])[0]["pid"]
            thread = threading.Thread(target=lambda: self.predict(daemon, 1))
            thread.start()
            try:
                running = self.wait_for(lambda: daemon.model("m")["workers"][0]["lanes"][0]["running_request"])
                time.sleep(0.1)
                os.kill(worker, signal.SIGKILL)
                self.wait_for(lambda: [d for d in self.crashes(daemon) if d["pid"] == worker and d["how"]])
                file = self.tmp / "trace.json"
                run = daemon.shoal("trace", "--chrome", file)
                self.assertEqual(run.returncode, 0, run.stderr)
                events = json.loads(file.read_text())["traceEvents"]
                slices = [e for e in events if e["ph"] == "X" and e["pid"] == worker]
                self.assertEqual([e["name"] for e in slices], [f"request {running}"])
                self.assertEqual(slices[0]["args"]["unfinished"], "worker died")
                self.assertGreater(slices[0]["dur"], 90_000)
                self.assertLess(slices[0]["dur"], 2_900_000)
                names = [e["args"]["name"] for e in events if e["ph"] == "M" and e["pid"] == worker]
                self.assertIn("died: killed by signal 9", names[0])
            finally:
                thread.join()
            self.assert_fails(daemon.shoal("trace", "--pid", "1", "--chrome", self.tmp / "none.json"), 1, "pid 1")

    def test_top_shows_rates_of_its_interval_and_is_plain_away_from_a_terminal(self):
        with Daemon({"m": f"{write_model(self.tmp / 'm', '_fault_spin', 20)},workers=2"}, worker=FAULTY) as daemon:
            idle = json.loads(daemon.shoal("top", "--once", "--json", "--interval", "0.2").stdout)["models"][0]
            self.assertEqual(idle["requests_per_s"], 0)
            self.assertIsNone(idle["p99_ms"])
            self.assertEqual((idle["workers_ready"], idle["workers_wanted"], idle["state"]), (2, 2, "ready"))
            is_over = threading.Event()

            def load():
                while not is_over.is_set():
                    self.predict(daemon, 1)
            thread = threading.Thread(target=load)
            thread.start()
            try:
                busy = self.wait_for(lambda: (m := json.loads(daemon.shoal("top", "--once", "--json").stdout)["models"][0])["p50_ms"] and m)
            finally:
                is_over.set()
                thread.join()
            self.assertGreater(busy["requests_per_s"], 0)
            self.assertGreater(busy["p50_ms"], 15)
            self.assertGreater(sum(w["cpu"] for w in busy["workers"]), 0)
            self.assertGreater(busy["workers"][0]["pss_bytes"], 100_000)
            text = daemon.shoal("top", "--once", "--interval", "0.1").stdout
            self.assertNotIn("\033", text)
            self.assertRegex(text, r"(?m)^m 1 +ready ")
        self.assert_fails(daemon.shoal("top", "--once"), 3)

    def test_every_command_ends_when_the_daemon_stands_still(self):
        """Commands that begin while it stands still, and those that it leaves waiting."""
        file = write_npy(self.tmp / "x.npy", (4,), [1, 2, 3, 4])
        predict = ["predict", "echo", "--input", f"data={file}", "--output", self.tmp / "out"]
        picture = str(next((SOURCE / "tools/shapes/pictures").glob("*.png")))
        commands = [["status"], ["top", "--once"], ["crashes"], ["trace", "--chrome", self.tmp / "t.json"], ["load", "m=builtin:identity"],
                    ["reload", "echo"], ["unload", "echo"], ["scale", "echo", "2"], ["drain", "echo"], ["stop"], predict, ["bench", "echo"], ["classify", "echo", picture]]
        never = self.tmp / "zygote"
        never.write_text("#!/bin/sh\nkill -STOP $$\n")
        never.chmod(0o700)
        with Daemon({"echo": "builtin:identity"}, worker=never, wait=False) as daemon, contextlib.ExitStack() as stack:
            daemon.wait_until_it_answers()

            def start(words):
                process = subprocess.Popen([BIN / "shoal", *map(str, words)], env=dict(os.environ, SHOAL_DIR=str(daemon.directory)),
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                stack.callback(process.kill)
                return process

            # These wait for a model that loads; `top` has printed once.
            left_waiting = [start(words) for words in (["load", "m=builtin:identity"], predict, ["top", "--json", "--interval", "0.1"])]
            self.assertIn("interval_s", left_waiting[2].stdout.readline())
            self.wait_for(lambda: daemon.status()["supervisor"]["clients"] >= 4 and len(daemon.status()["models"]) == 2)
            daemon.process.send_signal(signal.SIGSTOP)
            try:
                for process in left_waiting + [start(words) for words in commands]:
                    with self.subTest(command=process.args[1]):
                        _, error = process.communicate(timeout=30)
                        self.assertEqual(process.returncode, 3, error)
                        self.assertIn(str(daemon.directory), error.splitlines()[0])
                        self.assertRegex(error, "control_timeout|connect_timeout")
            finally:
                daemon.process.send_signal(signal.SIGCONT)

    def test_every_line_of_the_log_is_json_when_asked_for(self):
        evil = self.tmp / 'no"such\nfile {} \\'
        daemon = Daemon({"echo": "builtin:identity", "bad": evil}, "--log-format", "json", wait=False)
        with daemon:
            self.wait_for(lambda: [w for w in json.loads(daemon.shoal("status", "--json").stdout or '{"models": []}')["models"]
                                   if w["state"] == "ready"])
            worker = self.wait_for(lambda: [w for w in daemon.model("echo")["workers"] if w["state"] == "ready"])[0]["pid"]
            os.kill(worker, signal.SIGKILL)
            self.wait_for(lambda: [d for d in self.crashes(daemon) if d["how"]])
            daemon.process.send_signal(signal.SIGTERM)
            daemon.process.wait(15)
            daemon.log.seek(0)
            lines = [json.loads(line) for line in daemon.log]
        events = {line["event"]: line for line in lines}
        self.assertIn(str(evil), events["model_failed"]["reason"])
        self.assertEqual(events["worker_died"]["pid"], worker)
        self.assertEqual(events["worker_died"]["cause"], "killed")
        self.assertEqual(events["serving"]["process"], daemon.process.pid)
        wrong = subprocess.run([BIN / "shoald", "--log-format", "xml"], capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
