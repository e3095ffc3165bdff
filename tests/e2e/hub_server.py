"""A Hugging Face Hub on this machine, with the faults that networks have. Large files lie on "another host": the same
server under another name."""
import functools
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse

TOKEN = "hf_verysecret"


@functools.cache
def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repository:
    def __init__(self, files, large=()):
        self.files, self.large = dict(files), set(large)
        self.commit = hashlib.sha1(repr([(path, git_sha1(self.files[path])) for path in sorted(self.files)]).encode()).hexdigest()
        self.private = self.gated = False
        self.granted = True  # whether the token's account has accepted the conditions

    def etag(self, path):
        content = self.files[path]
        return hashlib.sha256(content).hexdigest() if path in self.large else git_sha1(content)

    def siblings(self):
        for path, content in self.files.items():
            entry = {"rfilename": path, "size": len(content), "blobId": git_sha1(content)}
            if path in self.large:
                entry["lfs"] = {"sha256": self.etag(path), "size": len(content), "pointerSize": 134}
            yield entry


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        headers.setdefault("Content_Length", len(body))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):  # noqa: N802: http.server's name
        self.do_GET()

    def do_GET(self):  # noqa: N802
        hub = self.server.hub
        address = urllib.parse.urlsplit(self.path)
        request = {"host": self.headers["Host"].split(":")[0], "method": self.command,
                   "path": urllib.parse.unquote(address.path), "token": self.headers["Authorization"],
                   "range": self.headers["Range"],
                   "query": address.query}
        with hub.lock:
            hub.requests.append(request)
            fault = next((fault for fault in hub.faults if fault["times"] > 0 and fault["matches"](request)), None)
            if fault:
                fault["times"] -= 1
        try:
            if fault and fault["act"](self, request) is not False:
                return
            self.serve(hub, request, address)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def serve(self, hub, request, address):
        path = request["path"]
        if match := re.fullmatch(r"/api/(models|datasets)", path):
            return self.search(hub, match[1], dict(urllib.parse.parse_qsl(address.query)))
        if match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/revision/(.+)", path):
            return self.info(hub, *match.groups(), request)
        if match := re.fullmatch(r"(/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self.resolve(hub, "datasets" if match[1] else "models", *match.groups()[1:], request)
        if match := re.fullmatch(r"/stored/([0-9a-f]{64})", path):
            return self.content(hub.stored[match[1]], request)
        self.answer(404)

    def search(self, hub, kind, query):
        names = [name for (of, name) in hub.repositories if of == kind
                 and query.get("search", "") in name and name.startswith(query.get("author", ""))]
        self.answer(200, json.dumps([{"id": name} for name in names]).encode())

    def allowed(self, repository, request):
        authorized = request["token"] == f"Bearer {TOKEN}"
        if request["token"] and not authorized:
            self.answer(401, b"", X_Error_Message="Invalid credentials in Authorization header")
        elif repository is None or (repository.private and not authorized):
            self.answer(401 if not request["token"] else 404, b"", X_Error_Code="RepoNotFound")
        elif repository.gated and not (authorized and repository.granted):
            self.answer(403 if authorized else 401, b"", X_Error_Code="GatedRepo")
        else:
            return True
        return False

    def info(self, hub, kind, name, revision, request):
        repository = hub.repositories.get((kind, name))
        if not self.allowed(repository, request):
            return
        known = hub.revisions(kind, name)
        if revision not in known:
            return self.answer(404, b"", X_Error_Code="RevisionNotFound")
        chosen = known[revision]
        self.answer(200, json.dumps({"id": name, "sha": chosen.commit, "siblings": list(chosen.siblings())}).encode())

    def resolve(self, hub, kind, name, revision, path, request):
        repository = hub.repositories.get((kind, name))
        if not self.allowed(repository, request):
            return
        repository = hub.revisions(kind, name).get(revision)
        if repository is None or path not in repository.files:
            return self.answer(404, b"", X_Error_Code="EntryNotFound")
        etag = repository.etag(path)
        if hub.redirects_small and path not in repository.large and "/again" not in request["query"]:
            return self.answer(307, b"", Location=f"{request['path']}?/again")
        if path not in repository.large:
            return self.content(repository.files[path], request, ETag=f'"{etag}"', X_Repo_Commit=repository.commit)
        hub.stored[etag] = repository.files[path]
        self.answer(302, b"", Location=f"{hub.other_host}/stored/{etag}?Signature=secret-signature",
                    X_Repo_Commit=repository.commit, X_Linked_Etag=f'"{etag}"', X_Linked_Size=len(repository.files[path]))

    def content(self, content, request, **headers):
        if request["range"] and not self.server.hub.ignores_ranges:
            first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", request["range"]).groups())
            return self.answer(206, content[first:last + 1],
                               Content_Range=f"bytes {first}-{last}/{len(content)}", **headers)
        self.answer(200, content, **headers)


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that are killed, or give up, are part of the tests."""


class HubServer:
    def __init__(self):
        self.repositories, self.tags, self.stored = {}, {}, {}
        self.requests, self.faults, self.lock = [], [], threading.Lock()
        self.ignores_ranges = self.redirects_small = False
        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.server.hub = self
        self.port = self.server.server_address[1]
        self.endpoint, self.other_host = f"http://127.0.0.1:{self.port}", f"http://localhost:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def add(self, name, files, large=(), kind="models"):
        """Adds a repository, or a commit to it, which becomes that of main."""
        repository = self.repositories[kind, name] = Repository(files, large)
        tags = self.tags.setdefault((kind, name), {})
        tags["main"] = tags[repository.commit] = repository
        return repository

    def revisions(self, kind, name):
        return self.tags[kind, name]

    def fail(self, act, times=1, **matches):
        """`act(handler, request)` answers the next requests whose entries are found by these patterns."""
        self.faults.append({"act": act, "times": times, "matches": lambda request: all(
            re.search(pattern, request[name] or "") for name, pattern in matches.items())})

    def reset(self):
        self.faults.clear()
        self.requests.clear()
        self.ignores_ranges = False

    def asked(self, **matches):
        """The requests whose entries are found by these patterns."""
        with self.lock:
            return [request for request in self.requests
                    if all(re.search(pattern, request[name] or "") for name, pattern in matches.items())]


def status(code, **headers):
    """A fault: the answer is this status."""
    return lambda handler, _: handler.answer(code, b"", **headers)


def cut_after(count):
    """A fault: the connection ends after some bytes of the body."""
    def act(handler, request):
        write = handler.wfile.write
        sent = [0, False]  # bytes of the body, whether it has begun

        def write_some(data):
            if not sent[1]:  # the head
                sent[1] = True
                return write(data)
            write(data[:count - sent[0]])
            handler.wfile.flush()
            handler.close_connection = True
            raise ConnectionResetError
        handler.wfile.write = write_some
        return False
    return act


def stall(seconds):
    """A fault: nothing comes for some time, then nothing at all."""
    def act(handler, _):
        time.sleep(seconds)
        handler.close_connection = True
    return act


def drip(seconds):
    """A fault: the answer comes byte by byte, with a pause after each."""
    def act(handler, _):
        write = handler.wfile.write

        def write_slowly(data):
            for byte in data:
                write(bytes([byte]))
                handler.wfile.flush()
                time.sleep(seconds)
        handler.wfile.write = write_slowly
        return False
    return act


def lie(handler, request):
    """A fault: other bytes of the same size."""
    content = handler.server.hub.stored[request["path"].rsplit("/", 1)[1]]
    handler.content(bytes(len(content)), request)
