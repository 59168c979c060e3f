#!/usr/bin/env python3
"""Servers and proxies that mean harm: what they send is bounded, goes nowhere else, and learns no secrets."""
import gzip
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from doubles import Double, Fault, S3Double, WebHdfs
from fetching import BIN, PREFIX, SHAPES, FetchTest, main, sums_of
from signatures import KEYS, REGION

SYMBOL, PARAMS = f"/m/{PREFIX}-symbol.json", f"/m/{PREFIX}-0000.params"
SECRET = "s3cr3t"


class Hostile(FetchTest):
    def setUp(self):
        super().setUp()
        self.double = self.enterContext(Double().serve(SHAPES, "/m"))
        self.url = f"{self.double.url}/m/{PREFIX}"

    def breaks(self, path, send):
        """The server answers with what `send` writes, until the client hangs up."""
        def answer(handler, _):
            handler.close_connection = True
            send(handler.wfile)
        self.double.faults[path] = Fault("do", answer)

    def peak_mb(self, *words, **environment):
        """Runs a command; returns it and the most memory that it and its children had at a time."""
        run = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys\n"
                              "code = subprocess.run(sys.argv[1:]).returncode\n"
                              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)\n"
                              "sys.exit(code)",
                              BIN / "shoal", *map(str, words)], env={**self.environment, **environment}, capture_output=True, text=True, timeout=120)
        return run, int(run.stdout.splitlines()[-1])

    # ---- answers without an end ----

    def test_headers_without_an_end(self):
        def same(out):
            out.write(b"HTTP/1.1 200 OK\r\n")
            while not self.double.ended.is_set():
                out.write(b"X: " + b"x" * 1000 + b"\r\n")

        def interim(out):
            while not self.double.ended.is_set():
                out.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

        def one_line(out):
            out.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not self.double.ended.is_set():
                out.write(b"x" * 10_000)
        for send in (same, interim, one_line):
            with self.subTest(send.__name__):
                self.breaks(SYMBOL, send)
                run, peak = self.peak_mb("fetch", self.url, self.tmp / "out")
                self.assert_fails(run, 1, f"{self.url}-symbol.json")
                self.assertLess(peak, 100)

    def test_drops_end_at_the_deadline(self):
        def drops(out):
            out.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not self.double.ended.wait(0.2):
                out.write(b"x")
        for path in (SYMBOL, "/m/SHA256SUMS"):
            self.double.faults.clear()
            self.breaks(path, drops)
            begin = time.monotonic()
            self.assert_refused(self.fetch(self.url, SHOAL_FETCH_TIMEOUT_S="3"), self.double.url + path, "3 s")
            self.assertLess(time.monotonic() - begin, 30)

    def test_a_compressed_body_that_grows(self):
        bomb = gzip.compress(bytes(300 << 20), 9)

        def send(out):
            out.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n%x\r\n" % len(bomb) + bomb + b"\r\n0\r\n\r\n")
        self.breaks(SYMBOL, send)
        run, peak = self.peak_mb("fetch", self.url, self.tmp / "out", SHOAL_FETCH_LIMIT_MB="5")
        self.assert_fails(run, 1, f"{self.url}-symbol.json")
        self.assertLess(peak, 100)
        self.assertLess(sum(file.stat().st_size for file in self.cache.rglob("*")), 6 << 20)

    def test_lists_without_an_end(self):
        def pages(handler, query):
            number = int(query.get("continuation-token") or 0)
            keys = "".join(f"<Contents><Key>m{number}-{i}</Key></Contents>" for i in range(100_000))
            handler.send(200, f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{number + 1}</NextContinuationToken>{keys}"
                              "</ListBucketResult>".encode())

        def one_page(handler, query):
            handler.send(200, b"<ListBucketResult>" + b"<a/>" * (20 << 20) + b"</ListBucketResult>")

        def deep(handler, query):
            handler.send(200, b"<a>" * (2 << 20))

        def long_token(handler, query):
            handler.send(200, b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" + b"=" * (7 << 20)
                              + b"</NextContinuationToken></ListBucketResult>")
        for answer, words in ((pages, "directory of its own"), (one_page, "bytes"), (deep, "no list of S3"), (long_token, "no list of S3")):
            with self.subTest(answer.__name__), S3Double("bucket") as s3:
                s3.answer = lambda handler, path, query: answer(handler, query) if query else s3.refuse(handler, 404, "NoSuchKey", "")
                run, peak = self.peak_mb("fetch", "s3://bucket/m", self.tmp / "out", AWS_ENDPOINT_URL=s3.url, AWS_REGION=REGION, **KEYS)
                self.assert_fails(run, 1, "s3://bucket/", words)
                self.assertLess(peak, 600)
                self.assertLess(len(s3.requests), 20)
        for body in (b'{"FileStatuses":{"FileStatus":[' + b"{}," * (2 << 20), b'{"FileStatuses":' + b"[" * (4 << 20), b"[0," * (20 << 20)):
            with self.subTest(body[:40]), WebHdfs() as hdfs:
                hdfs.answer = lambda handler, path, query: handler.send(200, body) if query["op"] == "LISTSTATUS" else handler.send(404)
                run, peak = self.peak_mb("fetch", f"{hdfs.url}/m/x", self.tmp / "out")
                self.assert_fails(run, 1, f"{hdfs.url}/m/")
                self.assertLess(peak, 600)

    def test_texts_without_an_end(self):
        """They are refused long before they reach the limit for the files of a model."""
        sent = [0]

        def endless(out):
            out.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not self.double.ended.is_set():
                out.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                sent[0] += 0x10000

        def announced(out):
            out.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 30))
        for name in ("SHA256SUMS", "model.toml", "synset.txt"):
            for send in (endless, announced):
                with self.subTest(name=name, send=send.__name__):
                    sent[0] = 0
                    self.double.faults.clear()
                    self.breaks(f"/m/{name}", send)
                    run = self.fetch(self.url, SHOAL_FETCH_LIMIT_MB="200")
                    self.assert_refused(run, f"{self.double.url}/m/{name}", "at most 16 MiB")
                    self.assertLess(sent[0], 64 << 20)

    def test_more_versions_than_are_served(self):
        files = {f"v/{version}/{name}": b"x" for version in range(1, 301) for name in (f"{PREFIX}-symbol.json", f"{PREFIX}-0000.params")}
        with S3Double("bucket", files) as s3:
            self.environment.update(KEYS, AWS_REGION=REGION, AWS_ENDPOINT_URL=s3.url)
            self.assert_refused(self.shoal("fetch", "s3://bucket/v", self.tmp / "out", "--versions", "all"), "300 versions", "256", "`versions`")
            self.assertEqual([path for path, _, _ in s3.requests if path.endswith((".json", ".params"))], [], "files were fetched")
        base = self.tmp / "versions"
        for file in files:
            (base / file).parent.mkdir(parents=True, exist_ok=True)
            (base / file).write_bytes(b"x")
        self.assert_refused(self.shoal("fetch", f"file://{base}/v", self.tmp / "out", "--versions", "all"), "300 versions", "256")

    # ---- names ----

    def test_checksums_with_hostile_names(self):
        directory = self.model()
        digits = "0" * 64
        names = ("../up", "/etc/passwd", "a/b", "..", ".", "", "x" * 300, "new\x01line", "\\escaped")
        (directory / "SHA256SUMS").write_bytes(sums_of(directory) + "".join(f"{digits}  {name}\n" for name in names).encode())
        self.double.serve(directory, "/m")
        self.assertEqual(self.fetch(self.double.url + "/m/").returncode, 0)
        self.assertEqual([file for file in self.tmp.rglob("*") if file.name in ("up", "passwd", "b")], [])

    def test_a_server_writes_no_hidden_files(self):
        home = self.tmp / "home"
        home.mkdir()
        (home / ".profile").write_text("mine\n")
        text = (SHAPES / "model.toml").read_text().replace('labels = "synset.txt"', 'labels = ".profile"')
        self.double.files.update({"/m/model.toml": text.encode(), "/m/.profile": b"theirs\n"})
        self.assert_fails(self.fetch(self.url, into="home"), 1, f"{self.double.url}/m/model.toml", "'.profile'")
        self.assertEqual((home / ".profile").read_text(), "mine\n")

    def test_links_in_the_cache_lead_nowhere(self):
        """Somebody put links into the cache. Nothing behind them is written, and a removed cache is made anew."""
        self.assertEqual(self.fetch(self.url).returncode, 0)
        outside = self.tmp / "outside"
        outside.mkdir()
        (outside / "file").write_bytes(b"mine")
        self.double.files[PARAMS] = os.urandom(1000)
        files = next(self.cache.rglob("files"))
        for part in list(files.iterdir()):
            for suffix in (".part", ".part.json", ".json.new"):
                link = files / (part.name.partition(".")[0] + suffix)
                if not link.exists():
                    link.symlink_to(outside / "file")
        picture = files.parent.parent / "picture"
        picture.symlink_to(outside)
        self.fetch(self.url, into="again")
        self.assertEqual((outside / "file").read_bytes(), b"mine")
        self.assertEqual([file.name for file in outside.iterdir()], ["file"])
        shutil.rmtree(self.cache)
        self.assertEqual(self.fetch(self.url, into="anew").returncode, 0)

    # ---- redirects and secrets ----

    def test_redirects_show_no_tokens(self):
        """A redirect of a store carries a signature in its query. It is used, and not shown."""
        with Double() as other:
            self.double.faults[PARAMS] = Fault("redirect", f"{other.url}/there?X-Amz-Signature={SECRET}")
            other.files["/there"] = self.double.files[PARAMS]
            self.assertEqual(self.fetch(self.url).returncode, 0)
            self.assertEqual(other.requests[0][1], {"X-Amz-Signature": SECRET})
            shutil.rmtree(self.cache)
            where = f"http://me:{SECRET}@127.0.0.1:{other.port}/there?token={SECRET}"
            for fault in (Fault("cut_without_ranges", 10), Fault("no_length", 10), Fault("redirect", f"/there?token={SECRET}"),
                          Fault("redirect", f"ftp://me:{SECRET}@host/?{SECRET}"), Fault("huge", 1 << 40), Fault("status", 403)):
                with self.subTest(fault.kind):
                    self.double.faults[PARAMS] = Fault("redirect", where)
                    other.faults["/there"] = fault
                    run = self.fetch(self.url, into="none")
                    self.assert_fails(run, 1, f"{self.url}-0000.params")
                    self.assertNotIn(SECRET, run.stdout + run.stderr)

    def test_a_user_that_looks_like_this_machine(self):
        for where in ("http://127.0.0.1@example.invalid/x", "http://127.0.0.1:80@example.invalid/x", "http://localhost:1@example.invalid/x"):
            with self.subTest(where):
                self.double.faults[PARAMS] = Fault("redirect", where)
                self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params", "http://example.invalid/x", "SHOAL_FETCH_HTTP")

    def test_other_ports_and_hosts_get_no_password(self):
        (self.tmp / ".netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\ndefault login me password {SECRET}\n")
        with Double() as other:
            other.files["/there"] = self.double.files[PARAMS]
            for host in ("127.0.0.1", "localhost"):
                self.double.faults[PARAMS] = Fault("redirect", f"http://{host}:{other.port}/there")
                shutil.rmtree(self.cache, ignore_errors=True)
                self.assertEqual(self.fetch(self.url).returncode, 0)
            self.assertEqual(len(other.requests), 2)
            for _, _, headers in other.requests:
                self.assertNotIn("Authorization", headers)

    def test_urls_with_secrets_are_not_repeated(self):
        for url in (f"https://me:{SECRET}@127.0.0.1:1/m/x", f"https://127.0.0.1:1/m/x?token={SECRET}", f"s3://key:{SECRET}@bucket/m"):
            for words in (("fetch", url, self.tmp / "out"), ("inspect", url), ("run", url, "--output", self.tmp / "out"),
                          ("load", f"m={url}"), ("reload", f"m={url}")):
                with self.subTest(url=url, words=words[0]):
                    run = self.shoal(*words)
                    self.assertNotEqual(run.returncode, 0)
                    self.assertNotIn(SECRET, run.stdout + run.stderr)
            daemon = subprocess.run([BIN / "shoald", "--model", f"m={url}"], env={**self.environment, "SHOAL_DIR": str(self.tmp / "d")},
                                    capture_output=True, text=True, timeout=60)
            self.assertEqual(daemon.returncode, 2, daemon.stderr)
            self.assertNotIn(SECRET, daemon.stdout + daemon.stderr)

    def test_keys_of_s3_are_not_shown(self):
        with S3Double("bucket", {"m/x": b""}) as s3:
            keys = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": SECRET + "token"}
            for fail in (lambda handler, path, query: handler.send(403, b"<Error><Code>AccessDenied</Code></Error>"),
                         lambda handler, path, query: handler.send(302, b"", Location="http://example.invalid/"),
                         lambda handler, path, query: handler.send(500, b"")):
                s3.answer = fail
                run = self.fetch("s3://bucket/m", AWS_ENDPOINT_URL=s3.url, AWS_REGION=REGION, SHOAL_FETCH_TIMEOUT_S="5", **keys)
                self.assert_fails(run, 1, "s3://bucket/")
                self.assertNotIn(SECRET, run.stdout + run.stderr)
        left = [file for file in self.cache.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
        self.assertEqual(left, [], "keys are in the cache")

    # ---- what is shown ----

    def test_a_terminal_shows_progress_and_a_pipe_does_not(self):
        self.double.faults[PARAMS] = Fault("slow", 0.06)
        run = self.fetch(self.url)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        shutil.rmtree(self.cache)
        ours, theirs = pty.openpty()
        command = subprocess.Popen([BIN / "shoal", "fetch", self.url, self.tmp / "again"], env=self.environment, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        seen = []

        def read():
            try:
                while data := os.read(ours, 4096):
                    seen.append(data)
            except OSError:  # the terminal has no other end any more
                pass
        reader = threading.Thread(target=read)
        reader.start()
        self.assertEqual(command.wait(60), 0)
        reader.join(10)
        os.close(ours)
        text = b"".join(seen).decode()
        self.assertRegex(text, re.escape(f"fetching {PREFIX}-0000.params, MB") + r" \[#*\.*\] \d+ of \d+")
        self.assertTrue(text.endswith("\r\033[K"), "the bar is left on the terminal")


class Files(FetchTest):
    def test_links_are_followed(self):
        directory, blobs = self.tmp / "snapshot", self.tmp / "blobs"
        shutil.copytree(SHAPES, blobs)
        directory.mkdir()
        for file in blobs.iterdir():
            (directory / file.name).symlink_to(Path("..") / "blobs" / file.name)
        self.assert_fetched(self.fetch(f"file://{directory}/{PREFIX}"))

    def test_what_is_no_file_is_refused(self):
        directory = self.model()
        name = directory / f"{PREFIX}-0000.params"
        name.unlink()
        os.mkfifo(name)
        self.assert_refused(self.fetch(f"file://{directory}/{PREFIX}", timeout=30), name.name)
        name.unlink()
        name.symlink_to("/dev/zero")
        self.assert_refused(self.fetch(f"file://{directory}/{PREFIX}", timeout=30), name.name)


if __name__ == "__main__":
    main(verbosity=2)
