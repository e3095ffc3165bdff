"""Ranks that find other files, libraries or variables than rank 0, as on two machines, end before the first step."""
import json
import os
import shutil
import subprocess
import unittest

from in_ranks import InRanks
from support import ROOT, EndToEnd, trainer, write_rows

TEMPLATE = ("{% for message in messages %}<|{{ message['role'] }}|>{% generation %}{{ message['content'] }}"
            "{% endgeneration %}\n{% endfor %}")


@unittest.skipIf(subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode, "nothing can be mounted here")
class OtherFiles(EndToEnd):
    """Rank 1 sees other files behind the same paths: they are mounted for it alone."""
    family = "qwen2"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.template = cls.scratch / "template.jinja"
        cls.template.write_text(TEMPLATE)
        cls.rows = cls.scratch / "chat.jsonl"
        write_rows(cls.rows, [{"messages": [{"role": "user", "content": f"{n} and"}, {"role": "assistant", "content": f"{n + 1}"}]}
                              for n in range(40)])
        cls.held_out = cls.scratch / "held_out.jsonl"
        write_rows(cls.held_out, [{"messages": [{"role": "user", "content": "1 and"}, {"role": "assistant", "content": "2"}]}])

    def setUp(self):
        self.output = self.scratch / self._testMethodName

    def arguments(self, *overrides):
        return ["--config", ROOT / "configs/tiny_qwen.yaml", f"model.path={self.model}", f"data.train={self.rows}",
                "data.kind=chat", f"data.chat_template={self.template}", f"output_dir={self.output}", "device=cpu",
                "training.num_threads=1", "effective_batch_size=4", "max_steps=2", *overrides]

    def run_ranks(self, *overrides, others=(), count=2, environment=None):
        """`others`: paths and what rank 1 finds there. Returns the exit codes, and what rank 0 says."""
        mounts = "".join(f"mount --bind {found} {path} && " for path, found in others)
        command = f'if [ "$RANK" = 1 ]; then {mounts} true || exit 99; fi; exec "$0" "$@"'
        codes, texts = InRanks(count, *self.arguments(*overrides), before=("unshare", "-m", "bash", "-c", command),
                               environment=environment).wait()
        return codes, texts[0]

    def changed(self, path, change):
        """A copy of the file whose bytes are changed."""
        folder = self.scratch / "changed"
        folder.mkdir(exist_ok=True)
        copy = folder / f"{len(list(folder.iterdir()))}-{path.name}"
        copy.write_bytes(change(path.read_bytes()))
        return copy

    def assert_refused_for(self, path, change, entry, code, *overrides):
        shutil.rmtree(self.output, ignore_errors=True)
        codes, said = self.run_ranks(*overrides, others=[(path, self.changed(path, change))])
        self.assertEqual(codes, [code, code], said)
        self.assertIn(f"rank 1 has another {entry}", said)
        self.assertIn(str(path), said)
        self.assertIn("All ranks need the same files", said)
        self.assertFalse((self.output / "metrics.jsonl").exists(), "no step was made")

    @staticmethod
    def edit(**changes):
        return lambda content: json.dumps({**json.loads(content), **changes}).encode()

    @staticmethod
    def flip(content):
        return content[:-301] + bytes([content[-301] ^ 1]) + content[-300:]

    def test_files_of_the_model(self):
        (self.model / "generation_config.json").write_text("{}")
        for name, change in (("config.json", self.edit(rms_norm_eps=0.01)), ("generation_config.json", self.edit(top_k=3)),
                             ("tokenizer.json", lambda content: content + b"\n"),
                             ("tokenizer_config.json", self.edit(add_bos_token=True))):
            with self.subTest(name):
                self.assert_refused_for(self.model / name, change, f"model.path {name}", 4)
        with self.subTest("weights"):
            self.assert_refused_for(self.model / "model.safetensors", self.flip, "model.path weights", 4)

    def test_what_config_json_says_of_its_origin_does_not_count(self):
        other = self.changed(self.model / "config.json", self.edit(transformers_version="4.1", _name_or_path="elsewhere"))
        codes, said = self.run_ranks(others=[(self.model / "config.json", other)])
        self.assertEqual(codes, [0, 0], said)

    def test_the_chat_template(self):
        self.assert_refused_for(self.template, lambda content: content.replace(b"<|", b"<"), "data.chat_template", 4)

    def test_data(self):
        self.assert_refused_for(self.rows, lambda content: content.replace(b"7 and", b"8 and"), "data.train", 3)
        self.assert_refused_for(self.held_out, lambda content: content.replace(b"1 and", b"3 and"), "data.eval", 3,
                                f"data.eval={self.held_out}")

    def test_an_adapter(self):
        first = self.scratch / "adapter"
        shutil.rmtree(first, ignore_errors=True)
        self.assert_done(trainer(*self.arguments("lora.r=2", f"output_dir={first}")))
        adapter = f"lora.adapter={first}"
        self.assert_refused_for(first / "adapter_config.json", self.edit(lora_alpha=77), "lora.adapter adapter_config.json", 4,
                                "lora.r=null", adapter)
        self.assert_refused_for(first / "adapter_model.safetensors", self.flip, "lora.adapter adapter_model.safetensors", 4,
                                "lora.r=null", adapter)

    def test_a_kept_index(self):
        """Rank 1 finds one that was made of other rows, and is whole."""
        cache, other = self.scratch / "cache", self.scratch / "other_cache"
        rows = self.scratch / "text.jsonl"
        found = {}
        for folder, word in ((other, "three words more"), (cache, "two words")):
            write_rows(rows, [{"text": f"{n} {word} " * 30} for n in range(40)])
            os.utime(rows, (1e9, 1e9))
            shutil.rmtree(self.output, ignore_errors=True)
            split = (f"data.train={rows}", "data.kind=text", "data.chat_template=null", "data.long_samples=split",
                     "data.max_length=32", f"data.cache={folder}")
            self.assert_done(trainer(*self.arguments(*split)))
            (found[folder],) = folder.glob("index/*.pieces")
        shutil.rmtree(self.output)
        codes, said = self.run_ranks(*split, others=[(found[cache], found[other])])
        self.assertEqual(codes, [3, 3], said)
        self.assertIn("rank 1 has another data.train", said)

    def test_the_checkpoint_that_a_run_resumes_from(self):
        first = self.scratch / "first"
        shutil.rmtree(first, ignore_errors=True)
        self.assert_done(trainer(*self.arguments("lora.r=2", "save.strategy=steps", "save.steps=1", f"output_dir={first}")))
        for name, what in (("adapter_model.safetensors", "weights"), ("optimizer.safetensors", "optimizer state")):
            with self.subTest(name):
                path = first / "checkpoint-1" / name
                shutil.rmtree(self.output, ignore_errors=True)
                codes, said = self.run_ranks("lora.r=2", f"resume={first / 'checkpoint-1'}",
                                             others=[(path, self.changed(path, lambda content: content[:-3] +
                                                                         bytes([content[-3] ^ 1]) + content[-2:]))])
                self.assertEqual(codes, [4, 4], said)
                self.assertIn(f"rank 1 has another resume {what}", said)

    def test_all_ranks_that_differ_are_named(self):
        mounts = [(self.model / "config.json", self.changed(self.model / "config.json", self.edit(rms_norm_eps=0.02)))]
        path, other = mounts[0]
        command = f'if [ "$RANK" != 0 ]; then mount --bind {other} {path} || exit 99; fi; exec "$0" "$@"'
        codes, texts = InRanks(3, *self.arguments(), before=("unshare", "-m", "bash", "-c", command)).wait()
        self.assertEqual(codes, [4, 4, 4], texts)
        self.assertIn("ranks 1, 2 have another model.path config.json", texts[0])
        self.assertEqual(texts[1:], ["", ""], "rank 0 says it for all")

    def test_variables_that_change_results(self):
        codes, said = self.run_ranks(environment={1: {"MKL_CBWR": "COMPATIBLE"}})
        self.assertEqual(codes, [2, 2], said)
        self.assertIn("rank 1 has another environment MKL_CBWR than rank 0: COMPATIBLE there, none on rank 0", said)

    def test_the_date_is_that_of_rank_0(self):
        """Behind the date line it is another day."""
        dated = self.scratch / "dated.jinja"
        dated.write_text("{{ strftime_now('%d %B') }}" + TEMPLATE)
        zones = {0: {"TZ": "<-12>12"}, 1: {"TZ": "<+14>-14"}}
        codes, said = self.run_ranks(f"data.chat_template={dated}", environment=zones)
        self.assertEqual(codes, [0, 0], said)
        position = json.loads((self.output / "trainer_position.json").read_text())
        day = subprocess.run(["date", "+%F"], env={"TZ": "<-12>12", "PATH": os.environ["PATH"]}, capture_output=True, text=True)
        self.assertEqual(position["fixed"]["data.template_date"], day.stdout.strip())

    def test_a_complete_run_says_so_and_is_not_trained_again(self):
        codes, said = self.run_ranks()
        self.assertEqual(codes, [0, 0], said)
        (result,) = self.output.glob("*model.safetensors")
        before = result.stat().st_mtime_ns
        codes, said = self.run_ranks()
        self.assertEqual(codes, [0, 0], said)
        self.assertIn("nothing left to do", said)
        again = trainer(*self.arguments("--ranks", "2"))
        self.assert_done(again)
        self.assertIn("nothing left to do", again.stderr)
        self.assertEqual(result.stat().st_mtime_ns, before)


if __name__ == "__main__":
    unittest.main()
