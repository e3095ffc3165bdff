"""Hubs, mirrors and proxies that answer what they should not: names that are paths, passwords, pauses, refusals."""
import json
import pathlib
import time
import unittest

from hub_server import TOKEN, drip, status
from test_hub import FILES, MODEL, Hub

SMALL = {name: FILES[name] for name in ("config.json", "tokenizer.json")}
INDEX = "model.safetensors.index.json"


def index_of(*files):
    return json.dumps({"weight_map": {f"tensor{i}": name for i, name in enumerate(files)}}).encode()


class Names(Hub):
    def listed_as(self, change):
        """The hub lists its files with changes: `change(sibling)` for config.json."""
        siblings = list(self.model.siblings())
        change(next(sibling for sibling in siblings if sibling["rfilename"] == "config.json"))
        body = json.dumps({"id": MODEL, "sha": self.model.commit, "siblings": siblings}).encode()
        self.server.fail(lambda handler, _: handler.answer(200, body), times=99, path="/api/models/")

    def tagged_as(self, etag):
        self.server.fail(lambda handler, _: handler.answer(200, FILES["config.json"], ETag=etag), times=99, path="/config.json")

    def entries_outside(self):
        """What is neither a folder nor in the cache."""
        return [path for path in self.scratch.rglob("*") if not path.is_dir() and self.cache not in path.parents]

    def test_nothing_is_written_outside_the_cache(self):
        for path in ("../../../../outside", str(self.scratch / "outside"), "..", "refs/main"):
            for change in ({"blobId": path}, {"lfs": {"sha256": path, "size": 3}}, {"rfilename": path + "/../x"},
                           {"rfilename": "/" + path}):
                for etag in ('"weak-etag"', f'"{path}"'):
                    with self.subTest(change=change, etag=etag):
                        self.server.reset()
                        self.listed_as(lambda sibling, change=change: sibling.update(change))
                        self.tagged_as(etag)
                        said = self.refused("gives no list of the files", "is HF_ENDPOINT right")
                        self.assertNotIn("json.exception", said)
                        self.assertEqual(self.entries_outside(), [])

    def test_an_etag_that_is_no_hash_names_no_file(self):
        for etag in ('"weak-etag"', 'W/"5f3c-61a"', '"../../x"', '"config.json"', "x"):
            self.tagged_as(etag)
            snapshot = self.fetch(MODEL)  # the list has the hash
            self.assertEqual((snapshot / "config.json").resolve().name, self.model.etag("config.json"))
            (snapshot / "config.json").resolve().unlink()
            self.server.reset()

    def test_a_mirror_without_any_hash(self):
        self.listed_as(lambda sibling: sibling.pop("blobId"))
        self.tagged_as('"weak-etag"')
        result = self.trainer("fetch", MODEL)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("names no hash", result.stderr)
        blob = (pathlib.Path(result.stdout[:-1]) / "config.json").resolve()
        self.assertEqual(blob.read_bytes(), FILES["config.json"])
        self.assertRegex(blob.name, "^[0-9a-f]{64}$")
        self.assertEqual(self.entries_outside(), [])

    def test_an_index_names_only_files_beside_it(self):
        for name in ("../outside", "/outside", "a/b", ".."):
            files = {**SMALL, INDEX: index_of(name), "model-00001-of-00001.safetensors": b"x"}
            self.server.add("org/index", files)
            self.refused(INDEX, "is not a file name", arguments=["org/index"])

    def test_an_adapter_names_a_revision_that_is_a_path(self):
        adapter = self.scratch / "adapter"
        adapter.mkdir()
        for revision in ("../../../../outside", "/outside", "a/../../b"):
            (adapter / "adapter_config.json").write_text(json.dumps(
                {"peft_type": "LORA", "base_model_name_or_path": MODEL, "revision": revision, "target_modules": ["q"]}))
            (adapter / "adapter_model.safetensors").write_bytes(b"")
            self.refused("revision", "is no branch, tag or commit", command="generate", arguments=[adapter, "--prompt", "x"])
        self.assertEqual(self.server.requests, [])


class Secrets(Hub):
    def test_loopback_is_an_address_and_no_prefix(self):
        for host in ("127.anything.example", "127.0.0.1.example", "localhost.example"):
            self.server.reset()
            result = self.trainer("fetch", MODEL, HF_ENDPOINT=f"http://{host}", http_proxy=self.server.endpoint, HF_TOKEN=TOKEN)
            self.assertIn("the token is not sent", result.stderr)
            self.assertNotIn(TOKEN, result.stderr)
            asked = self.server.asked(path="/api/")
            self.assertEqual({(request["host"], request["token"]) for request in asked}, {(host, None)})

    def test_a_proxy_gets_no_token_for_this_machine(self):
        self.model.private = True
        self.fetch(MODEL, HF_TOKEN=TOKEN, http_proxy="http://127.0.0.1:1")

    def test_a_password_in_an_address_is_shown_nowhere(self):
        address = self.server.endpoint.replace("http://", "http://user:pass-word@")
        self.model.gated = True
        for arguments in ([MODEL], ["google/none"], [f"{MODEL}@none"]):
            self.assertNotIn("pass-word", self.refused("127.0.0.1", arguments=["--verbose", *arguments], HF_ENDPOINT=address))
        for variables in ({"HF_ENDPOINT": "http://user:pass-word@127.0.0.1:1"}, {"HF_ENDPOINT": "user:pass-word@host"},
                          {"HF_ENDPOINT": "http://user:pass/pass-word@host"}, {"HF_ENDPOINT": "http://user:pass-word@host name"},
                          {"HF_ENDPOINT": "http://hub.invalid", "http_proxy": "http://user:pass-word@127.0.0.1:1"},
                          {"HF_ENDPOINT": "http://hub.invalid", "http_proxy": "odd://user:pass-word@127.0.0.1:1"}):
            self.assertNotIn("pass-word", self.refused("cannot be downloaded", **variables))
        doctor = self.trainer("doctor", HF_ENDPOINT=address)
        self.assertIn("HF_ENDPOINT", doctor.stdout)
        self.assertNotIn("pass-word", doctor.stdout + doctor.stderr)


