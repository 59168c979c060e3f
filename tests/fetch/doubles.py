"""Servers on loopback that stand in for web servers, S3 and WebHDFS, and that break as they are told. Only the standard library."""
import base64
import hashlib
import json
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape


class Fault:
    """What goes wrong when a path is asked for: the first `times` times (None: always)."""

    def __init__(self, kind, value=None, times=None):
        self.kind, self.value, self.times = kind, value, times

    def strikes(self):
        if self.times is None:
            return True
        self.times -= 1
        return self.times >= 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        double = self.server.double
        path = urllib.parse.unquote(self.path.partition("?")[0])
        query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))
        with double.lock:
            double.requests.append((path, query, dict(self.headers)))
        try:
            double.answer(self, path, query)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def handle(self):
        try:
            super().handle()
        except ConnectionError:  # between two requests
            pass

    def send(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self):
        self.close_connection = True
        self.wfile.flush()


class Double:
    """A web server: files by path, with strong ETags and ranges. For a with-statement."""

    def __init__(self, files=None):
        self.files, self.faults, self.requests, self.lock = dict(files or {}), {}, [], threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.double = self
        self.port = self.server.server_address[1]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def serve(self, directory, under=""):
        """Serves copies of a directory's files."""
        for file in directory.rglob("*"):
            if file.is_file():
                self.files[f"{under}/{file.relative_to(directory)}"] = file.read_bytes()
        return self

    def asked(self, path):
        """The headers of each request for this path."""
        with self.lock:
            return [headers for asked, _, headers in self.requests if asked == path]

    def answer(self, handler, path, query):
        fault = self.faults.get(path)
        if fault and fault.strikes():
            return self.fail(handler, path, fault)
        if path not in self.files:
            return handler.send(404, b"no such file")
        return self.send_file(handler, self.files[path])

    def send_file(self, handler, body, most=None, pause=0.0, knows_ranges=True, **headers):
        """At most `most` bytes come, then the connection is cut."""
        etag = '"' + hashlib.sha1(body).hexdigest() + '"'
        if handler.headers.get("If-None-Match") == etag:
            handler.send_response(304)
            handler.send_header("ETag", etag)
            handler.end_headers()
            return
        begin, wanted = 0, handler.headers.get("Range")
        if wanted and knows_ranges and handler.headers.get("If-Range", etag) == etag:
            begin = int(wanted.removeprefix("bytes=").partition("-")[0])
            if begin >= len(body):
                return handler.send(416, b"", Content_Range=f"bytes */{len(body)}")
        handler.send_response(206 if begin else 200)
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        handler.send_header("ETag", etag)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body) - begin))
        handler.end_headers()
        rest = body[begin:] if most is None else body[begin:begin + most]
        step = max(1, len(body) // 50) if pause else len(rest) or 1
        for i in range(0, len(rest), step):
            handler.wfile.write(rest[i:i + step])
            if pause:
                time.sleep(pause)
        if most is not None and begin + most < len(body):
            handler.hang_up()

    def fail(self, handler, path, fault):
        body = self.files.get(path, b"")
        if fault.kind == "cut":  # after so many bytes
            self.send_file(handler, body, most=fault.value)
        elif fault.kind == "cut_without_ranges":
            self.send_file(handler, body, most=fault.value, knows_ranges=False)
        elif fault.kind == "slow":
            self.send_file(handler, body, pause=fault.value)
        elif fault.kind == "status":
            handler.send(fault.value, b"told to fail")
        elif fault.kind == "redirect":
            handler.send(302, b"", Location=fault.value)
        elif fault.kind == "hang":  # reads the request and says nothing
            self.ended.wait(60)
            handler.hang_up()
        elif fault.kind == "hang_inside":
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[:fault.value])
            self.ended.wait(60)
            handler.hang_up()
        elif fault.kind == "endless":  # more than it announced: nothing
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            while not self.ended.is_set():
                handler.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        elif fault.kind == "huge":
            handler.send_response(200)
            handler.send_header("Content-Length", str(fault.value))
            handler.end_headers()
            handler.hang_up()
        elif fault.kind == "no_length":  # the end of the connection is the end of the file, as in HTTP/1.0
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(body[:fault.value])
            handler.hang_up()
        elif fault.kind == "encoded":
            handler.send(200, body, Content_Encoding="gzip")
        elif fault.kind == "do":
            fault.value(handler, body)
        elif fault.kind == "other_range":
            handler.send(206, body, Content_Range=f"bytes 0-{len(body) - 1}/{len(body)}", ETag='"x"')
        else:
            raise AssertionError(fault.kind)


class TunnelHandler(Handler):
    def do_CONNECT(self):
        tunnel = self.server.double
        with tunnel.lock:
            tunnel.requests.append((self.path, {}, dict(self.headers)))
        if tunnel.status != 200 or (tunnel.user and self.headers.get("Proxy-Authorization") != tunnel.user):
            return self.send(tunnel.status if tunnel.status != 200 else 407, b"no", Proxy_Authenticate='Basic realm="tunnel"')
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as there:
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            back = threading.Thread(target=pump, args=(there, self.connection))
            back.start()
            pump(self.connection, there)
            back.join()


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class Tunnel(Double):
    """A proxy for https://: it knows CONNECT only. `user`: "name:password" that it wants. `status`: of every answer, if it is not 200."""

    def __init__(self, user=None, status=200):
        super().__init__()
        self.user, self.status = user and "Basic " + base64.b64encode(user.encode()).decode(), status
        self.server.RequestHandlerClass = TunnelHandler


