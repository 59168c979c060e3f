#!/usr/bin/env python3
"""Models from web servers: what is fetched, and what happens when a server, a connection or a file is broken."""
import email.utils
import hashlib
import os
import shutil
import subprocess
import threading
import time

from doubles import Double, Fault
from fetching import BIN, FILES, PREFIX, SHAPES, FetchTest, main, read_json, sums_of

SYMBOL, PARAMS = f"/m/{PREFIX}-symbol.json", f"/m/{PREFIX}-0000.params"
SIZE = (SHAPES / f"{PREFIX}-0000.params").stat().st_size


class Web(FetchTest):
    def serve(self, directory=SHAPES):
        double = self.enterContext(Double().serve(directory, "/m"))
        self.url = f"{double.url}/m/{PREFIX}"
        return double


class WhatIsFetched(Web):
    def test_a_model_by_its_prefix(self):
        self.serve()
        self.assert_fetched(self.fetch(self.url))
        self.assert_fetched(self.fetch(f"{self.url}-symbol.json", into="by-graph"), into="by-graph")

    def test_commands_take_urls(self):
        self.serve()
        here, there = self.shoal("inspect", SHAPES, "--json"), self.shoal("inspect", self.url, "--json")
        self.assertEqual(there.returncode, 0, there.stderr)
        for key in ("operators", "parameters", "outputs", "labels"):
            self.assertEqual(read_json(there)[key], read_json(here)[key])
        picture = next((SHAPES.parent / "pictures").iterdir())
        self.assertEqual(self.shoal("classify", self.url, picture).stdout, self.shoal("classify", SHAPES, picture).stdout)
        self.assertEqual(self.shoal("inspect", f"file://{SHAPES}").returncode, 0)

    def test_what_has_not_changed_is_not_sent_again(self):
        double = self.serve()
        self.assert_fetched(self.fetch(self.url))
        double.requests.clear()
        self.assert_fetched(self.fetch(self.url, into="again"), into="again")
        for path in (SYMBOL, PARAMS):
            self.assertIn("If-None-Match", double.asked(path)[0], path)
        changed = bytes(reversed(double.files[PARAMS]))
        double.files[PARAMS] = changed
        run = self.fetch(self.url, into="again")
        self.assertEqual((self.tmp / "again" / f"{PREFIX}-0000.params").read_bytes(), changed, run.stderr)

    def test_an_etag_decides_alone(self):
        """Some servers answer 304 to a date although the ETag is another one."""
        double = self.serve()

        def answer(handler, body):
            if "If-Modified-Since" in handler.headers:
                return handler.send(304)
            return double.send_file(handler, body, Last_Modified="Sun, 06 Nov 1994 08:49:37 GMT")
        double.faults["/m/synset.txt"] = Fault("do", answer)
        self.assert_fetched(self.fetch(self.url))
        double.files["/m/synset.txt"] = b"other\n"
        self.assertEqual(self.fetch(self.url).returncode, 0)
        self.assertEqual((self.tmp / "out" / "synset.txt").read_bytes(), b"other\n")

    def test_dates_where_there_are_no_etags(self):
        double = self.serve()
        now = [time.time() - 3600]

        def answer(handler, body):
            date = email.utils.formatdate(now[0], usegmt=True)
            return handler.send(304) if handler.headers.get("If-Modified-Since") == date else handler.send(200, body, Last_Modified=date)
        double.faults["/m/synset.txt"] = Fault("do", answer)
        for age_s, is_sent_again in ((3600, False), (0, True)):
            with self.subTest(age_s=age_s):
                now[0] = time.time() - age_s
                self.assert_fetched(self.fetch(self.url))
                double.files["/m/synset.txt"] = b"other\n"
                self.assertEqual(self.fetch(self.url).returncode, 0)
                self.assertEqual((self.tmp / "out" / "synset.txt").read_bytes() == b"other\n", is_sent_again)
                double.files["/m/synset.txt"] = (SHAPES / "synset.txt").read_bytes()
                shutil.rmtree(self.cache)

    def test_an_epoch(self):
        directory = self.model()
        shutil.move(directory / f"{PREFIX}-0000.params", directory / f"{PREFIX}-0012.params")
        self.serve(directory)
        self.assert_refused(self.fetch(self.url), "-0000.params", "404")
        run = self.fetch(self.url + "@12")
        self.assert_fetched(run, source=directory, names={f.name for f in directory.iterdir()})

    def test_an_epoch_of_a_directory(self):
        directory = self.model()
        (directory / f"{PREFIX}-0007.params").write_bytes((directory / f"{PREFIX}-0000.params").read_bytes())
        (directory / "SHA256SUMS").write_bytes(sums_of(directory))
        self.serve(directory)
        run = self.fetch(f"{self.url.removesuffix('/' + PREFIX)}@7")
        self.assert_fetched(run, source=directory, names=FILES - {f"{PREFIX}-0000.params"} | {f"{PREFIX}-0007.params", "SHA256SUMS"})
        self.assert_fails(self.fetch(f"{self.url.removesuffix('/' + PREFIX)}@9", into="none"), 1, "no epoch 9")

    def test_a_directory_with_checksums(self):
        directory = self.model()
        (directory / "SHA256SUMS").write_bytes(sums_of(directory) + b"0" * 64 + b"  ../outside\n")
        self.serve(directory)
        for url in (self.url.rpartition("/")[0] + "/", self.url.rpartition("/")[0], self.url):
            with self.subTest(url=url):
                shutil.rmtree(self.tmp / "out", ignore_errors=True)
                self.assert_fetched(self.fetch(url), source=directory, names=FILES | {"SHA256SUMS"})
        run = subprocess.run(["sha256sum", "--check", "--quiet", "--ignore-missing", "SHA256SUMS"], cwd=self.tmp / "out", capture_output=True)
        self.assertEqual(run.returncode, 0, run)

    def test_one_of_several_models_and_epochs(self):
        directory = self.model()
        for suffix in ("-symbol.json", "-0000.params"):
            shutil.copy(directory / (PREFIX + suffix), directory / ("other" + suffix))
        shutil.copy(directory / f"{PREFIX}-0000.params", directory / f"{PREFIX}-0003.params")
        (directory / "SHA256SUMS").write_bytes(sums_of(directory))
        self.serve(directory)
        base = self.url.rpartition("/")[0]
        self.assert_refused(self.fetch(base + "/"), f"{base}'", "several checkpoints", "other", PREFIX)
        self.assert_fetched(self.fetch(self.url), source=directory, names=FILES | {"SHA256SUMS"})

    def test_file_urls(self):
        self.assert_fetched(self.fetch(f"file://{SHAPES}/{PREFIX}"))
        self.assert_fetched(self.fetch(f"file://{SHAPES}", into="directory"), into="directory")

    def test_through_a_proxy(self):
        with Double() as proxy:
            for name in FILES:
                proxy.files[f"http://127.0.0.1:1/m/{name}"] = (SHAPES / name).read_bytes()
            url = f"http://127.0.0.1:1/m/{PREFIX}"
            self.assert_fetched(self.fetch(url, http_proxy=proxy.url))
            run = self.fetch(url, into="none", http_proxy=proxy.url, no_proxy="127.0.0.1")
            self.assert_fails(run, 1, "http://127.0.0.1:1/m/", "connect")

    def test_fetchers_of_one_url_wait_for_each_other(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("slow", 0.01)
        runs = []
        threads = [threading.Thread(target=lambda i=i: runs.append((i, self.fetch(self.url, into=f"out{i}")))) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, run in runs:
            self.assert_fetched(run, into=f"out{i}")
        self.assertEqual(len([h for h in double.asked(PARAMS) if "If-None-Match" not in h]), 1, "it was sent more than once")


class BrokenConnections(Web):
    def test_a_file_goes_on_where_it_broke_off(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("cut", SIZE // 3)
        self.assert_fetched(self.fetch(self.url))
        asked = double.asked(PARAMS)
        self.assertEqual([h.get("Range") for h in asked], [None, f"bytes={SIZE // 3}-", f"bytes={SIZE // 3 * 2}-"] +
                         ([f"bytes={SIZE // 3 * 3}-"] if SIZE % 3 else []))
        self.assertTrue(all("If-Range" in h for h in asked[1:]))

    def test_also_in_the_next_process(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("hang_inside", SIZE // 2)
        self.assert_fails(self.fetch(self.url, SHOAL_FETCH_TIMEOUT_S="2"), 1, self.url, "2 s")
        del double.faults[PARAMS]
        double.requests.clear()
        self.assert_fetched(self.fetch(self.url))
        # This answer had no ETag, so nobody knows whether the rest belongs to it.
        self.assertNotIn("Range", double.asked(PARAMS)[0])
        double.files[PARAMS] = double.files[PARAMS][::-1]
        double.faults[PARAMS] = Fault("slow", 1)
        self.assert_fails(self.fetch(self.url, SHOAL_FETCH_TIMEOUT_S="4"), 1, self.url, "4 s")
        del double.faults[PARAMS]
        double.requests.clear()
        self.assertEqual(self.fetch(self.url).returncode, 0)
        self.assertRegex(double.asked(PARAMS)[0]["Range"], "bytes=[1-9]")
        self.assertEqual((self.tmp / "out" / f"{PREFIX}-0000.params").read_bytes(), double.files[PARAMS])

    def test_a_file_that_changed_meanwhile_begins_anew(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("cut", SIZE // 2, times=1)
        new = os.urandom(SIZE)
        send = double.send_file

        def change_after(handler, body, **how):
            send(handler, body, **how)
            if how.get("most"):
                double.files[PARAMS] = new
        double.send_file = change_after
        run = self.fetch(self.url)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual((self.tmp / "out" / f"{PREFIX}-0000.params").read_bytes(), new)

    def test_a_part_of_the_range(self):
        double = self.serve()

        def send_some(handler, body):
            begin = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            if begin == 0:
                return double.send_file(handler, body, most=10_000)
            some = body[begin:begin + 400_000]
            etag = '"' + hashlib.sha1(body).hexdigest() + '"'
            handler.send(206, some, Content_Range=f"bytes {begin}-{begin + len(some) - 1}/{len(body)}", ETag=etag)

        double.faults = {PARAMS: Fault("do", send_some)}
        self.assert_fetched(self.fetch(self.url))

    def test_a_range_of_a_file_of_unknown_size(self):
        double = self.serve()

        def send_rest(handler, body):
            begin = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            if begin == 0:
                return double.send_file(handler, body, most=10_000)
            etag = '"' + hashlib.sha1(body).hexdigest() + '"'
            handler.send(206, body[begin:], Content_Range=f"bytes {begin}-{len(body) - 1}/*", ETag=etag)

        double.faults = {PARAMS: Fault("do", send_rest, times=4)}
        self.assert_fetched(self.fetch(self.url))
        self.assertEqual(len(double.asked(PARAMS)), 2, "the part was dropped")

    def test_a_server_without_ranges_begins_anew(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("cut_without_ranges", SIZE // 2, times=2)
        self.assert_fetched(self.fetch(self.url))

    def test_what_always_breaks_off_is_refused(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("cut_without_ranges", SIZE // 2)
        self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params")

    def test_an_overloaded_server_is_asked_again(self):
        double = self.serve()
        double.faults[SYMBOL] = Fault("status", 503, times=2)
        self.assert_fetched(self.fetch(self.url))
        self.assertEqual(len(double.asked(SYMBOL)), 3)

    def test_nobody_there(self):
        self.assert_refused(self.fetch(f"http://127.0.0.1:1/m/{PREFIX}"), "http://127.0.0.1:1/m/", "connect")

    def test_a_server_that_hangs(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("hang")
        self.assert_refused(self.fetch(self.url, SHOAL_FETCH_STALL_S="1", SHOAL_FETCH_TIMEOUT_S="4"), f"{self.url}-0000.params", "4 s")
        self.assert_refused(self.fetch(self.url, SHOAL_FETCH_STALL_S="1"), f"{self.url}-0000.params", "no byte came for 1 s")


class Refusals(Web):
    def test_a_wrong_checksum(self):
        directory = self.model()
        (directory / "SHA256SUMS").write_bytes(sums_of(directory))
        double = self.serve(directory)
        wrong = bytearray(double.files[PARAMS])
        wrong[len(wrong) // 2] ^= 1
        double.files[PARAMS] = bytes(wrong)
        self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params", "SHA256SUMS", "SHA-256")

    def test_checksums_that_are_none(self):
        double = self.serve()
        double.files["/m/SHA256SUMS"] = b"<html>no such page</html>"
        self.assert_refused(self.fetch(self.url), "/m/SHA256SUMS", "sha256sum")

    def test_checksums_of_other_files_only(self):
        directory = self.model()
        sums = sums_of(directory).decode()
        for before in ("models/a/", "/srv/m/", "other-"):
            (directory / "SHA256SUMS").write_text(sums.replace("  ", "  " + before))
            double = self.serve(directory)
            with self.subTest(before=before):
                there = f"{self.url.removesuffix(PREFIX)}SHA256SUMS"
                self.assert_refused(self.fetch(self.url), there, "DATA_LOSS", f"'{before}", "sha256sum * > SHA256SUMS", "its owner")
                self.assertNotIn(PARAMS, [path for path, *_ in double.requests], "nobody needs the weights")
        (directory / "SHA256SUMS").write_text(sums.replace("  ", "  models/a/"))
        self.serve(directory)
        for url in (self.url.removesuffix(PREFIX), self.url.removesuffix(f"/{PREFIX}")):
            self.assert_refused(self.fetch(url), f"{self.url.removesuffix(PREFIX)}SHA256SUMS", "DATA_LOSS", "'models/a/")

    def test_a_file_that_the_checksums_name_and_that_is_not_there(self):
        directory = self.model()
        (directory / "SHA256SUMS").write_bytes(sums_of(directory))
        double = self.serve(directory)
        del double.files[PARAMS]
        self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params", "404")

    def test_no_model(self):
        double = self.serve()
        self.assert_refused(self.fetch(self.url + "x"), f"{self.url}x-symbol.json", f"{self.url}x/SHA256SUMS")
        self.assert_refused(self.fetch(double.url + "/m/"), double.url + "/m/", "does not list", "PREFIX")

    def test_forbidden(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("status", 403)
        self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params", "403", ".netrc")
        double.faults = {"/m/synset.txt": Fault("status", 403)}
        run = self.fetch(self.url)  # the model has labels = "synset.txt", so it needs the file
        self.assert_fails(run, 1, "/m/synset.txt", "403")
        double.faults = {"/m/SHA256SUMS": Fault("status", 403)}
        run = self.fetch(self.url)
        self.assert_fetched(run)
        self.assertIn("warning", run.stderr)
        self.assertIn("/m/SHA256SUMS", run.stderr)

    def test_a_server_that_forbids_everything(self):
        double = self.serve()
        double.faults = {path: Fault("status", 403) for path in (SYMBOL, "/m/SHA256SUMS", f"/m/{PREFIX}/SHA256SUMS")}
        run = self.fetch(self.url)
        self.assert_fails(run, 1, "PERMISSION_DENIED", f"neither {self.url}-symbol.json nor {self.url}/SHA256SUMS. Before: ", "403", ".netrc")
        self.assertNotIn(", nor", run.stderr)
        self.assert_fails(self.fetch(double.url + "/m/"), 1, "PERMISSION_DENIED", "does not list", "403")

    def test_a_server_that_answers_everything_with_a_page(self):
        double = self.serve()
        double.files["/m/SHA256SUMS"] = b"\n<!DOCTYPE html><html><body>Welcome</body></html>\n"
        self.assert_refused(self.fetch(self.url), f"{self.url.removesuffix(PREFIX)}SHA256SUMS", "DATA_LOSS", "every address with a page")

    def test_the_directory_is_checked_first(self):
        double = self.serve()
        file = self.tmp / "afile"
        file.write_text("mine")
        for into in ("afile", "afile/sub", "afile/"):
            self.assert_fails(self.shoal("fetch", self.url, f"{self.tmp}/{into}"), 1, "make the directory", f"{self.tmp}/{into}")
        self.assertEqual((file.read_text(), double.requests), ("mine", []), "it has been fetched")
        self.assert_fetched(self.fetch(self.url, into="new/deep"), into="new/deep")

    def test_redirects(self):
        double = self.serve()
        with Double() as other:
            other.files["/there"] = double.files[PARAMS]
            double.faults[PARAMS] = Fault("redirect", other.url + "/there")
            (self.tmp / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
            self.assert_fetched(self.fetch(self.url))
            self.assertIn("Authorization", double.asked(PARAMS)[0])
            self.assertNotIn("Authorization", other.asked("/there")[0], "another server has learned the password")

    def test_redirects_in_a_circle(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("redirect", "/m/loop")
        double.faults["/m/loop"] = Fault("redirect", PARAMS)
        self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params", "more than 10 redirects", "circle")

    def test_redirects_to_other_protocols(self):
        double = self.serve()
        for where in ("file:///etc/passwd", "ftp://127.0.0.1/x", "http://example.invalid/x"):
            with self.subTest(where=where):
                double.faults[PARAMS] = Fault("redirect", where)
                self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params", where)

    def test_too_large(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("huge", 1 << 40)
        self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params", str(1 << 40), "SHOAL_FETCH_LIMIT_MB")
        double.faults[PARAMS] = Fault("endless")
        self.assert_refused(self.fetch(self.url, SHOAL_FETCH_LIMIT_MB="2"), f"{self.url}-0000.params", "2 MiB", "SHOAL_FETCH_LIMIT_MB")

    def test_an_end_that_nobody_would_notice(self):
        double = self.serve()
        double.faults[PARAMS] = Fault("no_length", SIZE // 2)
        self.assert_refused(self.fetch(self.url), f"{self.url}-0000.params", "cut off")

    def test_encoded_files(self):
        double = self.serve()
        double.faults[SYMBOL] = Fault("encoded")
        self.assert_refused(self.fetch(self.url), f"{self.url}-symbol.json", "gzip")

    def test_a_server_chooses_no_files_of_this_machine(self):
        for labels in ("/etc/passwd", "../../etc/passwd", ".."):
            with self.subTest(labels=labels):
                shutil.rmtree(self.tmp / "model", ignore_errors=True)
                text = (SHAPES / "model.toml").read_text().replace('labels = "synset.txt"', f'labels = "{labels}"')
                double = self.serve(self.model(model_dot_toml=text.encode()))
                self.assert_refused(self.fetch(self.url), f"{double.url}/m/model.toml", labels, "beside")

    def test_a_wrong_model_toml_is_named_by_its_url(self):
        double = self.serve(self.model(model_dot_toml=b"nonsense = 1\n"))
        self.assert_refused(self.fetch(self.url), f"{double.url}/m/model.toml", "nonsense")

    def test_urls_that_are_none(self):
        for url, *names in (("models/x", "not a URL"), ("https://me:secret@host/x", ".netrc"), ("http://example.invalid/m", "https://"),
                            ("https://host/x?token=1", "'?'"), ("s3://a:1/x", "AWS_ENDPOINT_URL")):
            with self.subTest(url=url):
                run = self.fetch(url)
                self.assertNotEqual(run.returncode, 0)
                for name in names:
                    self.assertIn(name, run.stderr)
                self.assertNotIn("secret", run.stderr)

    def test_settings_that_are_none(self):
        self.serve()
        self.assert_refused(self.fetch(self.url, SHOAL_FETCH_TIMEOUT_S="soon"), "SHOAL_FETCH_TIMEOUT_S", "soon")
        self.assert_refused(self.fetch(self.url, SHOAL_CACHE_DIR="", HOME=""), "SHOAL_CACHE_DIR")

    def test_the_program_that_fetches_is_missing(self):
        directory = self.tmp / "bin"
        directory.mkdir()
        shutil.copy(BIN / "shoal", directory)
        run = subprocess.run([directory / "shoal", "fetch", "https://host/m", self.tmp / "out"], env=self.environment, capture_output=True, text=True)
        self.assert_fails(run, 1, "shoal-fetch")


if __name__ == "__main__":
    main(verbosity=2)