class Patience(Hub):
    def test_a_listing_that_drips_is_given_up(self):
        self.server.fail(drip(0.2), times=99, path="/api/")
        began = time.monotonic()
        self.refused("cannot be downloaded", HF_HUB_ETAG_TIMEOUT="1")
        self.assertLess(time.monotonic() - began, 60)

    def test_a_file_that_drips_is_given_up_too(self):
        self.server.fail(drip(0.2), times=999, path="stored", method="GET")
        began = time.monotonic()
        self.refused("attempts were made", HF_HUB_DOWNLOAD_TIMEOUT="1")
        self.assertLess(time.monotonic() - began, 60)
        self.server.reset()
        self.fetch(MODEL)
        self.assert_weights()

    def test_a_listing_of_many_files_takes_linear_time(self):
        files = {f"data/part-{i:05}-of-40000.jsonl": b"{}" for i in range(40_000)}
        repository = self.server.add("org/many", files, kind="datasets")
        answer = json.dumps({"sha": repository.commit, "siblings": list(repository.siblings())}).encode()
        self.server.fail(lambda handler, _: handler.answer(200, answer), times=99, path="/api/datasets/")
        began = time.monotonic()
        self.fetch("--dataset", "org/many/data/part-00007-of-40000.jsonl")
        self.assertLess(time.monotonic() - began, 5)


class Refusals(Hub):
    def test_each_status_comes_with_advice(self):
        advice = {302: "HF_ENDPOINT", 400: "the name and the revision", 405: "HF_ENDPOINT", 407: "https_proxy", 410: "removed",
                  418: "robot", 451: "legal reasons"}
        for code, words in advice.items():
            for path in ("/api/models", "resolve/.*/config.json"):
                with self.subTest(code=code, path=path):
                    self.server.reset()
                    self.server.fail(status(code), times=99, path=path)
                    self.refused(f"answers {code}", words)

    def test_a_redirect_says_where_it_leads(self):
        for goal, words in ((f"{self.server.endpoint}/again?key=secret-signature", "it leads to http://127.0.0.1"),
                            ("ftp://other.example/", "HF_ENDPOINT"), ("http://a b/", "HF_ENDPOINT")):
            self.server.reset()
            self.server.fail(status(302, Location=goal), times=99)
            self.refused("answers 302", words)

    def test_a_page_in_place_of_the_hub(self):
        self.server.fail(lambda handler, _: handler.answer(200, b"<html>Log in</html>"), times=99)
        self.refused("gives no list of the files", "a page for people", "log-in")


class Incomplete(Hub):
    def test_shards_that_the_index_names_must_be_there(self):
        shards = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
        self.server.add("org/cut", {**SMALL, INDEX: index_of(*shards), shards[1]: b"x"})
        self.refused("not complete", shards[0], shards[2], INDEX, arguments=["org/cut"])
        self.assertEqual(self.server.asked(path=shards[1], method="GET"), [])
        self.refused("not complete", arguments=["org/cut"])  # nor the second time
        self.server.add("org/cut", {**SMALL, INDEX: index_of(*shards), **dict.fromkeys(shards, b"x")})
        snapshot = self.fetch("org/cut")
        self.assertEqual({path.name for path in snapshot.iterdir()}, {*SMALL, INDEX, *shards})

    def test_the_index_decides_which_files_are_weights(self):
        self.server.add("org/own", {**SMALL, INDEX: index_of("part_a.safetensors", "part_b.safetensors"),
                                    "part_a.safetensors": b"a", "part_b.safetensors": b"b", "other.safetensors": b"c"})
        snapshot = self.fetch("org/own")
        self.assertEqual({path.name for path in snapshot.iterdir()}, {*SMALL, INDEX, "part_a.safetensors", "part_b.safetensors"})
        self.server.reset()
        self.fetch("org/own")
        self.assertEqual(self.server.asked(path="resolve"), [])

    def test_a_model_without_weights_says_so(self):
        for files, words in (({}, "has no weights"), ({"consolidated.safetensors": b"x"}, "it has consolidated.safetensors"),
                             ({"model-00001-of-00001.safetensors": b"x"}, INDEX), ({INDEX: b"{}"}, "weight_map")):
            self.server.add("org/bare", {**SMALL, **files})
            self.refused(words, arguments=["org/bare"])
        self.server.add("org/adapter", {"adapter_config.json": b"{}"})
        self.refused("has no weights", arguments=["org/adapter"])


if __name__ == "__main__":
    unittest.main()
