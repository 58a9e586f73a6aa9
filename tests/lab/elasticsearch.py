# SPDX-License-Identifier: Apache-2.0
"""Elasticsearch's bulk interface for shippers of logs, over TLS and with a password."""

import base64
import http.server
import json
import ssl
import threading

from .certificate import server_certificate

PORT = 9200
USER, PASSWORD = "sluice", "a secret of Elasticsearch's"


class Elasticsearch:
    """Keeps documents as Elasticsearch does: one that is created under an id that is there already is a conflict."""

    def __init__(self, lab, namespace):
        self.directory = lab.directory / "elasticsearch"
        self.directory.mkdir()
        server_certificate(self.directory)
        self.documents, self.requests, self.refused, self.conflicts = {}, 0, 0, 0
        self.away = False
        self.lock = threading.Lock()
        self.http = namespace.inside(self.listen)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()
        lab.on_close(self.close)

    def listen(self):
        made = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), self.handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        made.socket = context.wrap_socket(made.socket, server_side=True)
        return made

    def handler(self):
        server = self
        shown = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with server.lock:
                    server.requests += 1
                    if server.away:
                        self.answer(503, {"error": "unavailable"})
                    elif self.headers.get("Authorization") != shown:
                        server.refused += 1
                        self.answer(401, {"error": "unauthorized"})
                    elif self.path.partition("?")[0] != "/_bulk":
                        self.answer(404, {"error": self.path})
                    else:
                        self.answer(200, server.bulk(text))

            def answer(self, status, said):
                body = json.dumps(said, separators=(",", ":")).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler

    def bulk(self, text):
        lines = [json.loads(line) for line in text.splitlines()]
        items, errors = [], False
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            ((operation, where),) = action.items()
            assert operation in ("create", "index")
            # A mapping has no types since version 8.
            assert set(where) <= {"_index", "_id"}, where
            key = where["_index"], where.get("_id", f"none-{len(self.documents)}")
            status = 201
            if operation == "create" and key in self.documents:
                status, errors = 409, True
                self.conflicts += 1
            else:
                self.documents[key] = document
            items.append({operation: {"_index": key[0], "_id": key[1], "status": status}})
        return {"took": 1, "errors": errors, "items": items}

    def found(self):
        """Documents by index and id."""
        with self.lock:
            return dict(self.documents)

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(5)
