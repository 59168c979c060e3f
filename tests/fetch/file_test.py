#!/usr/bin/env python3
"""Models at file:// URLs: they stay where they are, and each file that SHA256SUMS names is verified before the model is used."""
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from fetching import BIN, PREFIX, SHAPES, FetchTest, cli, main, sums_of

PARAMS, ZERO = f"{PREFIX}-0000.params", "0" * 64


class FileUrls(FetchTest):
    def setUp(self):
        super().setUp()
        self.directory = self.model()
        (self.directory / "SHA256SUMS").write_bytes(sums_of(self.directory))
        self.url = f"file://{self.directory}"

    def spoil(self, name=PARAMS, directory=None):
        """The sum of a file is another one. Returns the right one."""
        sums = (directory or self.directory) / "SHA256SUMS"
        lines = sums.read_text().splitlines()
        right = next(line for line in lines if line.endswith("  " + name)).partition(" ")[0]
        sums.write_text("".join(line.replace(right, ZERO) + "\n" for line in lines))
        return right

    def names_of(self, found, name=PARAMS, directory=None):
        return "DATA_LOSS", f"{directory or self.directory}/{name}", found, ZERO, "SHA256SUMS"

    def name_labels(self, path):
        config = self.directory / "model.toml"
        config.write_text(config.read_text().replace('labels = "synset.txt"', f'labels = "{path}"'))

    def commands(self, url):
        picture = next((SHAPES.parent / "pictures").iterdir())
        x = cli.write_npy(self.tmp / "x.npy", (1, 3, 64, 64), [0.5] * (3 * 64 * 64))
        return (("inspect", url), ("classify", url, picture), ("run", url, "--input", f"data={x}", "--output", self.tmp / "run"),
                ("fetch", url, self.tmp / "fetched"))

    # ---- commands ----

    def test_right_sums_and_none(self):
        for has_sums in (True, False):
            if not has_sums:
                (self.directory / "SHA256SUMS").unlink()
            for words in self.commands(self.url)[:2] + self.commands(f"{self.url}/{PREFIX}@0")[:2]:
                with self.subTest(has_sums=has_sums, command=words[0]):
                    run = self.shoal(*words)
                    self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertFalse(self.cache.exists() and list(self.cache.rglob(PARAMS)), "files were copied")

    def test_a_wrong_sum_in_every_command(self):
        right = self.spoil()
        for words in self.commands(self.url) + self.commands(f"{self.url}/{PREFIX}@0"):
            with self.subTest(words=words):
                self.assert_fails(self.shoal(*words), 1, "DATA_LOSS", f"{self.directory}/{PARAMS}", right, ZERO, "SHA256SUMS")
        self.assertEqual(self.shoal("inspect", self.directory).returncode, 0, "a path is taken as it is")
        self.assertFalse((self.tmp / "fetched").exists())

    def test_every_file_of_the_model(self):
        for name in (f"{PREFIX}-symbol.json", "model.toml", "synset.txt"):
            with self.subTest(name):
                before = (self.directory / "SHA256SUMS").read_bytes()
                right = self.spoil(name)
                self.assert_fails(self.shoal("inspect", self.url), 1, *self.names_of(right, name))
                (self.directory / "SHA256SUMS").write_bytes(before)
        (self.directory / "notes.txt").write_text("no file of the model\n")
        with open(self.directory / "SHA256SUMS", "a") as sums:
            sums.write(f"{ZERO}  notes.txt\n{ZERO}  no-such-file\n")
        self.assertEqual(self.shoal("inspect", self.url).returncode, 0)

    def test_sums_that_are_none(self):
        sums = self.directory / "SHA256SUMS"
        sums.write_text("<html>no such page</html>")
        self.assert_fails(self.shoal("inspect", self.url), 1, "DATA_LOSS", str(sums), "sha256sum")
        sums.unlink()
        sums.symlink_to("/dev/zero")
        self.assert_fails(self.shoal("inspect", self.url, timeout=30), 1, str(sums))
        sums.unlink()
        os.mkfifo(sums)
        self.assert_fails(self.shoal("inspect", self.url, timeout=30), 1, str(sums))

    def test_sums_that_name_none_of_the_files(self):
        """Otherwise nothing would be verified, and nobody would notice."""
        sums = self.directory / "SHA256SUMS"
        lines = sums.read_text().splitlines()
        for before in ("models/a/", f"{self.directory}/", "../model/", "other-"):
            sums.write_text("".join(line.replace("  ", "  " + before) + "\n" for line in lines))
            for url in (self.url, f"{self.url}/{PREFIX}@0"):
                with self.subTest(before=before, url=url):
                    run = self.shoal("inspect", url)
                    self.assert_fails(run, 1, "DATA_LOSS", str(sums), f"'{PREFIX}-symbol.json'", f"'{before}", "sha256sum * > SHA256SUMS")
        self.assert_fails(self.fetch(self.url), 1, "DATA_LOSS", str(sums), "'other-")
        sums.write_bytes(sums_of(self.directory, ["model.toml"]))
        self.assertEqual(self.shoal("inspect", self.url).returncode, 0, "files that are not named are taken as they are")

    def test_two_models_in_one_directory(self):
        """Whoever names only the files of the other one wants this one verified, too."""
        for file in self.directory.glob(f"{PREFIX}-*"):
            shutil.copy(file, self.directory / file.name.replace(PREFIX, "other"))
        others = [file.name for file in self.directory.glob("other-*")]
        (self.directory / "SHA256SUMS").write_bytes(sums_of(self.directory, others))
        self.assert_fails(self.shoal("inspect", f"{self.url}/{PREFIX}"), 1, "DATA_LOSS", f"'{PREFIX}-symbol.json'", "'other-", "sha256sum * > SHA256SUMS")
        self.assertEqual(self.shoal("inspect", f"{self.url}/other").returncode, 0)

    def test_labels_elsewhere(self):
        """Sums beside them need not name them: the directory is not the model's. But what they name is verified."""
        shared = self.tmp / "shared"
        shared.mkdir()
        (self.directory / "synset.txt").rename(shared / "names.txt")
        (shared / "pictures.txt").write_text("no file of the model\n")
        self.name_labels("../shared/names.txt")
        (self.directory / "SHA256SUMS").write_bytes(sums_of(self.directory, [PARAMS]))
        (shared / "SHA256SUMS").write_bytes(sums_of(shared, ["pictures.txt"]))
        run = self.shoal("inspect", self.url)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        (shared / "SHA256SUMS").write_text(f"{ZERO}  names.txt\n")
        self.assert_fails(self.shoal("inspect", self.url), 1, "DATA_LOSS", "names.txt", ZERO)

    def test_sums_that_name_labels_with_their_directory(self):
        """As `find . -type f` does."""
        (self.directory / "lab").mkdir()
        names = (self.directory / "synset.txt").rename(self.directory / "lab" / "names.txt")
        self.name_labels("lab/names.txt")
        sums = sums_of(self.directory, [PARAMS]).decode() + sums_of(self.directory / "lab").decode().replace("names", "./lab/names")
        (self.directory / "SHA256SUMS").write_text(sums)
        labels = names.read_text()
        for linked in (False, True):
            with self.subTest(linked=linked):
                if linked:
                    (self.directory / "lab").rename(self.tmp / "elsewhere")
                    (self.directory / "lab").symlink_to(self.tmp / "elsewhere")
                names.write_text(labels)
                self.assertEqual(self.shoal("inspect", self.url).returncode, 0)
                names.write_text("others\n")
                self.assert_fails(self.shoal("inspect", self.url), 1, "DATA_LOSS", "lab/names.txt", "SHA256SUMS")

    def test_sums_of_versions_in_their_parent(self):
        base = self.tmp / "versions"
        (self.directory / "SHA256SUMS").unlink()
        for number in (1, 2):
            shutil.copytree(self.directory, base / str(number))
        (base / "SHA256SUMS").write_text(f"{ZERO}  2/{PARAMS}\n")
        run = self.shoal("inspect", f"file://{base}")
        self.assert_fails(run, 1, "DATA_LOSS", f"{base}/SHA256SUMS", f"'2/{PARAMS}'", "directory of each")
        (base / "2" / "SHA256SUMS").write_bytes(sums_of(base / "2"))
        self.assertEqual(self.shoal("inspect", f"file://{base}").returncode, 0)
        (base / "2" / "SHA256SUMS").unlink()
        (base / "model.toml").write_text("workers = 1\n")
        (base / "SHA256SUMS").write_bytes(sums_of(base, ["model.toml"]))
        self.assertEqual(self.shoal("inspect", f"file://{base}").returncode, 0, "it names the file of the model that is beside it")
        for number in (1, 2):
            (base / str(number) / "SHA256SUMS").write_bytes(sums_of(base / str(number)))
        (base / "SHA256SUMS").write_text(f"{ZERO}  1/{PARAMS}\n")
        for url in (f"file://{base}", f"file://{base}@0"):
            self.assertEqual(self.shoal("inspect", url).returncode, 0, "the sums of each version are complete")

    def test_sums_of_labels_beside_the_versions(self):
        """The parent's sums name a file of the model: its labels."""
        base = self.tmp / "versions"
        (self.directory / "SHA256SUMS").unlink()
        self.name_labels("../names.txt")
        shutil.copytree(self.directory, base / "1")
        (base / "1" / "synset.txt").rename(base / "names.txt")
        (base / "SHA256SUMS").write_bytes(sums_of(base, ["names.txt"]))
        run = self.shoal("inspect", f"file://{base}")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        (base / "SHA256SUMS").write_text(f"{ZERO}  names.txt\n")
        self.assert_fails(self.shoal("inspect", f"file://{base}"), 1, "DATA_LOSS", "names.txt", ZERO)

    def test_versions_have_sums_of_their_own(self):
        base = self.tmp / "versions"
        for number in (1, 2, 3):
            shutil.copytree(self.directory, base / str(number))
        right = self.spoil(directory=base / "2")
        self.assertEqual(self.shoal("inspect", f"file://{base}").returncode, 0, "only the latest version is used")
        with self.daemon({}, "--model", "echo=builtin:identity") as daemon:
            self.assertEqual(daemon.shoal("load", f"m=file://{base},versions=1:3").returncode, 0)
            for versions in ("all", "latest:2", "2"):
                run = daemon.shoal("load", f"v=file://{base},versions={versions}")
                self.assert_fails(run, 1, *self.names_of(right, directory=base / "2"))

    # ---- the daemon ----

    def test_the_daemon(self):
        right = self.spoil()
        (self.tmp / "shoal.toml").write_text(f'[models.configured]\npath = "{self.url}"\n')
        with self.daemon({"given": self.url, "here": self.directory}, "--config", self.tmp / "shoal.toml", wait=False) as daemon:
            daemon.wait_until_it_answers()
            for name in ("given", "configured"):
                self.wait_for(lambda name=name: daemon.model(name)["state"] == "failed", name)
                for words in self.names_of(right):
                    self.assertIn(words, daemon.model(name)["reason"])
            self.wait_for(lambda: daemon.model("here")["state"] == "ready", "a path is taken as it is")
            self.assert_fails(daemon.shoal("load", f"s1={self.url}"), 1, "'s1'", *self.names_of(right))
            (self.directory / "SHA256SUMS").write_bytes(sums_of(self.directory, [PARAMS]))
            run = daemon.shoal("load", f"s1={self.url}", "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(daemon.model("s1")["path"], self.url)
            self.assertIn('"unchanged"', daemon.shoal("reload", "s1", "--json").stdout)

    def test_a_reload_verifies_again(self):
        """Also where size and time of the file are those of before."""
        with self.daemon({"s1": self.url}) as daemon:
            file = self.directory / PARAMS
            info = file.stat()
            damaged = bytearray(file.read_bytes())
            damaged[-2000] ^= 0x40
            with open(file, "r+b") as there:
                there.write(damaged)
            os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
            self.assert_fails(daemon.shoal("reload", "s1"), 1, "'s1'", "goes on as it was", str(file), "SHA-256")
            self.assertEqual(daemon.model("s1")["state"], "ready")

    # ---- files that take long ----

    def huge(self):
        """A file without blocks on the disk, whose sum takes minutes."""
        (self.directory / PARAMS).unlink()
        with open(self.directory / PARAMS, "wb") as file:
            file.truncate(1 << 40)

    def test_the_deadline_counts_while_a_sum_is_computed(self):
        self.huge()
        begin = time.monotonic()
        run = self.shoal("inspect", self.url, SHOAL_FETCH_TIMEOUT_S="2")
        self.assert_fails(run, 1, "DEADLINE_EXCEEDED", str(self.directory / PARAMS), "2 s")
        self.assertLess(time.monotonic() - begin, 60)

    def test_whoever_asked_may_die(self):
        self.huge()
        with self.daemon({"here": SHAPES}) as daemon:
            load = self.load(daemon, f"s1={self.url}")
            self.wait_for(lambda: self.fetchers(daemon), "nobody verifies")
            self.wait_for(lambda: f"{PARAMS} (verifying)" in daemon.model("s1")["reason"], "no progress is shown")
            self.assertRegex(daemon.model("s1")["reason"], r"\d+ of 1099512 MB")
            load.kill()
            load.communicate()
            self.wait_for(lambda: not self.fetchers(daemon), "it verifies for nobody")

    def test_a_command_may_be_ended(self):
        self.huge()
        command = subprocess.Popen([BIN / "shoal", "inspect", self.url], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
        self.wait_for(lambda: children.read_text().strip(), "nobody verifies")
        child = int(children.read_text().split()[0])
        command.send_signal(signal.SIGTERM)
        command.wait(30)
        self.wait_for(lambda: not Path(f"/proc/{child}").exists(), "it verifies for nobody")


if __name__ == "__main__":
    main(verbosity=2)
