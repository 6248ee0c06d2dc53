"""A service that is not Casework: threads, counts, cookies, slow and broken answers. Says its port and ends with its input.

The path says what is answered: /created, /slow/MS, /bytes/COUNT, /stream, /ticks/COUNT, /chunked, /events, /hang, /die/head,
/die/body, /die/big, /status/CODE, /then/CODE (that code first), /headers, /echo, /redirect. /_runs/PATH tells how often PATH was run.
"""

import http.server
import json
import os
import sys
import threading
import time

runs = {}
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                parts.append(self.rfile.read(size))
                self.rfile.readline()
                if size == 0:
                    return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def begin_chunks(self, media_type):
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def handle_any(self):
        body = self.body()
        path = self.path.split("?")[0]
        if path.startswith("/_runs/"):
            with lock:
                count = runs.get(path[6:], 0)
            return self.answer(200, str(count).encode())
        with lock:
            run = runs[path] = runs.get(path, 0) + 1
        words = path.strip("/").split("/")
        kind, argument = words[0], words[-1]
        told = json.dumps({"run": run}).encode()
        media_type = ("Content-Type", "application/json")
        if kind == "created":
            headers = [media_type, ("Location", f"/things/{run}"), ("ETag", f'"{run}"')]
            headers += [("Set-Cookie", "session=47"), ("Set-Cookie", "theme=dark"), ("X-Own", "yes")]
            headers += [("Connection", "X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "timeout=5")]
            return self.answer(201, told, headers)
        if kind == "slow":
            time.sleep(int(argument) / 1000)
            return self.answer(201, told, [media_type])
        if kind == "bytes":
            left = int(argument)
            self.send_response(200)
            self.send_header("Content-Length", str(left))
            self.end_headers()
            while left > 0 and self.command != "HEAD":
                part = b"x" * min(left, 65536)
                self.wfile.write(part)
                left -= len(part)
            return None
        if kind in ("stream", "ticks"):
            self.begin_chunks("text/plain")
            for number in range(6 if kind == "stream" else int(argument)):
                self.chunk(b"chunk %d\n" % number)
                time.sleep(0.2 if kind == "stream" else 0.1)
            return self.chunk(b"")
        if kind == "chunked":
            self.begin_chunks("application/json")
            self.chunk(told)
            return self.chunk(b"")
        if kind == "events":
            self.begin_chunks("text/event-stream")
            self.chunk(b"data: 1\n\n")
            return self.chunk(b"")
        if kind == "hang":
            # Until the other side gives up.
            self.connection.recv(1)
            self.close_connection = True
            return None
        if kind == "die":
            if argument != "head":
                self.send_response(201)
                self.send_header("Content-Length", "100" if argument == "body" else "200000")
                self.end_headers()
                self.wfile.write(b"half")
            self.close_connection = True
            return None
        if kind == "then":
            return self.answer(int(argument) if run == 1 else 200, told)
        if kind == "status":
            return self.answer(int(argument), b"" if argument == "204" else told)
        if kind == "headers":
            return self.answer(200, json.dumps([[k.lower(), v] for k, v in self.headers.items()]).encode())
        if kind == "echo":
            return self.answer(200, json.dumps({"length": len(body), "body": body[:1000].decode(errors="replace")}).encode())
        if kind == "redirect":
            return self.answer(302, b"", [("Location", "/created")])
        return self.answer(200, told, [media_type])

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
