"""`trainer ui` by plain HTTP: who is answered, and with what; test_ui_page.py looks at its page."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from made_run import HOSTILE, make_run
from served_ui import ServedUi
from support import ROOT, TRAINER, EndToEnd, trainer


class Scratch(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="trainer-e2e-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.runs = self.scratch / "runs"


class Access(Scratch):
    def setUp(self):
        super().setUp()
        make_run(self.runs / "one")
        self.ui = ServedUi(self.runs)
        self.addCleanup(self.ui.end)

    def test_only_its_address_is_answered(self):
        home = self.ui.home
        self.assertEqual(self.ui.request(home)[0], 200)
        for path in ("/", "/api/runs", "/ui.js", home.replace(home[1:9], "aaaaaaaa"), home[:-2] + "/", "/favicon.ico", home.upper()):
            status, headers, text = self.ui.request(path)
            self.assertEqual(status, 403, path)
            self.assertIn("Open the whole address that `trainer ui` printed.", text)
            self.assertTrue(headers["content-type"].startswith("text/plain"))
        status, _, _ = self.ui.request("/api/stop", method="POST", body={"run": "x"})
        self.assertEqual(status, 403)

    def test_other_names_of_this_machine_and_other_sites_are_refused(self):
        home = self.ui.home
        for host in ("evil.example", f"evil.example:{self.ui.port}", "127.0.0.1.evil.example", ""):
            self.assertEqual(self.ui.request(home, Host=host)[0], 403, host)
        for host in (f"localhost:{self.ui.port}", "localhost:9999", "127.0.0.1"):  # a port that ssh -L forwards has another number
            self.assertEqual(self.ui.request(home, Host=host)[0], 200, host)
        status, _, text = self.ui.request(home + "api/stop", method="POST", body={}, Origin="https://evil.example")
        self.assertEqual(status, 403, text)
        for method in ("PUT", "DELETE", "OPTIONS"):
            self.assertEqual(self.ui.request(home + "api/runs", method=method)[0], 405)
        self.assertEqual(self.ui.request(home + "api/stop")[0], 404, "a GET changes nothing")

    def test_headers_allow_nothing_from_elsewhere(self):
        for path in ("", "ui.js", "ui.css", "api/runs"):
            _, headers, _ = self.ui.request(self.ui.home + path)
            self.assertIn("default-src 'none'", headers["content-security-policy"])
            self.assertNotIn("unsafe", headers["content-security-policy"])
            self.assertEqual(headers["x-content-type-options"], "nosniff")
            self.assertEqual(headers["referrer-policy"], "no-referrer")
            self.assertNotIn("access-control-allow-origin", headers)

    def test_a_part_of_a_file_is_called_one(self):
        status, headers, text = self.ui.request(self.ui.home + "ui.js", Range="bytes=0-9")
        self.assertEqual((status, len(text)), (206, 10))
        self.assertTrue(headers["content-range"].startswith("bytes 0-9/"))

    def test_it_listens_on_this_machine_only(self):
        listening = subprocess.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True).stdout
        places = [line.split()[1] for line in listening.splitlines() if line.split()[3:4] == ["0A"] and line.split()[1].endswith(f":{self.ui.port:04X}")]
        self.assertEqual(places, [f"0100007F:{self.ui.port:04X}"])

    def test_no_request_leads_to_a_file(self):
        (self.scratch / "secret.txt").write_text("secret")
        for path in ("../secret.txt", "..%2fsecret.txt", "%2e%2e/%2e%2e/secret.txt", "api/../../secret.txt", "/etc/passwd", "api/log?id=../one",
                     "api/log?id=%2Fetc", "api/run?id=one", "api/chat?id=" + str(self.runs / "one")):
            status, _, text = self.ui.request(self.ui.home + path)
            self.assertEqual(status, 404, path)
            self.assertNotIn("secret", text)
            self.assertNotIn("root:", text)
        self.assertIn(self.ui.request(self.ui.home + "x" * 5000)[0], (403, 414))
        self.assertEqual(self.ui.post("api/chat/open", run="../one")[0], 404)
        self.assertEqual(self.ui.get("api/plan", model="/etc/passwd")[0], 400)

    def test_what_users_wrote_stays_text(self):
        name = "<img src=x onerror=alert(1)> & 'run'"
        make_run(self.runs / name)
        (self.runs / name / "log.txt").write_text(f"12:00:00 I {HOSTILE}\n", encoding="utf-8")
        deadline = time.monotonic() + 30
        while name not in self.ui.ids() and time.monotonic() < deadline:
            time.sleep(.2)
        id = self.ui.ids()[name]
        for path in (f"api/run?id={id}", "api/runs", f"api/log?id={id}"):
            status, headers, text = self.ui.request(self.ui.home + path)
            self.assertEqual((status, headers["content-type"]), (200, "application/json; charset=utf-8"))
            self.assertIsInstance(json.loads(text), dict)
        self.assertIn(HOSTILE, self.ui.get("api/run", id=id)[1]["runs"][0]["recoveries"][0]["message"])
        self.assertNotIn(HOSTILE, self.ui.request(self.ui.home)[2], "the page itself has nothing of a run")


class Runs(Scratch):
    def test_a_run_that_is_written_and_deleted_while_it_is_shown(self):
        run = make_run(self.runs / "one", finished=False)
        with ServedUi(self.runs) as ui:
            id = ui.ids()["one"]
            first = ui.get("api/run", id=id)[1]
            self.assertEqual(first["runs"][0]["step"], 300)
            self.assertEqual(ui.get("api/run", id=id, since=first["stamp"])[1], {"stamp": first["stamp"], "same": True})
            row = json.dumps({"kind": "train", "step": 301, "loss": .5})
            with open(run / "metrics.jsonl", "a", encoding="utf-8") as metrics:
                metrics.write(row[:25])
                metrics.flush()
                half = ui.get("api/run", id=id, since=first["stamp"])[1]
                self.assertEqual(half["runs"][0]["step"], 300)
                metrics.write(row[25:] + "\n")
            self.assertEqual(ui.get("api/run", id=id, since=half["stamp"])[1]["runs"][0]["step"], 301)
            (run / "metrics.jsonl").write_bytes(b"\xff\xfe not a row\n" + row.encode())
            self.assertEqual(ui.get("api/run", id=id)[0], 200)
            shutil.rmtree(run)
            for path in ("api/run", "api/log", "api/chat"):
                self.assertEqual(ui.get(path, id=id), (404, {"error": "This run is no longer there."}))
            self.assertEqual(ui.get("api/runs")[0], 200)

    def test_ten_thousand_runs_in_a_folder(self):
        status = json.dumps({"state": "finished", "step": 100, "total_steps": 100, "loss": 1.5, "updated": time.time()})
        rows = "".join(json.dumps({"kind": "train", "step": step, "loss": 2.0}) + "\n" for step in range(100))
        for i in range(10_000):
            run = self.runs / f"group-{i % 100}" / f"run-{i:05}"
            run.mkdir(parents=True)
            (run / "status.json").write_text(status)
            (run / "metrics.jsonl").write_text(rows)
        begin = time.monotonic()
        with ServedUi(self.runs) as ui:
            while (answer := ui.get("api/runs")[1])["looking"]:
                time.sleep(.05)
            found = time.monotonic() - begin
            self.assertEqual((answer["total"], len(answer["runs"])), (10_000, 50))
            took = []
            for query in ({}, {"first": 5000}, {"find": "run-09"}, {"first": 9950}, {"find": "nothing"}):
                begin = time.monotonic()
                answer = ui.get("api/runs", **query)[1]
                took.append(time.monotonic() - begin)
            begin = time.monotonic()
            one = ui.get("api/runs", find="run-04711")[1]["runs"]
            self.assertEqual(ui.get("api/run", id=one[0]["id"])[1]["runs"][0]["step"], 99)
            took.append(time.monotonic() - begin)
        print(f"10,000 runs: found in {found:.2f} s, answers in {max(took):.3f} s at most", flush=True)
        self.assertLess(found, 60)  # these are for a machine with much else to do
        self.assertLess(max(took), 10)

    def test_what_it_is_started_with(self):
        make_run(self.runs / "a" / "one")
        make_run(self.scratch / "other" / "two")
        with ServedUi(self.runs, self.scratch / "other") as ui:
            self.assertEqual(sorted(pathlib.Path(name).name for name in ui.ids()), ["one", "two"])
        with ServedUi(self.runs / "a" / "one") as ui:
            self.assertEqual(list(ui.ids()), ["one"])
        refused = trainer("ui", self.scratch / "nowhere")
        self.assertEqual(refused.returncode, 4)
        self.assertIn("is not a directory", refused.stderr)
        self.assertEqual(trainer("ui", "--port", "70000").returncode, 2)

    def test_a_base_is_found_from_where_the_run_was_started(self):
        (self.scratch / "my-model").mkdir()
        for name, output in (("one", "runs/one"), ("moved", "elsewhere/moved"), ("named", "/nowhere")):
            make_run(self.runs / name, config=f"model:\n  path: my-model\ndata:\n  train: rows.jsonl\noutput_dir: {output}\n")
        with ServedUi(self.runs) as ui:
            bases = {name: ui.get("api/chat", id=id)[1]["base"] for name, id in ui.ids().items()}
        self.assertEqual(bases, {"one": str(self.scratch / "my-model"), "moved": "my-model", "named": "my-model"})

    def test_a_port_that_is_in_use(self):
        self.runs.mkdir()
        with ServedUi(self.runs) as first:
            refused = trainer("ui", self.runs, "--port", first.port)
            self.assertEqual(refused.returncode, 2)
            line, *rest = refused.stderr.splitlines()
            self.assertRegex(line, rf"ui: port {first.port} is in use; \d+ is free: trainer ui --port \d+$")
            self.assertLess(len(rest), 2)
        with ServedUi(self.runs, port=None) as one, ServedUi(self.runs, port=None) as other:
            self.assertNotEqual(one.port, other.port)

    def test_ctrl_c_ends_it_beside_an_open_connection(self):
        self.runs.mkdir()
        with ServedUi(self.runs) as ui, socket.create_connection(("127.0.0.1", ui.port)) as idle:
            idle.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            self.assertTrue(idle.recv(10).startswith(b"HTTP/1.1"))
            self.assertLess(ui.end(), 5)


class Works(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = cls.scratch / "runs"
        cls.command = [str(part) for part in (TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={cls.model}",
                                              f"data.train={cls.data / 'train.jsonl'}", "device=cpu", "training.num_threads=1")]
        done = subprocess.run([*cls.command, f"output_dir={cls.runs / 'done'}", "max_steps=10"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def test_a_run_is_followed_and_stopped(self):
        run = self.runs / "live"
        process = subprocess.Popen([*self.command, f"output_dir={run}", "max_steps=1000000", "save.strategy=no"], cwd=ROOT, stderr=subprocess.DEVNULL,
                                   env=dict(os.environ, OMP_NUM_THREADS="1"))
        try:
            with ServedUi(self.runs) as ui:
                deadline, steps = time.monotonic() + 120, []
                while len(set(steps)) < 3 and time.monotonic() < deadline:
                    if "live" in ui.ids():
                        shown = ui.get("api/run", id=ui.ids()["live"])[1]["runs"][0]
                        steps.append(shown["step"])
                    time.sleep(.2)
                self.assertEqual(steps, sorted(steps))
                self.assertEqual((shown["state"], shown["can_stop"]), ("running", True))
                self.assertIn("step", ui.get("api/log", id=ui.ids()["live"])[1]["text"])
                self.assertEqual(ui.post("api/stop", run=ui.ids()["done"])[0], 409)
                self.assertIsNone(process.poll())
                self.assertEqual(ui.post("api/stop", run=ui.ids()["live"]), (200, [{"told": True}]))
                self.assertEqual(process.wait(120), 75, "stopped, and saved")
                shown = ui.get("api/run", id=ui.ids()["live"])[1]["runs"][0]
                self.assertEqual((shown["state"], shown["can_stop"]), ("stopped", False))
                self.assertIn("SIGTERM", shown["message"])
                status, said = ui.post("api/stop", run=ui.ids()["live"])
                self.assertEqual((status, said[0]["error"]), (409, "The run is not running: it is stopped."))
        finally:
            process.kill()
            process.wait()

    def test_another_process_is_never_stopped(self):
        """A status.json that came with a copied run names any process."""
        other = subprocess.Popen(["sleep", "600"])
        try:
            run = self.runs / "copied"
            shutil.copytree(self.runs / "done", run)
            status = json.loads((run / "status.json").read_text(encoding="utf-8"))
            start = pathlib.Path(f"/proc/{other.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
            status.update(state="running", pid=other.pid, process_start=int(start), updated=time.time())
            (run / "status.json").write_text(json.dumps(status), encoding="utf-8")
            with ServedUi(self.runs) as ui:
                status, said = ui.post("api/stop", run=ui.ids()["copied"])
                self.assertEqual(status, 409)
                self.assertIn("is no process of trainer", said[0]["error"])
            self.assertIsNone(other.poll())
        finally:
            other.kill()
            other.wait()

    def test_chat_with_the_result_and_its_base(self):
        prompt = "Please bake peas."
        with ServedUi(self.runs) as ui:
            id = ui.ids()["done"]
            facts = ui.get("api/chat", id=id)[1]
            self.assertEqual((facts["result"], facts["base"]), (str(self.runs / "done"), str(self.model)))
            status, opened = ui.post("api/chat/open", run=id, base=True, device="cpu", max_new_tokens=8)
            self.assertEqual(status, 200, opened)
            self.assertEqual([side["key"] for side in opened[0]["sides"]], ["result", "base"])
            threads = pathlib.Path(f"/proc/{ui.process.pid}/task")
            children = lambda: [child for file in threads.glob("*/children") for child in file.read_text().split()]
            self.assertEqual(children(), [], "nothing is loaded yet")
            answers = {}
            for side, model in (("result", self.runs / "done"), ("base", self.model)):
                status, rows = ui.post("api/chat/say", talk=opened[0]["talk"], side=side, messages=[{"role": "user", "content": prompt}])
                self.assertEqual(status, 200)
                answers[side] = rows[-1]["answer"]
                self.assertEqual("".join(row["piece"] for row in rows[:-1]), answers[side])
                alone = trainer("generate", model, prompt, "--max-new-tokens", 8, "--device", "cpu")
                self.assert_done(alone)
                self.assertEqual(answers[side], alone.stdout.rstrip("\n"))
            self.assertEqual(len(children()), 2)
            self.assertEqual(ui.post("api/chat/close", talk=opened[0]["talk"])[0], 200)
            deadline = time.monotonic() + 30
            while children() and time.monotonic() < deadline:
                time.sleep(.1)
            self.assertEqual(children(), [], "the models are freed")
            status, said = ui.post("api/chat/say", talk=opened[0]["talk"], side="base", messages=[{"role": "user", "content": prompt}])
            self.assertEqual((status, said[0]["error"]), (404, "This conversation was closed. Open it again."))

    def test_an_answer_that_is_left_makes_room_for_the_next(self):
        with ServedUi(self.runs) as ui:
            opened = ui.post("api/chat/open", run=ui.ids()["done"], device="cpu", max_new_tokens=2000)[1][0]
            asked = {"talk": opened["talk"], "side": "result", "messages": [{"role": "user", "content": "Please bake peas."}]}
            for _ in range(2):  # the first is left after its first piece
                connection = http.client.HTTPConnection("127.0.0.1", ui.port, timeout=60)
                connection.request("POST", ui.home + "api/chat/say", json.dumps(asked))
                answer = connection.getresponse()
                self.assertIn("piece", json.loads(answer.readline()))
                answer.close()
                connection.close()

    def test_chat_that_cannot_be(self):
        run = make_run(self.runs / "without-model")
        with ServedUi(self.runs) as ui:
            status, said = ui.post("api/chat/open", run=ui.ids()["without-model"])
            self.assertEqual((status, said[0]["error"]), (400, "The run has saved no model yet: there is nothing to chat with."))
            for bad in ({"device": "cpu --base=/etc"}, {"device": 3}):
                status, said = ui.post("api/chat/open", run=ui.ids()["done"], **bad)
                self.assertIn(status, (200, 400))
                self.assertEqual(status == 400, isinstance(bad["device"], str))
            opened = ui.post("api/chat/open", run=ui.ids()["done"])[1][0]
            for messages in ([], "text", [{"role": "tool", "content": "x"}], [3]):
                self.assertEqual(ui.post("api/chat/say", talk=opened["talk"], side="result", messages=messages)[0], 400)
        shutil.rmtree(run)

    def test_no_room_beside_a_run_that_trains(self):
        """The plan of a run that goes on keeps its memory: here all that the machine has."""
        run = self.runs / "large"
        shutil.copytree(self.runs / "done", run)
        sleeper = self.scratch / "trainer"
        shutil.copy2(shutil.which("sleep"), sleeper)
        process = subprocess.Popen([sleeper, "600"])
        try:
            status = json.loads((run / "status.json").read_text(encoding="utf-8"))
            start = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
            status.update(state="running", pid=process.pid, process_start=int(start), updated=time.time())
            (run / "status.json").write_text(json.dumps(status), encoding="utf-8")
            with open(run / "metrics.jsonl", "a", encoding="utf-8") as metrics:
                metrics.write(json.dumps({"kind": "memory", "step": 1, "peak": 10 ** 9, "planned_peak": 10 ** 15, "limit": 10 ** 15}) + "\n")
            with ServedUi(self.runs) as ui:
                status, said = ui.post("api/chat/open", run=ui.ids()["done"], device="cpu")
                self.assertEqual(status, 409, said)
                self.assertRegex(said[0]["error"], r"There is no room to chat: the model needs about \d+.* MB, and 0 B are free on the CPU")
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(run)

    def test_a_plan_is_that_of_the_program(self):
        with ServedUi(self.runs) as ui:
            choices = ui.get("api/choices")[1]
            self.assertIn("qwen2.5-7b", [model["name"] for model in choices["models"]])
            status, plan = ui.get("api/plan", model="qwen2.5-7b", method="qlora", length=1024, batch=2, update=8, checkpointing="true")
            self.assertEqual(status, 200, plan)
            self.assertEqual([card["size"] for card in choices["cards"]], [f"{gpu['memory'] // 10 ** 9}GB" for gpu in plan["gpus"]])
            alone = trainer("plan", "--json", *plan.pop("command"))
            self.assert_done(alone)
            self.assertEqual(plan, json.loads(alone.stdout))
            for bad in ({"method": "magic"}, {"length": 0}, {"batch": "1;x"}):
                status, said = ui.get("api/plan", **{"model": "qwen2.5-7b", **bad})
                self.assertEqual(status, 400)
                self.assertIn(next(iter(bad)), said["error"])

    def test_answers_of_generate_json(self):
        rows = [{"prompt": "Please bake peas."}, {"other": 1}, {"input": "Please bake peas."}]
        answered = trainer("generate", self.model, "--json", "--max-new-tokens", 4, "--device", "cpu", text="".join(json.dumps(row) + "\n" for row in rows))
        self.assert_done(answered)
        said = [json.loads(line) for line in answered.stdout.splitlines()]
        answers = [row["answer"] for row in said if "answer" in row]
        self.assertEqual(len(answers), 2)
        self.assertEqual(*answers)
        self.assertEqual(len([row for row in said if "error" in row]), 1)
        self.assert_refused(trainer("generate", self.model, "prompt", "--json"), 2, "--json")


if __name__ == "__main__":
    unittest.main()
