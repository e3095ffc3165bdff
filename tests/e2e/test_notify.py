"""Messages about a run (section notify): what arrives, that no server makes a run slower or ends it, and that the address
stays secret."""
import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, at_once, read_rows

SECRET = "verysecret0123456789"
LONGEST_WAIT = 8  # seconds that the last message may take, and noise


class Receiver:
    """A server that keeps the messages it accepts. `mode`: ok, slow, 500, 404, 429 (the first two requests), closes."""

    def __init__(self, mode="ok"):
        self.mode, self.messages, self.requests = mode, [], 0
        self.closed = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                if receiver.mode == "slow":
                    receiver.closed.wait(60)
                elif receiver.mode == "closes":
                    self.close_connection = True
                elif receiver.mode == "429" and receiver.requests <= 2:
                    self.send_response(429)
                    self.send_header("Retry-After", "1")
                    self.end_headers()
                elif receiver.mode in ("500", "404"):
                    self.send_response(int(receiver.mode))
                    self.end_headers()
                else:
                    receiver.messages.append(json.loads(body))
                    self.send_response(204)
                    self.end_headers()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/hooks/{SECRET}"

    def close(self):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()

    def kinds(self):
        return [message["event"] for message in self.messages]


class Notify(EndToEnd):
    family = "t5"

    def receiver(self, mode="ok"):
        receiver = Receiver(mode)
        self.addCleanup(receiver.close)
        return receiver

    def command(self, output, *overrides):
        return [str(part) for part in
                (TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                 f"data.train={self.data / 'train.jsonl'}", f"output_dir={self.scratch / output}", "device=cpu", "lora.r=4",
                 "training.num_threads=1", "training.num_workers=1",
                 "data.max_target_length=96",  # nothing is truncated, which would be a warning
                 *overrides)]

    @staticmethod
    def environment(**variables):
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        return {**kept, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **variables}

    def run_trainer(self, output, *overrides, **variables):
        return subprocess.run(self.command(output, *overrides), text=True, capture_output=True, timeout=300, cwd=ROOT,
                              env=self.environment(**variables))

    @contextlib.contextmanager
    def endless(self, output, *overrides):
        """A run without end that has made three steps."""
        process = subprocess.Popen(self.command(output, "max_steps=1000000", "logging_steps=1", *overrides), text=True,
                                   stderr=subprocess.PIPE, cwd=ROOT, env=self.environment())
        try:
            for line in process.stderr:
                if "step 3/" in line:
                    break
            yield process
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def assert_secret(self, output, *said):
        """Checks that no file of the run, and nothing that it said, has the secret."""
        for path in (self.scratch / output).rglob("*"):
            if path.is_file():
                self.assertNotIn(SECRET.encode(), path.read_bytes(), path)
        for text in said:
            self.assertNotIn(SECRET, text)

    def losses(self, output):
        return [row["loss"] for row in read_rows(self.scratch / output / "metrics.jsonl") if row["kind"] == "train"]

    def test_a_run_tells_its_start_its_better_evaluations_and_its_end(self):
        receiver = self.receiver()
        result = self.run_trainer("told", f"notify.webhook={receiver.url}", f"data.eval={self.data / 'heldout.jsonl'}",
                                  "eval_strategy=steps", "notify.every_minutes=0")
        self.assert_done(result)
        kinds = receiver.kinds()
        self.assertEqual((kinds[0], kinds[-1]), ("start", "finished"), kinds)
        self.assertIn("best", kinds)
        first, last = receiver.messages[0], receiver.messages[-1]
        self.assertIn("told has started", first["text"])
        self.assertEqual((first["step"], last["step"], last["total_steps"], last["exit_code"]), (1, 20, 20, 0))
        self.assertIn("best: eval_loss", last["text"])
        self.assert_secret("told", result.stdout, result.stderr)
        self.assertIn('webhook: "http://127.0.0.1:', (self.scratch / "told" / "config.yaml").read_text())

    def test_the_address_comes_from_a_variable(self):
        receiver = self.receiver()
        result = self.run_trainer("variable", "notify.webhook=MY_HOOK", MY_HOOK=receiver.url)
        self.assert_done(result)
        self.assertEqual(receiver.kinds(), ["start", "finished"])
        self.assert_secret("variable", result.stdout, result.stderr)
        self.assertIn("webhook: MY_HOOK", (self.scratch / "variable" / "config.yaml").read_text())

    def test_no_server_makes_a_run_slower_or_ends_it(self):
        begin = time.monotonic()
        self.assert_done(self.run_trainer("alone"))
        alone = time.monotonic() - begin
        dead = Receiver()
        dead.close()
        for mode in ("dead", "slow", "500", "404", "closes"):
            with self.subTest(mode):
                receiver = dead if mode == "dead" else self.receiver(mode)
                begin = time.monotonic()
                result = self.run_trainer(f"server-{mode}", f"notify.webhook={receiver.url}")
                seconds = time.monotonic() - begin
                self.assert_done(result)
                self.assertLess(seconds, 2 * alone + LONGEST_WAIT)
                self.assertEqual(self.losses(f"server-{mode}"), self.losses("alone"))
                self.assertIn("notify.webhook: ", result.stderr)
                self.assertIn("not sent", result.stderr)
                self.assert_secret(f"server-{mode}", result.stdout, result.stderr)

    def test_a_busy_server_gets_every_message_later(self):
        receiver = self.receiver("429")
        self.assert_done(self.run_trainer("busy", f"notify.webhook={receiver.url}"))
        self.assertEqual(receiver.kinds(), ["start", "finished"])

    def test_a_stopped_run_says_how_to_resume_and_resumes_with_another_address(self):
        receiver, other = self.receiver(), self.receiver()
        with self.endless("stopped", f"notify.webhook={receiver.url}", "overwrite_output_dir=false") as process:
            process.send_signal(signal.SIGTERM)
            said = process.stderr.read()
            self.assertEqual(process.wait(120), 75, said)
        self.assertEqual(receiver.kinds(), ["start", "stopped"])
        stopped = receiver.messages[-1]
        self.assertEqual(stopped["exit_code"], 75)
        self.assertIn("SIGTERM", stopped["text"])
        self.assertIn("trainer --config", stopped["resume_command"])
        self.assertIn("max_steps=1000000", stopped["resume_command"])
        self.assertNotIn(SECRET, json.dumps(stopped))
        self.assert_secret("stopped", said)
        result = self.run_trainer("stopped", f"notify.webhook={other.url}", f"max_steps={stopped['step'] + 2}",
                                  "notify.format=json")
        self.assert_done(result)
        self.assertEqual(other.kinds(), ["start", "finished"])
        self.assertIn("is resumed", other.messages[0]["text"])
        # A new address changes nothing in the run: only the command at the end has it.
        self.assertNotIn("notify", result.stderr.split("to train longer:")[0])

    def test_a_killed_run_resumes(self):
        receiver = self.receiver("slow")
        with self.endless("killed", f"notify.webhook={receiver.url}", "save.strategy=steps", "save.steps=1") as process:
            process.kill()
            process.wait()
        receiver.mode = "ok"
        self.assert_done(self.run_trainer("killed", f"notify.webhook={receiver.url}", "max_steps=200"))
        self.assertEqual(receiver.kinds()[-1], "finished")
        self.assert_secret("killed")

    def test_a_failure_has_its_exit_code_and_message(self):
        receiver = self.receiver()
        webhook = f"notify.webhook={receiver.url}"
        bad = self.scratch / "bad.jsonl"
        bad.write_text('{"input": 3}\n')
        cases = [(3, [f"data.train={bad}"]), (5, ["memory.limit=50kB"]), (75, ["max_hours=1e-9"])]
        for code, overrides in cases:
            with self.subTest(code):
                result = self.run_trainer(f"code-{code}", webhook, *overrides)
                self.assertEqual(result.returncode, code, result.stderr)
                last = receiver.messages[-1]
                self.assertEqual((last["event"], last["exit_code"]), ("stopped" if code == 75 else "failed", code))
                self.assertIn(last["message"].splitlines()[0], result.stderr)
                self.assert_secret(f"code-{code}", result.stdout, result.stderr)

    def test_a_command_gets_every_event(self):
        got = self.scratch / "events.jsonl"
        result = self.run_trainer("command", f"notify.command=cat >> {got}; echo $TRAINER_EVENT >> {got}.kinds")
        self.assert_done(result)
        self.assertEqual([row["event"] for row in read_rows(got)], ["start", "finished"])
        self.assertEqual((self.scratch / "events.jsonl.kinds").read_text(), "start\nfinished\n")

    def test_a_command_that_fails_or_hangs_is_a_warning(self):
        cases = (("fails", "exit 3", "exit code 3"), ("hangs", "sleep 300", "not sent"))
        results = at_once(*(lambda name=name, command=command: self.run_trainer(name, f"notify.command={command}")
                            for name, command, _ in cases))
        for (name, _, words), result in zip(cases, results):
            with self.subTest(name):
                self.assert_done(result)
                self.assertEqual(len(self.losses(name)), 20)
                self.assertEqual(result.stderr.count(words), 1, result.stderr)

    def test_what_is_no_address_is_an_error_of_the_configuration_that_does_not_show_it(self):
        for value in (f"discord.com/{SECRET}", f"ftp://host/{SECRET}", "NO_SUCH_VARIABLE"):
            result = self.run_trainer("refused", f"notify.webhook={value}")
            self.assert_refused(result, 2, "notify.webhook")
            self.assertNotIn(SECRET, result.stdout + result.stderr)
        dump = subprocess.run([TRAINER, "config", f"notify.webhook=https://host/{SECRET}"], text=True, capture_output=True,
                              check=True)
        self.assertNotIn(SECRET, dump.stdout + dump.stderr)

    def test_without_libcurl_there_is_one_warning(self):
        folder = self.scratch / "no-curl"
        folder.mkdir()
        for name in ("libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"):
            (folder / name).write_text("not a library")
        result = self.run_trainer("no-curl-run", "notify.webhook=http://127.0.0.1:9/x", LD_LIBRARY_PATH=str(folder))
        self.assert_done(result)
        self.assertEqual(result.stderr.count("libcurl is not installed"), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