class S3Double(Double):
    """S3 with path-style names: recomputes the signature of each request with `check(path, query, headers)`, which says what is wrong."""

    def __init__(self, bucket, files=None, check=None, page=1000):
        super().__init__({f"/{bucket}/{key}": body for key, body in (files or {}).items()})
        self.bucket, self.check, self.page, self.wrong = bucket, check, page, []

    def refuse(self, handler, status, code, message, **headers):
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        handler.send(status, text.encode(), **headers)

    def answer(self, handler, path, query):
        if self.check:
            wrong = self.check(handler.path, dict(handler.headers))
            if wrong:
                self.wrong.append(wrong)
                return self.refuse(handler, 403, "SignatureDoesNotMatch", wrong)
        if query.get("list-type") == "2":
            return self.list(handler, query)
        if path not in self.files and path not in self.faults:
            return self.refuse(handler, 404, "NoSuchKey", "The specified key does not exist.")
        return super().answer(handler, path, query)

    def list(self, handler, query):
        keys = sorted(path.removeprefix(f"/{self.bucket}/") for path in self.files)
        prefix, found = query.get("prefix", ""), []
        for key in (key for key in keys if key.startswith(prefix)):
            rest = key[len(prefix):]
            name = prefix + rest.partition("/")[0] + "/" if "/" in rest else key
            if name not in found:
                found.append(name)
        begin = int(query.get("continuation-token") or 0)
        page = found[begin:begin + self.page]
        more = begin + self.page < len(found)
        text = "<?xml version='1.0'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        text += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            text += f"<NextContinuationToken>{begin + self.page}</NextContinuationToken>"
        for name in page:
            if name.endswith("/") and name not in keys:
                text += f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            else:
                body = self.files[f"/{self.bucket}/{name}"]
                text += f"<Contents><Key>{escape(name)}</Key><Size>{len(body)}</Size><ETag>\"{hashlib.sha1(body).hexdigest()}\"</ETag></Contents>"
        handler.send(200, (text + "</ListBucketResult>").encode(), Content_Type="application/xml")


class DataNode(Double):
    """Has the bytes of a WebHdfs. It sends no ETag, and the offset is in the URL."""

    def answer(self, handler, path, query):
        body = self.namenode.files.get(path.removeprefix("/data"), b"")
        fault = self.faults.get(path.removeprefix("/data"))
        rest = body[int(query.get("offset", 0)):]
        most = fault.value if fault and fault.strikes() else len(rest)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(rest)))
        handler.end_headers()
        handler.wfile.write(rest[:most])
        if most < len(rest):
            handler.hang_up()


class WebHdfs(Double):
    """A namenode that redirects to itself once, as a router does, and then to a datanode."""

    def __init__(self, files=None):
        super().__init__(files)
        self.versions = {}
        self.data = DataNode()
        self.data.namenode = self

    @property
    def url(self):
        return f"hdfs://127.0.0.1:{self.port}"

    def __enter__(self):
        self.data.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.data.__exit__(*error)

    def status(self, path, name):
        if path in self.files:
            return {"pathSuffix": name, "type": "FILE", "length": len(self.files[path]), "fileId": 7,
                    "modificationTime": self.versions.get(path, 1000)}
        return {"pathSuffix": name, "type": "DIRECTORY", "length": 0, "fileId": 8, "modificationTime": 0}

    def exists(self, path):
        return path in self.files or any(file.startswith(path.rstrip("/") + "/") for file in self.files)

    def refuse(self, handler, status, exception, message):
        handler.send(status, json.dumps({"RemoteException": {"exception": exception, "message": message}}).encode())

    def answer(self, handler, path, query):
        path = path.removeprefix("/webhdfs/v1").rstrip("/")
        fault = self.faults.get(path)
        if fault and fault.strikes():
            return self.refuse(handler, fault.value, "AccessControlException", "Permission denied: user=dr.who")
        if not self.exists(path):
            return self.refuse(handler, 404, "FileNotFoundException", f"File {path} does not exist.")
        if query["op"] == "GETFILESTATUS":
            return handler.send(200, json.dumps({"FileStatus": self.status(path, "")}).encode())
        if query["op"] == "LISTSTATUS":
            base = path.rstrip("/") + "/"
            names = sorted({file[len(base):].partition("/")[0] for file in self.files if file.startswith(base)})
            return handler.send(200, json.dumps({"FileStatuses": {"FileStatus": [self.status(base + n, n) for n in names]}}).encode())
        offset = f"&offset={query['offset']}" if "offset" in query else ""
        if "routed" not in query:
            where = f"http://127.0.0.1:{self.port}/webhdfs/v1{urllib.parse.quote(path)}?op=OPEN&routed=1{offset}"
        else:
            where = f"http://127.0.0.1:{self.data.port}/data{urllib.parse.quote(path)}?op=OPEN{offset}"
        return handler.send(307, b"", Location=where)
