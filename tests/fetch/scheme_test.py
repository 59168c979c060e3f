#!/usr/bin/env python3
"""What a URL begins with: upper case is the same, and a scheme that nobody knows is named, wherever a path is taken."""
import subprocess

from doubles import Double, S3Double
from fetching import BIN, PREFIX, SHAPES, FetchTest, cli, main
from signatures import KEYS, REGION, by_hand

KNOWN = ("https://", "s3://", "hdfs://", "file://")


class Schemes(FetchTest):
    def test_upper_case(self):
        files = {f"m/{file.name}": file.read_bytes() for file in SHAPES.iterdir()}
        with Double().serve(SHAPES, "/m") as web, S3Double("bucket", files, by_hand) as s3:
            self.environment.update(KEYS, AWS_REGION=REGION, AWS_ENDPOINT_URL=s3.url)
            urls = (f"HTTP://127.0.0.1:{web.port}/m/{PREFIX}", f"S3://bucket/m/{PREFIX}", f"File://{SHAPES}")
            for url in urls:
                with self.subTest(url=url):
                    run = self.shoal("inspect", url)
                    self.assertEqual(run.returncode, 0, run.stderr)
                    self.assertEqual(self.fetch(url).returncode, 0)
            with self.daemon({"web": urls[0]}) as daemon:
                for i, url in enumerate(urls):
                    run = daemon.shoal("load", f"m{i}={url}")
                    self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(s3.wrong, [])

    def test_unknown_ones(self):
        with self.daemon({}, "--model", "echo=builtin:identity") as daemon:
            for url in ("ftp://host/m", "gs://bucket/m", "HTTPSX://host/m"):
                scheme = url.partition("/")[0] + "//"
                x = cli.write_npy(self.tmp / "x.npy", (1, 1), [0.5])
                picture = next((SHAPES.parent / "pictures").iterdir())
                for words in (("inspect", url), ("run", url, "--input", f"data={x}", "--output", self.tmp / "run"), ("classify", url, picture),
                              ("detect", url, picture), ("fetch", url, self.tmp / "fetched"), ("load", f"m={url}"), ("reload", f"m={url}")):
                    with self.subTest(words=words):
                        run = daemon.shoal(*words)
                        self.assertNotEqual(run.returncode, 0)
                        for name in (scheme, *KNOWN):
                            self.assertIn(name, run.stderr)
                        self.assertNotIn("no such directory", run.stderr)
                (self.tmp / "shoal.toml").write_text(f'[models.m]\npath = "{url}"\n')
                for words in (("--model", f"m={url}"), ("--config", self.tmp / "shoal.toml")):
                    run = subprocess.run([BIN / "shoald", *words], env={**self.environment, "SHOAL_DIR": str(self.tmp / "d")},
                                         capture_output=True, text=True, timeout=60)
                    self.assertNotEqual(run.returncode, 0)
                    for name in (scheme, *KNOWN):
                        self.assertIn(name, run.stderr)

    def test_a_path_may_look_like_one(self):
        self.model().rename(self.tmp / "ftp:")
        for path in (self.tmp / "ftp:", f"{self.tmp}/ftp://{PREFIX}"):
            self.assertEqual(self.shoal("inspect", path).returncode, 0, path)
        run = subprocess.run([BIN / "shoal", "inspect", f"./ftp://{PREFIX}"], cwd=self.tmp, env=self.environment, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    main(verbosity=2)
