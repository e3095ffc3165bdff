"""`trainer fetch` against a hub on this machine: what is downloaded, how it is laid out, and what fails."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from hub_server import TOKEN, HubServer, cut_after, lie, stall, status
from support import ROOT, TRAINER, at_once

MODEL = "google/flan-t5-tiny"
MEGABYTE = 1 << 20
WEIGHTS = random.Random(1).randbytes(9 * MEGABYTE + 1234)  # five ranges
FILES = {"config.json": b'{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}', "tokenizer.json": b"{}",
         "tokenizer_config.json": b"{}", "generation_config.json": b"{}", "model.safetensors": WEIGHTS,
         "additional_chat_templates/tool_use.jinja": b"x", "pytorch_model.bin": b"pickle", "README.md": b"read me",
         "onnx/model.onnx": b"onnx", "tf_model.h5": b"h5"}
NEEDED = {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors",
          "additional_chat_templates/tool_use.jinja"}
PYTHON = ROOT / ".venv" / "bin" / "python"


class Hub(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="trainer-hub-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.server = HubServer()
        self.addCleanup(self.server.close)
        self.cache = self.scratch / "home" / "hub"
        self.model = self.server.add(MODEL, FILES, large=["model.safetensors"])

    def environment(self, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")
                and not name.lower().endswith("_proxy")}
        return {**kept, "HF_HOME": str(self.scratch / "home"), "HF_ENDPOINT": self.server.endpoint,
                "HF_HUB_DOWNLOAD_TIMEOUT": "2", "OMP_NUM_THREADS": "1", **variables}

    def trainer(self, *arguments, cwd=None, **variables):
        return subprocess.run([TRAINER, *map(str, arguments)], text=True, capture_output=True, timeout=120,
                              cwd=cwd or self.scratch, env=self.environment(**variables))

    def fetch(self, *arguments, **variables):
        """The path that `trainer fetch` prints."""
        result = self.trainer("fetch", *arguments, **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        return pathlib.Path(result.stdout.removesuffix("\n"))

    def refused(self, *words, arguments=(MODEL,), code=4, command="fetch", **variables):
        result = self.trainer(command, *arguments, **variables)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        for word in words:
            self.assertIn(str(word), result.stderr)
        self.assertNotIn(TOKEN, result.stdout + result.stderr)
        self.assertNotIn("secret-signature", result.stdout + result.stderr)
        return result.stderr

    def folder(self, kind="models", name=MODEL):
        return self.cache / f"{kind}--{name.replace('/', '--')}"

    def unfinished(self):
        return list(self.cache.glob("*/blobs/*incomplete*"))

    def assert_weights(self):
        self.assertEqual((self.folder() / "snapshots" / self.model.commit / "model.safetensors").read_bytes(), WEIGHTS)
        self.assertEqual(self.unfinished(), [])


class Layout(Hub):
    def test_only_what_is_needed_in_the_layout_of_hugging_face(self):
        snapshot = self.fetch(MODEL)
        self.assertEqual(snapshot, self.folder() / "snapshots" / self.model.commit)
        files = {str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if not path.is_dir()}
        self.assertEqual(files, NEEDED)
        self.assertEqual((self.folder() / "refs" / "main").read_text(), self.model.commit)
        for name in NEEDED:
            blob = self.folder() / "blobs" / self.model.etag(name)
            self.assertEqual(blob.read_bytes(), FILES[name])
            self.assertEqual((snapshot / name).resolve(), blob.resolve())
            self.assertFalse(os.readlink(snapshot / name).startswith("/"))

    def test_redirects_on_the_same_host(self):
        self.server.redirects_small = self.model.private = True
        self.fetch(MODEL, HF_TOKEN=TOKEN)
        self.assertEqual(self.server.asked(host="127.0.0.1"),
                         self.server.asked(host="127.0.0.1", token=f"Bearer {TOKEN}"))

    def test_what_is_there_is_not_downloaded_again(self):
        self.fetch(MODEL)
        self.server.reset()
        self.fetch(MODEL)
        self.assertEqual(self.server.asked(path="resolve|stored"), [])

    def test_a_new_commit_shares_what_has_not_changed(self):
        self.fetch(MODEL)
        self.server.reset()
        changed = self.server.add(MODEL, {**FILES, "config.json": b'{"model_type": "t5", "new": 1}'},
                                  large=["model.safetensors"])
        snapshot = self.fetch(MODEL)
        self.assertEqual(snapshot.name, changed.commit)
        self.assertEqual(self.server.asked(path="stored"), [])
        self.assertEqual((snapshot / "model.safetensors").read_bytes(), WEIGHTS)
        self.assertEqual(self.fetch(f"{MODEL}@{self.model.commit}").name, self.model.commit)

    def test_where_the_cache_lies(self):
        for variables, cache in (({"HF_HUB_CACHE": "there"}, "there"), ({"HF_HOME": "~/h"}, "h/hub"),
                                 ({"HF_HOME": "", "XDG_CACHE_HOME": "xdg"}, "xdg/huggingface/hub"),
                                 ({"HF_HOME": "", "XDG_CACHE_HOME": ""}, ".cache/huggingface/hub")):
            snapshot = self.fetch(MODEL, HOME=str(self.scratch), **variables)
            self.assertEqual((self.scratch / snapshot).resolve(),
                             self.scratch.resolve() / cache / self.folder().name / "snapshots" / self.model.commit)

    @unittest.skipUnless(PYTHON.is_file() and subprocess.run(
        [PYTHON, "-c", "import huggingface_hub"], capture_output=True).returncode == 0, "no huggingface_hub in .venv")
    def test_huggingface_hub_reads_what_we_write_and_we_what_it_writes(self):
        snapshot = self.fetch(MODEL)
        read = ("import sys, huggingface_hub as h; print(h.try_to_load_from_cache(sys.argv[1], 'model.safetensors')); "
                "print(h.snapshot_download(sys.argv[1], local_files_only=True, allow_patterns=sys.argv[2:]))")
        theirs = subprocess.run([PYTHON, "-c", read, MODEL, *NEEDED], text=True, capture_output=True,
                                env=self.environment(HF_HUB_OFFLINE="1"))
        self.assertEqual(theirs.stdout.splitlines(), [str(snapshot / "model.safetensors"), str(snapshot)], theirs.stderr)
        shutil.rmtree(self.cache)
        write = ("import sys, huggingface_hub as h; [h.hf_hub_download(sys.argv[1], name) for name in sys.argv[2:]]")
        subprocess.run([PYTHON, "-c", write, MODEL, *NEEDED], check=True, capture_output=True,
                       env=self.environment(HF_HUB_DISABLE_XET="1"))
        self.assertEqual(self.fetch(MODEL, HF_HUB_OFFLINE="1"), snapshot)


class Transfer(Hub):
    def test_large_files_come_in_parallel_ranges(self):
        self.fetch(MODEL)
        self.assert_weights()
        self.assertEqual(len({request["range"] for request in self.server.asked(path="stored", method="GET")}), 5)

    def test_a_server_without_ranges(self):
        self.server.ignores_ranges = True
        self.fetch(MODEL)
        self.assert_weights()

    def test_a_cut_connection_is_continued_where_it_ended(self):
        self.server.fail(cut_after(MEGABYTE), times=3, path="stored", method="GET")
        self.fetch(MODEL)
        self.assert_weights()
        begins = {int(request["range"][6:].split("-")[0]) for request in self.server.asked(path="stored", method="GET")}
        self.assertTrue(any(begin % (2 * MEGABYTE) for begin in begins), begins)

    def test_a_silent_server_is_asked_again(self):
        self.server.fail(stall(8), path="stored", method="GET")
        self.server.fail(stall(8), path="config.json", method="GET")
        self.fetch(MODEL)
        self.assert_weights()

    def test_errors_that_pass(self):
        self.server.fail(status(503), times=2, path="/api/")
        self.server.fail(status(429, Retry_After=1), path="resolve")
        self.server.fail(status(500), times=2, path="stored")
        self.fetch(MODEL)
        self.assert_weights()

    def test_an_expired_address_is_asked_for_anew(self):
        self.server.fail(status(403), times=2, path="stored")
        self.fetch(MODEL)
        self.assert_weights()

    def test_errors_that_stay(self):
        other = HubServer()
        self.addCleanup(other.close)
        self.server.fail(status(503), times=99, path="stored")
        other.fail(status(429), times=99, path="/api/")
        elsewhere = {"HF_ENDPOINT": other.endpoint, "HF_HOME": str(self.scratch / "other")}
        at_once(lambda: self.refused("503", "try again later"), lambda: self.refused("too many requests", "HF_TOKEN", **elsewhere))
        self.server.reset()
        self.fetch(MODEL)

    def test_a_wrong_hash_is_never_kept(self):
        self.server.fail(lie, path="stored", method="GET")
        result = self.trainer("fetch", MODEL)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("does not have the hash", result.stderr)
        self.assert_weights()
        shutil.rmtree(self.cache)
        self.server.fail(lie, times=99, path="stored", method="GET")
        self.refused("does not have the hash", "proxy")
        self.assertFalse((self.folder() / "blobs" / self.model.etag("model.safetensors")).exists())
        self.server.reset()
        self.fetch(MODEL)
        self.assert_weights()

    def test_a_wrong_small_file_is_not_kept_either(self):
        self.server.fail(lambda handler, request: handler.answer(200, b"!" * len(FILES["config.json"])), times=99,
                         path="config.json", method="GET")
        self.refused("config.json", "does not have the hash")

    def start(self, **variables):
        return subprocess.Popen([TRAINER, "fetch", MODEL], env=self.environment(**variables), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=self.scratch)

    def wait_until(self, holds):
        for _ in range(600):
            if holds():
                return
            time.sleep(0.05)
        self.fail("it never came")

    def test_an_interrupted_download_is_resumed(self):
        self.server.fail(stall(60), times=99, range=f"bytes={4 * MEGABYTE}-")
        process = self.start(HF_HUB_DOWNLOAD_TIMEOUT="60")
        state = self.folder() / "blobs" / (self.model.etag("model.safetensors") + ".ranges.incomplete.json")
        self.wait_until(lambda: state.exists() and json.loads(state.read_text())["done"].count("1") >= 1)
        process.send_signal(signal.SIGKILL)
        process.communicate()  # a request of its own may arrive after this, so ranges are counted, not requests
        kept = json.loads(state.read_text())["done"].count("1")
        self.server.reset()
        self.fetch(MODEL)
        self.assert_weights()
        self.assertEqual(len({request["range"] for request in self.server.asked(path="stored", method="GET")}), 5 - kept)

    def test_what_an_older_huggingface_hub_began_is_continued(self):
        blobs = self.folder() / "blobs"
        blobs.mkdir(parents=True)
        (blobs / (self.model.etag("model.safetensors") + ".incomplete")).write_bytes(WEIGHTS[:5 * MEGABYTE])
        self.fetch(MODEL)
        self.assert_weights()
        self.assertEqual(len(self.server.asked(path="stored", method="GET")), 3)

    def test_two_at_once_download_it_once(self):
        processes = [self.start() for _ in range(3)]
        paths = set()
        for process in processes:
            out, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, error)
            paths.add(out)
        self.assertEqual(len(paths), 1)
        self.assert_weights()
        self.assertEqual(len(self.server.asked(path="stored", method="GET")), 5)

    def test_a_full_disk(self):
        self.refused("No space left", "HF_HUB_CACHE", TRAINER_FILE_FAULT="60+:ENOSPC")
        self.fetch(MODEL)
        self.assert_weights()

    def test_a_cache_that_cannot_be_written(self):
        self.cache.parent.write_text("a file")
        self.refused(self.cache.parent, "HF_HUB_CACHE")

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    def test_a_cache_of_another_user(self):
        self.fetch(MODEL)
        self.scratch.chmod(0o755)
        self.server.add("org/other", {"config.json": b"{}", "model.safetensors": b"", "tokenizer.json": b"{}"})
        for arguments, code in ((MODEL, 0), ("org/other", 4)):
            result = subprocess.run([TRAINER, "fetch", arguments], user=65534, group=65534, extra_groups=[], cwd="/",
                                    env=self.environment(), text=True, capture_output=True)
            self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn("belongs to root", result.stderr)
        self.assertIn("HF_HUB_CACHE", result.stderr)


class Refused(Hub):
    def test_names_that_are_none(self):
        self.refused("did you mean google/flan-t5-tiny?", arguments=["google/flan-t5-tinny"])
        self.refused("did you mean google/flan-t5-tiny?", arguments=["gogle/flan-t5-tiny"])
        self.refused("has no revision 'v9'", arguments=[f"{MODEL}@v9"])
        self.refused("OWNER/NAME", arguments=["flan-t5-tiny"], code=2)
        self.refused("OWNER/NAME", arguments=["../x/y"], code=2)

    def test_gated_models_are_explained(self):
        self.model.gated = True
        page = f"{self.server.endpoint}/{MODEL}"
        self.refused("is gated", page, "accept its conditions", "set HF_TOKEN")
        self.model.granted = False
        self.refused("is gated", page, "the token in HF_TOKEN", HF_TOKEN=TOKEN)
        self.model.granted = True
        self.fetch(MODEL, HF_TOKEN=TOKEN)

    def test_private_models_need_a_token(self):
        self.model.private = True
        self.refused("there is no model", "If it is private", "set HF_TOKEN")
        self.fetch(MODEL, HF_TOKEN=TOKEN)

    def test_a_wrong_token_is_named_by_its_place(self):
        self.refused("does not accept the token in HF_TOKEN", "/settings/tokens", HF_TOKEN="hf_wrong")

    def test_where_the_token_comes_from(self):
        self.model.private = True
        home = self.scratch / "home"
        home.mkdir()
        (home / "token").write_text(TOKEN + "\n")
        self.refused("there is no model", HF_HUB_DISABLE_IMPLICIT_TOKEN="1")
        self.fetch(MODEL)
        shutil.rmtree(self.cache)
        (home / "token").rename(self.scratch / "mine")
        self.refused("there is no model")
        self.fetch(MODEL, "--token-file", self.scratch / "mine")
        self.refused("--token-file", arguments=[MODEL, "--token-file", "nope"], code=2)

    def test_the_token_stays_on_its_host_and_shows_nowhere(self):
        self.model.private = True
        result = self.trainer("--verbose", "fetch", MODEL, HF_TOKEN=TOKEN)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn(TOKEN, result.stdout + result.stderr)
        self.assertEqual({request["token"] for request in self.server.asked(host="127.0.0.1")}, {f"Bearer {TOKEN}"})
        self.assertTrue(self.server.asked(host="localhost"))
        self.assertEqual({request["token"] for request in self.server.asked(host="localhost")}, {None})
        for path in self.scratch.rglob("*"):
            self.assertFalse(path.is_file() and TOKEN.encode() in path.read_bytes(), path)

    def test_proxies_are_used_and_the_token_is_not_sent_in_the_clear(self):
        proxy = self.server.endpoint
        result = self.trainer("fetch", MODEL, HF_ENDPOINT="http://hub.invalid", http_proxy=proxy, HF_TOKEN=TOKEN)
        self.assertIn("the token is not sent", result.stderr)
        asked = self.server.asked(path="/api/")
        self.assertEqual({(request["host"], request["token"]) for request in asked}, {("hub.invalid", None)})

    def test_offline(self):
        self.refused("HF_HUB_OFFLINE", HF_HUB_OFFLINE="1")
        self.assertEqual(self.server.requests, [])
        snapshot = self.fetch(MODEL)
        self.server.reset()
        self.assertEqual(self.fetch(MODEL, HF_HUB_OFFLINE="1"), snapshot)
        self.refused("did you mean google/flan-t5-tiny", arguments=["google/flan-t5-tinny"], HF_HUB_OFFLINE="1")
        self.assertEqual(self.server.requests, [])

    def test_without_a_network_the_cache_serves(self):
        snapshot = self.fetch(MODEL)
        unreachable = {"HF_ENDPOINT": "http://127.0.0.1:1"}
        result = self.trainer("fetch", MODEL, **unreachable)
        self.assertEqual((result.returncode, result.stdout), (0, f"{snapshot}\n"), result.stderr)
        self.assertIn("taking what the cache has", result.stderr)
        self.refused("cannot be downloaded", "127.0.0.1:1", arguments=["google/other"], **unreachable)

    def test_without_libcurl_the_package_is_named(self):
        libraries = self.scratch / "libraries"
        libraries.mkdir()
        for name in ("libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"):
            (libraries / name).write_text("no library")
        self.refused("libcurl", "apt install libcurl4", LD_LIBRARY_PATH=str(libraries))
        self.assertEqual(self.server.requests, [])

    def test_weights_that_are_only_pickled(self):
        files = {name: FILES[name] for name in ("config.json", "tokenizer.json", "pytorch_model.bin")}
        self.server.add("google/old", files)
        self.refused("pickled", "t.T5ForConditionalGeneration.from_pretrained('google/old'", arguments=["google/old"])
        self.assertEqual(self.server.asked(path="resolve.*bin"), [])


class DataSets(Hub):
    def add(self, *paths, name="org/rows"):
        files = {path: path.encode() for path in paths}
        return self.server.add(name, {"README.md": b"", "dataset_infos.json": b"{}", **files}, kind="datasets")

    def test_all_data_files_are_fetched(self):
        repository = self.add("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "test.jsonl")
        folder = self.fetch("--dataset", "org/rows")
        self.assertEqual(folder, self.folder("datasets", "org/rows") / "snapshots" / repository.commit)
        self.assertEqual({str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()},
                         {"README.md", "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "test.jsonl"})

    def test_a_file_a_folder_and_a_pattern(self):
        self.add("a/one.jsonl", "a/two.jsonl", "b/three.jsonl")
        self.assertEqual(self.fetch("--dataset", "org/rows/a/one.jsonl").read_text(), "a/one.jsonl")
        self.assertEqual(len(self.server.asked(path="resolve.*jsonl", method="GET")), 1)
        self.fetch("--dataset", "org/rows@main/a/*.jsonl")
        self.assertEqual(len(self.server.asked(path="resolve.*jsonl", method="GET")), 2)
        self.refused("has no file 'a/ono.jsonl'", "did you mean org/rows/a/one.jsonl?",
                     arguments=["--dataset", "org/rows/a/ono.jsonl"], code=3)

    def rows_of(self, name, **variables):
        """What `data.train` and `data.eval` of this name are; the model, which comes next, is none."""
        result = self.trainer("data", "model.path=org/none", f"data.train={name}", f"data.eval={name}", **variables)
        self.assertEqual(result.returncode, 4, result.stderr)
        folder = self.folder("datasets", "org/rows") / "snapshots"
        return result.stderr, {path.name for path in folder.rglob("*.jsonl")}

    def test_the_card_says_which_files_are_a_split(self):
        card = ("---\nconfigs:\n- config_name: small\n  default: true\n  data_files:\n  - split: train\n    path: [a.jsonl, b.jsonl]\n"
                "  - split: test\n    path: c.jsonl\n- config_name: large\n  data_files: train.jsonl\n---\n# Rows\n")
        files = {"README.md": card.encode(), **{f"{name}.jsonl": b"{}" for name in ("a", "b", "c", "train", "test")}}
        self.server.add("org/rows", files, kind="datasets")
        said, rows = self.rows_of("org/rows")
        self.assertIn("data.train: org/rows is 2 files", said)
        self.assertIn("data.eval: org/rows is 1 file", said)
        self.assertEqual(rows, {"a.jsonl", "b.jsonl", "c.jsonl"})
        self.assertEqual(self.rows_of("org/rows", HF_HUB_OFFLINE="1")[1], rows)
        self.assertEqual(len(self.server.asked(path="README.md", method="GET")), 1)

    def test_a_card_that_cannot_be_read_is_said(self):
        self.server.add("org/rows", {"README.md": b"---\nconfigs: [\n---\n", "train.jsonl": b"{}", "test.jsonl": b"{}"}, kind="datasets")
        said, rows = self.rows_of("org/rows")
        self.assertIn("README.md: its first lines are not YAML", said)
        self.assertEqual(rows, {"train.jsonl", "test.jsonl"})


if __name__ == "__main__":
    unittest.main()
