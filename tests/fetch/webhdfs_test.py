#!/usr/bin/env python3
"""Models from Hadoop: a double of WebHDFS that redirects twice."""
from doubles import Fault, WebHdfs
from fetching import FILES, PREFIX, SHAPES, FetchTest, main

PARAMS = f"/models/m/{PREFIX}-0000.params"


class Hdfs(FetchTest):
    def setUp(self):
        super().setUp()
        self.hdfs = self.enterContext(WebHdfs().serve(SHAPES, "/models/m"))
        self.url = f"{self.hdfs.url}/models/m"

    def test_a_prefix_and_a_directory(self):
        self.assert_fetched(self.fetch(f"{self.url}/{PREFIX}"))
        self.assert_fetched(self.fetch(self.url, into="directory"), into="directory")
        self.assertTrue(self.hdfs.data.requests, "the bytes come from the datanode")

    def test_unchanged_files_are_not_sent_again(self):
        self.assert_fetched(self.fetch(self.url))
        self.hdfs.data.requests.clear()
        self.assert_fetched(self.fetch(self.url))
        self.assertEqual(self.hdfs.data.requests, [])
        self.hdfs.versions[PARAMS] = 2000
        self.assert_fetched(self.fetch(self.url))
        self.assertEqual(len(self.hdfs.data.requests), 1)

    def test_a_broken_connection_goes_on_at_its_offset(self):
        self.hdfs.data.faults[PARAMS] = Fault("cut", 100_000)
        self.assert_fetched(self.fetch(self.url))
        offsets = [int(query.get("offset", 0)) for path, query, _ in self.hdfs.data.requests if path.endswith(".params")]
        self.assertEqual(offsets, list(range(0, len(self.hdfs.files[PARAMS]), 100_000)))

    def test_a_file_that_changes_meanwhile_begins_anew(self):
        new = b"y" + self.hdfs.files[PARAMS][1:]
        answer = self.hdfs.data.answer

        def change(handler, path, query):
            answer(handler, path, query)
            if path.endswith(".params") and self.hdfs.versions.get(PARAMS) is None:
                self.hdfs.files[PARAMS], self.hdfs.versions[PARAMS] = new, 3000
        self.hdfs.data.answer = change
        run = self.fetch(self.url)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual((self.tmp / "out" / f"{PREFIX}-0000.params").read_bytes(), new)

    def test_versions(self):
        for version in (1, 2, 10):
            self.hdfs.serve(SHAPES, f"/models/v/{version}")
        url = f"{self.hdfs.url}/models/v"
        self.assert_fetched(self.fetch(url), names=[f"10/{name}" for name in FILES])
        self.assert_fetched(self.shoal("fetch", url, self.tmp / "two", "--versions", "latest:2"), into="two",
                            names=[f"{version}/{name}" for version in (2, 10) for name in FILES])
        run = self.shoal("fetch", url, self.tmp / "none", "--versions", "7")
        self.assert_fails(run, 1, url, "no version 7", "1, 2, 10")

    def test_the_user_is_named(self):
        self.assert_fetched(self.fetch(self.url, HADOOP_USER_NAME="me too"))
        self.assertTrue(all(query.get("user.name") == "me too" for _, query, _ in self.hdfs.requests if "routed" not in query))
        self.assertTrue(all("user.name" not in query for _, query, _ in self.hdfs.data.requests))

    def test_errors_say_what_hadoop_says(self):
        self.assert_refused(self.fetch(f"{self.hdfs.url}/models/nowhere/m"), "/models/nowhere/", "FileNotFoundException")
        self.assert_refused(self.fetch(f"{self.url}/x"), f"{self.url}/x-symbol.json")
        self.hdfs.faults["/models/m"] = Fault("status", 403)
        self.assert_refused(self.fetch(f"{self.url}/{PREFIX}"), f"{self.url}/", "403", "Permission denied", "HADOOP_USER_NAME")
        self.hdfs.faults.clear()
        self.hdfs.refuse = lambda handler, *_: handler.send(404, b"\xff<html>")
        self.assert_refused(self.fetch(f"{self.hdfs.url}/models/nowhere/m"), "/models/nowhere/", "404")

    def test_a_list_that_is_none(self):
        self.hdfs.status = lambda *_: {"pathSuffix": 7}
        self.assert_refused(self.fetch(f"{self.url}/{PREFIX}"), f"{self.url}/", "not WebHDFS", "9870")

    def test_hostile_names_are_left_out(self):
        listed = self.hdfs.status
        self.hdfs.files["/models/m/evil"] = b"x"
        self.hdfs.status = lambda path, name: dict(listed(path, name), pathSuffix="../../evil" if name == "evil" else name)
        self.assert_fetched(self.fetch(self.url))
        self.assertEqual([file for file in self.cache.rglob("evil*")], [])


if __name__ == "__main__":
    main(verbosity=2)
