#!/usr/bin/env python3
"""Models over HTTPS from nginx, with a certificate of a test's own authority."""
import os
import shutil
import socket
import subprocess
import time
import unittest

from doubles import Double, Tunnel
from fetching import BIN, FILES, PREFIX, SHAPES, FetchTest, main, sums_of

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
CONFIGURATION = """
daemon off; master_process off; worker_processes 1; pid {directory}/nginx.pid; error_log {directory}/error.log; {user}
events {{ worker_connections 64; }}
http {{
  access_log {directory}/access.log; client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl; server_name localhost; ssl_certificate {directory}/server.pem; ssl_certificate_key {directory}/server.key;
    root {root};
    location /slow/ {{ alias {root}/; limit_rate 100k; }}
    location /closed/ {{ return 403; }}
    location /private/ {{ alias {root}/; auth_basic "models"; auth_basic_user_file {directory}/users; }}
    location /circle/ {{ return 302 $uri; }}
    location /plain/ {{ rewrite ^/plain/(.*)$ http://127.0.0.1:{plain}/$1 redirect; }}
    location /zipped/ {{ alias {root}/; gzip on; gzip_types application/json text/plain; }}
  }}
}}
"""


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@unittest.skipUnless(NGINX and shutil.which("openssl"), "no nginx or no openssl here: tools/install-deps")
class Nginx(FetchTest):
    def setUp(self):
        super().setUp()
        self.top, self.root = self.tmp / "nginx", self.tmp / "www"
        self.top.mkdir()
        shutil.copytree(SHAPES, self.root / "m")
        self.make_certificate()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.plain = self.enterContext(Double().serve(SHAPES, "/m"))
        (self.top / "users").write_text("me:{PLAIN}secret\n")
        (self.top / "nginx.conf").write_text(CONFIGURATION.format(directory=self.top, root=self.root, port=self.port, plain=self.plain.port,
                                                                  user="user root;" if os.getuid() == 0 else ""))
        self.start()
        self.addCleanup(self.stop)
        self.environment["CURL_CA_BUNDLE"] = str(self.top / "authority.pem")
        self.url = f"https://localhost:{self.port}"

    def make_certificate(self):
        top = self.top
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", top / "authority.key", "-out",
                top / "authority.pem", "-days", "2", "-subj", "/CN=a test of Shoal")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", top / "server.key", "-out", top / "server.csr",
                "-subj", "/CN=localhost")
        (top / "names").write_text("subjectAltName=DNS:localhost\n")
        openssl("x509", "-req", "-in", top / "server.csr", "-CA", top / "authority.pem", "-CAkey", top / "authority.key", "-CAcreateserial", "-days", "2",
                "-extfile", top / "names", "-out", top / "server.pem")

    def start(self):
        self.nginx = subprocess.Popen([NGINX, "-p", self.top, "-c", self.top / "nginx.conf", "-e", self.top / "error.log"], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.nginx.poll() is not None:
                    raise AssertionError((self.top / "error.log").read_text())
                time.sleep(0.02)

    def stop(self):
        self.nginx.kill()
        self.nginx.wait()

    def access(self):
        return (self.top / "access.log").read_text().splitlines()

    def test_a_model(self):
        self.assert_fetched(self.fetch(f"{self.url}/m/{PREFIX}"))
        sent = [line for line in self.access() if '" 200 ' in line]
        self.assertEqual(len(sent), len(FILES), sent)
        self.assert_fetched(self.fetch(f"{self.url}/m/{PREFIX}", into="again"), into="again")
        self.assertEqual(len([line for line in self.access() if '" 200 ' in line]), len(FILES), "sent again")
        self.assertEqual(len([line for line in self.access() if '" 304 ' in line]), len(FILES))

    def test_checksums(self):
        (self.root / "m" / "SHA256SUMS").write_bytes(sums_of(self.root / "m"))
        self.assert_fetched(self.fetch(f"{self.url}/m/"), names=FILES | {"SHA256SUMS"})
        with open(self.root / "m" / f"{PREFIX}-0000.params", "r+b") as params:
            params.seek(100)
            params.write(b"wrong")
        run = self.fetch(f"{self.url}/m/", into="wrong")
        self.assert_fails(run, 1, f"{self.url}/m/{PREFIX}-0000.params", "SHA256SUMS")
        self.assertFalse((self.tmp / "wrong").exists())

    def test_a_certificate_that_nobody_vouches_for(self):
        del self.environment["CURL_CA_BUNDLE"]
        self.assert_refused(self.fetch(f"{self.url}/m/{PREFIX}"), f"{self.url}/m/", "certificate", "CURL_CA_BUNDLE")

    def test_a_certificate_of_another_host(self):
        self.assert_refused(self.fetch(f"https://127.0.0.1:{self.port}/m/{PREFIX}"), f"https://127.0.0.1:{self.port}/m/", "cannot be trusted")

    def test_the_server_dies_and_comes_back(self):
        (self.root / "m" / "big.bin").write_bytes(os.urandom(600_000))
        params = self.root / "m" / f"{PREFIX}-0000.params"
        params.write_bytes(params.read_bytes() + os.urandom(400_000))  # 4 seconds
        command = subprocess.Popen([BIN / "shoal", "fetch", f"{self.url}/slow/m/{PREFIX}", self.tmp / "out"], env=self.environment, stderr=subprocess.PIPE)
        self.wait_for_part(150_000)
        self.stop()
        time.sleep(0.3)
        self.start()
        error = command.communicate(timeout=60)[1]
        self.assertEqual(command.returncode, 0, error)
        self.assertEqual((self.tmp / "out" / params.name).read_bytes(), params.read_bytes())
        self.assertTrue([line for line in self.access() if '" 206 ' in line], "it began anew")

    def test_refusals(self):
        name = f"{PREFIX}-0000.params"
        (self.root / "m" / name).unlink()
        self.assert_refused(self.fetch(f"{self.url}/m/{PREFIX}"), f"{self.url}/m/{name}", "404")
        self.assert_refused(self.fetch(f"{self.url}/m/{PREFIX}", SHOAL_FETCH_LIMIT_MB="1", SHOAL_FETCH_TIMEOUT_S="60"), name)
        run = self.fetch(f"{self.url}/closed/m/{PREFIX}")
        self.assertEqual(run.returncode, 1)
        self.assertIn("403", run.stderr)
        self.assert_refused(self.fetch(f"{self.url}/circle/m/{PREFIX}"), f"{self.url}/circle/m/", "10 redirects")
        self.assert_refused(self.fetch(f"{self.url}/plain/m/{PREFIX}"), f"{self.url}/plain/m/", "http://127.0.0.1", "encrypted")
        self.assertEqual(self.plain.requests, [])

    def test_too_large(self):
        with open(self.root / "m" / f"{PREFIX}-0000.params", "ab") as params:
            params.truncate(3 << 20)
        self.assert_refused(self.fetch(f"{self.url}/m/{PREFIX}", SHOAL_FETCH_LIMIT_MB="2"), f"{self.url}/m/{PREFIX}-0000.params", "2 MiB")

    def test_a_password(self):
        self.assert_refused(self.fetch(f"{self.url}/private/m/{PREFIX}"), f"{self.url}/private/m/", "401", ".netrc")
        (self.tmp / ".netrc").write_text("machine localhost login me password secret\n")
        self.assert_fetched(self.fetch(f"{self.url}/private/m/{PREFIX}"))

    def test_through_a_proxy(self):
        url = f"{self.url}/m/{PREFIX}"
        with Tunnel() as proxy:
            self.assert_fetched(self.fetch(url, https_proxy=proxy.url))
            self.assertEqual({path for path, _, _ in proxy.requests}, {f"localhost:{self.port}"})
            proxy.requests.clear()
            self.assert_fetched(self.fetch(url, into="around", https_proxy=proxy.url, no_proxy="localhost"), into="around")
            self.assertEqual(proxy.requests, [])
        self.assert_fails(self.fetch(url, into="none", https_proxy=proxy.url, SHOAL_FETCH_TIMEOUT_S="30"), 1, f"{self.url}/m/", str(proxy.port))

    def test_a_proxy_that_wants_a_password(self):
        url = f"{self.url}/m/{PREFIX}"
        with Tunnel(user="me:s3cr3t") as proxy:
            where = proxy.url.removeprefix("http://")
            for user in ("", "me:wr0ng@"):
                proxy.requests.clear()
                run = self.fetch(url, https_proxy=f"http://{user}{where}")
                self.assert_refused(run, f"{self.url}/m/", "proxy", "407", "https_proxy")
                self.assertNotIn("wr0ng", run.stderr)
                self.assertEqual(len(proxy.requests), 1, "what cannot succeed is not tried again")
            self.assert_fetched(self.fetch(url, https_proxy=f"http://me:s3cr3t@{where}"))
            self.assertNotIn("s3cr3t", "".join(self.access()))

    def test_a_proxy_that_refuses(self):
        for status, code in ((403, "PERMISSION_DENIED"), (502, "UNAVAILABLE")):
            with self.subTest(status), Tunnel(status=status) as proxy:
                run = self.fetch(f"{self.url}/m/{PREFIX}", https_proxy=proxy.url)
                self.assert_refused(run, f"{self.url}/m/", "proxy", str(status), code)
        self.assertEqual(self.access(), [])

    def test_nothing_is_asked_for_compressed(self):
        self.assert_fetched(self.fetch(f"{self.url}/zipped/m/{PREFIX}"))


if __name__ == "__main__":
    main(verbosity=2)
