#!/usr/bin/env python3
"""Models from moto, a server that behaves like S3, behind a check that recomputes every signature with botocore. Installs both into a
virtual environment in build/bench; skips without a network."""
import http.client
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "benchmarks"))

PACKAGES = ["moto[s3,server]==5.2.5", "botocore==1.44.8"]
BOTO = os.environ.get("SHOAL_TEST_BOTO")  # set in the second run, by the environment's own Python

if __name__ == "__main__" and not BOTO:
    from environments import environment
    from harness import BenchError
    try:
        python = environment("moto", PACKAGES)
    except BenchError as error:
        print(f"skipped: moto cannot be installed: {error}", file=sys.stderr)
        sys.exit(77)
    os.execve(python, [python, *sys.argv], {**os.environ, "SHOAL_TEST_BOTO": "1"})

from doubles import Double  # noqa: E402
from fetching import FILES, PREFIX, SHAPES, FetchTest, main, sums_of  # noqa: E402
from signatures import KEYS, REGION, by_botocore  # noqa: E402

ODD = "a b+c=d~e*f'(g)&h/\u00fc@x:,;!$"


class CheckedProxy(Double):
    """Passes requests on to moto if botocore finds their signatures right."""

    def __init__(self, port):
        super().__init__()
        self.moto, self.wrong = port, []

    def answer(self, handler, path, query):
        wrong = by_botocore(handler.path, dict(handler.headers))
        if wrong:
            self.wrong.append(f"{handler.path}: {wrong}")
            return handler.send(403, wrong.encode())
        connection = http.client.HTTPConnection("127.0.0.1", self.moto)
        connection.request("GET", handler.path, headers=dict(handler.headers))
        reply = connection.getresponse()
        body = reply.read()
        handler.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                handler.send_header(name, value)
        if reply.status != 304:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


class Moto(FetchTest):
    @classmethod
    def setUpClass(cls):
        os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = "10"  # names in a page of a list
        import boto3
        from moto.server import ThreadedMotoServer
        cls.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        cls.server.start()
        _, port = cls.server.get_host_and_port()
        cls.s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="y")
        cls.s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
        cls.port = port

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        super().setUp()
        self.proxy = self.enterContext(CheckedProxy(self.port))
        self.environment.update(KEYS, AWS_REGION=REGION, AWS_ENDPOINT_URL=self.proxy.url)

    def tearDown(self):
        self.assertEqual(self.proxy.wrong, [])

    def put(self, under, directory=SHAPES):
        for file in directory.iterdir():
            self.s3.put_object(Bucket="bucket", Key=f"{under}/{file.name}", Body=file.read_bytes())

    def test_a_model(self):
        self.put("models/m")
        self.assert_fetched(self.fetch(f"s3://bucket/models/m/{PREFIX}"))
        self.assert_fetched(self.fetch("s3://bucket/models/m", into="directory"), into="directory")
        self.assertEqual(self.shoal("inspect", f"s3://bucket/models/m/{PREFIX}").returncode, 0)
        self.assertTrue(self.proxy.requests)

    def test_odd_names_and_a_token(self):
        self.put(ODD)
        self.assert_fetched(self.fetch(f"s3://bucket/{ODD}/{PREFIX}", AWS_SESSION_TOKEN="tok/en+=="))

    def test_many_objects(self):
        self.put("many")
        for i in range(35):
            self.s3.put_object(Bucket="bucket", Key=f"many/{i:05}.txt", Body=b"")
        self.assert_fetched(self.fetch("s3://bucket/many"))
        self.assertEqual(len([query for _, query, _ in self.proxy.requests if query.get("continuation-token")]), 3)

    def test_versions_and_checksums(self):
        directory = self.model()
        (directory / "SHA256SUMS").write_bytes(sums_of(directory))
        for version in (1, 2):
            self.put(f"v/{version}", directory)
        self.assert_fetched(self.fetch("s3://bucket/v"), source=directory, names=[f"2/{name}" for name in FILES | {"SHA256SUMS"}])

    def test_unchanged_and_changed(self):
        self.put("c")
        self.assert_fetched(self.fetch("s3://bucket/c"))
        before = len(self.proxy.requests)
        self.assert_fetched(self.fetch("s3://bucket/c"))
        again = [headers for path, _, headers in self.proxy.requests[before:] if path.endswith(".params")]
        self.assertTrue(again and all("If-None-Match" in headers for headers in again))
        self.s3.put_object(Bucket="bucket", Key="c/synset.txt", Body=b"other\n")
        self.assertEqual(self.fetch("s3://bucket/c").returncode, 0)
        self.assertEqual((self.tmp / "out" / "synset.txt").read_bytes(), b"other\n")

    def test_errors(self):
        self.assert_refused(self.fetch("s3://nobucket/m"), "s3://nobucket/m", "404", "NoSuchBucket")
        self.assert_refused(self.fetch("s3://bucket/none"), "s3://bucket/none", "none-symbol.json")


if __name__ == "__main__":
    main(verbosity=2)
elif not BOTO:
    raise unittest.SkipTest("run it as a program")
