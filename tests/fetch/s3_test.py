#!/usr/bin/env python3
"""Models from S3: a double that recomputes every signature by hand."""
import shutil

from doubles import Fault, Double, S3Double
from fetching import FILES, PREFIX, SHAPES, FetchTest, main, sums_of
from signatures import KEYS, REGION, by_hand

ODD = "a b+c=d~e*f'(g)&h/\u00fc@x:,;!$"  # a directory whose names many clients sign wrongly


class S3Test(FetchTest):
    def serve(self, directory=SHAPES, under="models/m", check=by_hand, page=1000):
        files = {f"{under}/{file.name}": file.read_bytes() for file in directory.iterdir()}
        double = self.enterContext(S3Double("bucket", files, check, page))
        self.environment.update(KEYS, AWS_REGION=REGION, AWS_ENDPOINT_URL=double.url)
        return double

    def test_a_prefix_and_a_directory(self):
        double = self.serve()
        self.assert_fetched(self.fetch(f"s3://bucket/models/m/{PREFIX}"))
        self.assert_fetched(self.fetch("s3://bucket/models/m", into="directory"), into="directory")
        self.assert_fetched(self.fetch("s3://bucket/models/m/", into="slash"), into="slash")
        self.assertEqual(double.wrong, [])

    def test_a_directory_beside_the_graph_has_its_prefix(self):
        double = self.serve()
        double.files[f"/bucket/models/m/{PREFIX}/notes.txt"] = b"no model"
        self.assert_fetched(self.fetch(f"s3://bucket/models/m/{PREFIX}-symbol.json"))

    def test_a_file_and_a_directory_of_one_name(self):
        double = self.serve()
        double.files["/bucket/models/m"] = b"some tools write such markers"
        double.files["/bucket/models/m/1"] = b""
        double.files["/bucket/models/m/1/notes.txt"] = b""
        self.assert_fetched(self.fetch("s3://bucket/models/m"))

    def test_a_file_whose_name_is_a_directory_and_an_epoch(self):
        double = self.serve()
        double.files.update({f"/bucket/v/2/{name}": (SHAPES / name).read_bytes() for name in FILES})
        double.files["/bucket/v@0"] = b""
        self.assert_refused(self.fetch("s3://bucket/v@0"), "s3://bucket/v@0")

    def test_names_that_many_sign_wrongly(self):
        double = self.serve(under=ODD)
        self.assert_fetched(self.fetch(f"s3://bucket/{ODD}/{PREFIX}"))
        self.assertEqual(double.wrong, [])

    def test_a_session_token_is_signed(self):
        double = self.serve()
        self.assert_fetched(self.fetch(f"s3://bucket/models/m/{PREFIX}", AWS_SESSION_TOKEN="tok/en+=="))
        self.assertTrue(all(headers["x-amz-security-token"] == "tok/en+==" for _, _, headers in double.requests))
        self.assertEqual(double.wrong, [])

    def test_credentials_from_files(self):
        double = self.serve()
        for name in KEYS:
            del self.environment[name]
        del self.environment["AWS_REGION"]
        (self.tmp / ".aws").mkdir()
        (self.tmp / ".aws" / "credentials").write_text("[team]\n" + "".join(f"{name.lower()} = {value}\n" for name, value in KEYS.items()))
        (self.tmp / ".aws" / "config").write_text(f"[profile team]\nregion = {REGION}\n")
        self.assert_fetched(self.fetch(f"s3://bucket/models/m/{PREFIX}", AWS_PROFILE="team"))
        self.assertEqual(double.wrong, [])

    def test_what_a_server_says_is_one_line(self):
        self.serve(check=lambda *_: "no\nshoald: this is forged\x1b[2J")
        run = self.fetch("s3://bucket/models/m")
        self.assert_refused(run, "s3://bucket/models/m", "no")
        self.assertNotIn("\x1b", run.stderr)

    def test_wrong_credentials(self):
        self.serve()
        run = self.fetch(f"s3://bucket/models/m/{PREFIX}", AWS_SECRET_ACCESS_KEY="wrong")
        self.assert_refused(run, "s3://bucket/models/m/", "403", "SignatureDoesNotMatch", KEYS["AWS_ACCESS_KEY_ID"])
        for name in KEYS:
            del self.environment[name]
        self.assert_refused(self.fetch(f"s3://bucket/models/m/{PREFIX}"), "403", "no credentials", "AWS_ACCESS_KEY_ID", "~/.aws/credentials")

    def test_a_public_bucket(self):
        double = self.serve(check=None)
        for name in KEYS:
            del self.environment[name]
        self.assert_fetched(self.fetch(f"s3://bucket/models/m/{PREFIX}"))
        self.assertTrue(all("Authorization" not in headers for _, _, headers in double.requests))

    def test_what_has_not_changed_is_not_sent_again(self):
        double = self.serve()
        self.assert_fetched(self.fetch("s3://bucket/models/m"))
        double.requests.clear()
        self.assert_fetched(self.fetch("s3://bucket/models/m", into="again"), into="again")
        self.assertTrue(all("If-None-Match" in headers for headers in double.asked(f"/bucket/models/m/{PREFIX}-0000.params")))

    def test_a_broken_connection_goes_on(self):
        double = self.serve()
        path = f"/bucket/models/m/{PREFIX}-0000.params"
        double.faults[path] = Fault("cut", 100_000)
        self.assert_fetched(self.fetch(f"s3://bucket/models/m/{PREFIX}"))
        self.assertIn("bytes=100000-", [headers.get("Range") for headers in double.asked(path)])
        self.assertEqual(double.wrong, [])

    def test_long_lists_have_pages(self):
        double = self.serve(page=3)
        for epoch in range(1, 20):
            double.files[f"/bucket/models/m/{PREFIX}-{epoch:04}.params"] = double.files[f"/bucket/models/m/{PREFIX}-0000.params"]
        self.assert_refused(self.fetch(f"s3://bucket/models/m/{PREFIX}@77"), f"s3://bucket/models/m/{PREFIX}", "no epoch 77", "18, 19")
        self.assert_fetched(self.fetch(f"s3://bucket/models/m/{PREFIX}@0"))
        double.page = 1  # more than ten pages
        self.assert_fails(self.fetch(f"s3://bucket/models/m/{PREFIX}", into="none"), 1, "s3://bucket/models/m/", "directory of its own")

    def test_versions_and_what_they_share(self):
        directory = self.model()
        shared = (directory / "model.toml").read_bytes()
        (directory / "model.toml").unlink()
        double = self.serve(directory, "v/1")
        for version in (2, 3):
            double.files.update({f"/bucket/v/{version}/{file.name}": file.read_bytes() for file in directory.iterdir()})
        double.files["/bucket/v/model.toml"] = b'versions = "latest:2"\n' + shared
        names = ["model.toml"] + [f"{v}/{file.name}" for v in (2, 3) for file in directory.iterdir()]
        self.assert_fetched(self.fetch("s3://bucket/v"), source=directory, names=names)
        for name in list(double.files):
            if "/v/3/" in name:
                del double.files[name]
        shutil.rmtree(self.tmp / "out")
        names = ["model.toml"] + [f"{v}/{file.name}" for v in (1, 2) for file in directory.iterdir()]
        self.assert_fetched(self.fetch("s3://bucket/v"), source=directory, names=names)

    def test_checksums(self):
        directory = self.model()
        (directory / "SHA256SUMS").write_bytes(sums_of(directory))
        double = self.serve(directory)
        self.assert_fetched(self.fetch("s3://bucket/models/m"), source=directory, names=FILES | {"SHA256SUMS"})
        double.files["/bucket/models/m/synset.txt"] = b"wrong\n"
        run = self.fetch("s3://bucket/models/m", into="wrong")
        self.assert_fails(run, 1, "s3://bucket/models/m/synset.txt", "SHA256SUMS")
        self.assertFalse((self.tmp / "wrong").exists())

    def test_checksums_that_name_none_of_the_files(self):
        directory = self.model()
        (directory / "SHA256SUMS").write_text(sums_of(directory).decode().replace("  ", "  m/"))
        double = self.serve(directory)
        self.assert_refused(self.fetch("s3://bucket/models/m"), "s3://bucket/models/m/SHA256SUMS", "DATA_LOSS", "'m/", "sha256sum * > SHA256SUMS")
        del double.files["/bucket/models/m/SHA256SUMS"]
        for name, content in list(double.files.items()):
            double.files[name.replace("/m/", "/m/1/")] = content
            del double.files[name]
        self.assert_fetched(self.fetch("s3://bucket/models/m"), names={f"1/{name}" for name in FILES})
        double.files["/bucket/models/m/SHA256SUMS"] = b"0" * 64 + b"  1/x\n"
        self.assert_fails(self.fetch("s3://bucket/models/m", into="b"), 1, "s3://bucket/models/m/SHA256SUMS", "'1/x'", "directory of each")
        double.files["/bucket/models/m/1/SHA256SUMS"] = sums_of(directory, [f"{PREFIX}-0000.params"])
        self.assertEqual(self.fetch("s3://bucket/models/m", into="c").returncode, 0)
        double.files["/bucket/models/m/model.toml"] = b"workers = 1\n"
        run = self.fetch("s3://bucket/models/m", into="d")
        self.assertEqual(run.returncode, 0, run.stderr)
        del double.files["/bucket/models/m/1/SHA256SUMS"]
        self.assert_fails(self.fetch("s3://bucket/models/m", into="e"), 1, "s3://bucket/models/m/SHA256SUMS", "'1/x'", "directory of each")

    def test_a_redirect_learns_no_signature(self):
        double = self.serve()
        with Double() as other:
            other.files["/elsewhere"] = (SHAPES / "synset.txt").read_bytes()
            double.faults["/bucket/models/m/synset.txt"] = Fault("redirect", other.url + "/elsewhere")
            self.assert_fetched(self.fetch("s3://bucket/models/m"))
            asked = {name.lower() for name in other.asked("/elsewhere")[0]}
            self.assertFalse(asked & {"authorization", "x-amz-security-token", "x-amz-content-sha256"}, asked)

    def test_what_is_no_s3(self):
        with Double({"/bucket/": b"<html>hello</html>"}) as web:
            self.environment.update(KEYS, AWS_ENDPOINT_URL=web.url)
            self.assert_refused(self.fetch("s3://bucket/m"), "s3://bucket/m", "no list of S3", "AWS_ENDPOINT_URL")

    def test_hostile_names_are_left_out(self):
        double = self.serve()
        for name in ("models/m/../../evil", "models/m//evil", "models/m/evil\nname"):
            double.files[f"/bucket/{name}"] = b"x"
        self.assert_fetched(self.fetch("s3://bucket/models/m"))
        self.assertEqual(list(self.cache.rglob("evil*")), [])


if __name__ == "__main__":
    main(verbosity=2)
