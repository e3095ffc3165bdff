"""What may change between two starts of a run, and what is refused: the table of docs/reliability.md."""
import array
import gzip
import json
import math
import shutil
import unittest

import resume_table
from resume_table import LOGGED, REFUSED, ROUNDED, SAID, TEMPLATE
from support import ROOT, EndToEnd, read_rows, tensors_of, trainer, write_rows

STEPS = 2
# fp32 sums in another order. Losses came out equal and tensors of the result differed by 4e-8 of their norm; a wrong sample
# or mask changes the tensors by more than a hundredth.
ROUNDING = 1e-6


class Changes(EndToEnd):
    """Each row of the table gets its own copy of everything: model, data and the stopped run."""
    family = "qwen2"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.begun = cls.scratch / "begun"
        cls.begun.mkdir()
        shutil.copytree(cls.model, cls.begun / "model")
        (cls.begun / "template.jinja").write_text(TEMPLATE)
        rows = [{"messages": [{"role": "user", "content": f"{n} and"}, {"role": "assistant", "content": f"{n + 1}"},
                              {"role": "user", "content": "and"}, {"role": "assistant", "content": f"{n + 2} " * (n % 5)}]}
                for n in range(1, 25)]
        write_rows(cls.begun / "chat.jsonl", rows)
        texts = [{"input": f"{n} and", "target": f"{n + 1} " * (1 + n % 5)} for n in range(24)]
        write_rows(cls.begun / "rows.jsonl", texts)
        (cls.begun / "rows.jsonl.gz").write_bytes(gzip.compress((cls.begun / "rows.jsonl").read_bytes()))
        for kind in ("chat", "rows"):
            result = cls.start(cls.begun, kind, f"max_steps={STEPS}")
            assert result.returncode == 0, result.stderr

    @staticmethod
    def start(place, kind, *overrides):
        data = "chat.jsonl" if kind == "chat" else "rows.jsonl.gz"
        of_kind = (f"data.chat_template={place / 'template.jinja'}", "data.kind=chat") if kind == "chat" else ()
        return trainer("--config", ROOT / "configs" / "tiny_qwen.yaml", f"model.path={place / 'model'}",
                       f"data.train={place / data}", f"data.cache={place / 'cache'}", f"output_dir={place / kind}",
                       "device=cpu", "training.num_threads=1", "save.strategy=steps", "save.steps=2",
                       "effective_batch_size=4", "lr_scheduler_type=constant", *of_kind, *overrides)

    def copy(self):
        place = self.scratch / "changed"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.begun, place)
        return place

    def losses(self, place, kind):
        return [row["loss"] for row in read_rows(place / kind / "metrics.jsonl") if row["kind"] == "train"]

    def undisturbed(self, kind, *overrides):
        place = self.copy()
        self.assert_done(self.start(place, kind, f"max_steps={STEPS + 1}", *overrides))
        return self.losses(place, kind)

    def assert_named(self, kind, key, words, *overrides, change=lambda place: None):
        """Checks exit code 4 with key and file named, and that the same start with resume_changed resumes."""
        place = self.copy()
        change(place)
        said = self.start(place, kind, f"max_steps={STEPS + 1}", *overrides)
        self.assert_refused(said, 4, f"  {words}: ", " there, ", " here", f"resume_changed=[{key}]")
        again = self.start(place, kind, f"max_steps={STEPS + 1}", *overrides, f"resume_changed=[{key}]")
        self.assert_done(again)
        self.assertIn("accepted by resume_changed", again.stderr)
        self.assertEqual(len(self.losses(place, kind)), STEPS + 1)

    def start_changed(self, change):
        place = self.copy()
        change.edit(place)
        overrides = [override.replace("PLACE", str(place)) for override in change.overrides]
        if not any(override.startswith("training.max_steps=") for override in overrides):
            overrides.append(f"training.max_steps={STEPS + 1}")
        return place, self.start(place, change.kind, *overrides)

    def outcome(self, place, kind):
        """All losses, and the bytes of the result."""
        return self.losses(place, kind), tensors_of(place / kind / "adapter_model.safetensors")

    def assert_close(self, expected, found):
        """Compares two outcomes up to rounding: losses, and each tensor by the norm of the difference."""
        for one, other in zip(expected[0], found[0], strict=True):
            self.assertAlmostEqual(one, other, delta=ROUNDING * one)
        self.assertEqual(expected[1].keys(), found[1].keys())
        for name, (dtype, shape, content) in expected[1].items():
            self.assertEqual((dtype, shape), found[1][name][:2])
            one, other = (array.array("f", data) for data in (content, found[1][name][2]))
            self.assertLessEqual(math.dist(one, other), ROUNDING * math.hypot(*one), name)

    def test_every_row_of_the_table(self):
        expected = {}
        for kind in ("rows", "chat"):
            place, result = self.start_changed(resume_table.Change("nothing", SAID, kind=kind))
            self.assert_done(result)
            expected[kind] = self.outcome(place, kind)
        for change in resume_table.CHANGES:
            with self.subTest(change.words):
                place, result = self.start_changed(change)
                if change.happens == REFUSED:
                    self.assert_refused(result, 4, f"\n  {change.about}", " there, ", " here", "resume_changed=[",
                                        change.about.split()[0])
                    continue
                self.assert_done(result)
                lines = [line for line in result.stderr.splitlines() if " there, " in line]
                if change.happens == LOGGED:
                    self.assertTrue([line for line in lines if f"{change.about}: " in line and
                                     "; the run resumes with the new value" in line], result.stderr)
                    self.assertEqual(len(self.losses(place, change.kind)), STEPS + 1)
                    continue
                self.assertEqual([line for line in lines if "training.max_steps" not in line], [])
                found = self.outcome(place, change.kind)
                if change.happens == ROUNDED:
                    self.assert_close(expected[change.kind], found)
                    continue
                self.assertEqual(found, expected[change.kind])
                if change.happens == SAID:
                    self.assertIn(change.about, result.stderr)

    def test_the_page_has_this_table(self):
        page = (ROOT / "docs" / "reliability.md").read_text()
        self.assertIn("\n" + resume_table.table() + "\n", page, "print it with tests/e2e/resume_table.py")

    def test_a_refused_change_can_be_accepted(self):
        for kind, key, value in (("chat", "data.loss_on", "last_turn"), ("chat", "data.truncation_side", "left"),
                                 ("rows", "data.max_samples", "20"),
                                 ("rows", "data.long_samples", "drop"), ("rows", "data.input", "so {input}")):
            with self.subTest(key):
                extra = ("data.target=target",) if key == "data.input" else ()
                accepts = key if not extra else "data.input, data.target"
                self.assert_named(kind, accepts, key, f"{key}={value}", *extra)

    def test_more_tokens(self):
        """Even if the change is accepted, weights of another shape do not fit."""
        self.assert_refused(self.start(self.copy(), "rows", f"max_steps={STEPS + 1}", "model.add_tokens=[and]"), 4,
                            "  model.add_tokens: [] there, ", "resume_changed=[model.add_tokens]")

    def test_another_chat_template(self):
        self.assert_named("chat", "data.chat_template", "data.chat_template",
                          change=lambda place: (place / "template.jinja").write_text(TEMPLATE.replace("<|", "<")))

    def test_files_of_the_model(self):
        def edit(place, **changes):
            path = place / "model" / "tokenizer_config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

        def flip(place):
            path = place / "model" / "model.safetensors"
            content = bytearray(path.read_bytes())
            content[-301] ^= 1
            path.write_bytes(content)

        changes = (
            ("chat", "tokenizer_config.json", lambda place: edit(place, chat_template=TEMPLATE)),
            ("rows", "tokenizer_config.json", lambda place: edit(place, add_bos_token=True)),
            ("rows", "chat_template.jinja", lambda place: (place / "model" / "chat_template.jinja").write_text(TEMPLATE)),
            ("rows", "tokenizer.json", lambda place: (place / "model" / "tokenizer.json").write_text(
                (place / "model" / "tokenizer.json").read_text() + "\n")),
            ("rows", "weights", flip))
        for kind, name, change in changes:
            with self.subTest(name):
                self.assert_named(kind, "model.path", f"model.path {name}", change=change)

    def test_the_layout_of_micro_batches_does_not_change_dropout(self):
        """Its masks do not depend on the layout."""
        dropout = ("lora.lora_dropout=0.1", f"max_steps={STEPS + 1}")
        place = self.copy()
        self.assert_done(self.start(place, "rows", *dropout))
        expected = self.outcome(place, "rows")
        for overrides in ("data.packing=false", "micro_batching=samples", "training.batch_size=1"):
            with self.subTest(overrides):
                place = self.copy()
                self.assert_done(self.start(place, "rows", *dropout, overrides))
                self.assert_close(expected, self.outcome(place, "rows"))

    def test_a_run_of_an_earlier_version_is_resumed(self):
        """An older program's output: the position in output_dir has fewer settings and no checksum."""
        place = self.copy()
        path = place / "rows" / "trainer_position.json"
        position = json.loads(path.read_text())
        position.pop("checksum")
        position["fixed"] = {key: value for key, value in position["fixed"].items()
                             if key in ("model.path", "data.train", "training.effective_batch_size", "model.add_tokens",
                                        "data.kind", "data.input", "data.max_length", "seed", "model.dtype", "lora.r")}
        path.write_text(json.dumps(position))
        self.assert_refused(self.start(place, "rows", "seed=7"), 4, "seed: 42 there, 7 here")
        self.assert_done(self.start(place, "rows", f"max_steps={STEPS + 1}"))
        self.assertEqual(self.losses(place, "rows"), self.undisturbed("rows"))


if __name__ == "__main__":
    unittest.main()
