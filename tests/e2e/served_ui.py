"""Starts `trainer ui` for tests, and asks it by plain HTTP."""
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
import urllib.parse

from support import ROOT, TRAINER


class ServedUi:
    """`trainer ui ARGUMENTS` on a port that is free. Ended by Ctrl-C, which must end it well and soon."""

    def __init__(self, *arguments, port=0):
        options = [] if port is None else ["--port", str(port)]
        self.process = subprocess.Popen([TRAINER, "ui", *map(str, arguments), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        cwd=ROOT, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.address = self.process.stdout.readline().strip()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[a-z2-7]{32}/)", self.address)
        if not found:
            raise AssertionError(f"no address: {self.address!r}, {self.process.communicate()[1]}")
        self.port, self.home = int(found[1]), found[2]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Returns the seconds that it took to end."""
        if self.process.returncode is not None:
            return 0
        begin = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, said = self.process.communicate(timeout=15)
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
            raise AssertionError("Ctrl-C did not end it")
        if self.process.returncode != 0:
            raise AssertionError(f"exit code {self.process.returncode}: {said}")
        return time.monotonic() - begin

    def request(self, path, method="GET", body=None, **headers):
        """Asks for exactly this path; returns status, headers in lower case, and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.putrequest(method, path, skip_host="Host" in headers)
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Length"] = str(len(content))
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(content)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8")
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def get(self, path, **query):
        """The JSON under the token: get("api/runs", find="a")."""
        status, _, text = self.request(f"{self.home}{path}?{urllib.parse.urlencode(query, doseq=True)}")
        return status, json.loads(text)

    def post(self, path, **body):
        status, _, text = self.request(self.home + path, method="POST", body=body)
        return status, [json.loads(line) for line in text.splitlines()]

    def ids(self):
        return {run["name"]: run["id"] for run in self.get("api/runs", count=200)[1]["runs"]}
