"""The memory plan on the command line: presets and cards, JSON, choices, exit codes."""
import json
import os
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

from support import ROOT, TRAINER, EndToEnd, trainer

MOST_FOR_A_PLAN = 200_000  # kB, of which LibTorch itself takes 130,000


class Plan(EndToEnd):
    @classmethod
    def setUpClass(cls):
        pass  # no model and no data

    def plan(self, preset, *arguments):
        result = trainer("plan", "--config", ROOT / "configs" / preset, "--json", *arguments)
        self.assert_done(result)
        return json.loads(result.stdout)

    def test_presets_fit_the_card_in_their_name(self):
        presets = {preset.name: int(size[1]) for preset in (ROOT / "configs").glob("*.yaml")
                   if (size := re.search(r"_(\d+)gb$", preset.stem))}
        self.assertGreaterEqual(len(presets), 19)
        for preset, size in {"flan_t5_xl.yaml": 32, **presets}.items():
            with self.subTest(preset=preset):
                plan = self.plan(preset)
                self.assertEqual(sum(plan["bytes"].values()), plan["total"])
                self.assertEqual(plan["device"], "cuda")
                self.assertLess(plan["total"], 0.95 * size * 1e9)
        for preset, card, fits in (("qwen3_0_6b_lora_8gb.yaml", "8GB", True), ("flan_t5_xl.yaml", "16GB", False)):
            (gpu,) = self.plan(preset, "--gpus", card)["gpus"]
            self.assertEqual(gpu["fits"], fits)
            self.assertEqual(gpu["fits"], gpu["total"] <= 0.95 * int(card[:-2]) * 1e9)

    def test_published_parameter_counts(self):
        for card, parameters in (("flan-t5-small", 76_961_152), ("flan-t5-base", 247_577_856), ("flan-t5-large", 783_150_080),
                                 ("flan-t5-xl", 2_849_757_184), ("flan-t5-xxl", 11_135_332_352), ("qwen2.5-0.5b", 494_032_768),
                                 ("qwen2.5-7b", 7_615_616_512), ("qwen3-8b", 8_190_735_360), ("qwen3-14b", 14_768_307_200),
                                 ("llama-3.2-1b", 1_235_814_400), ("llama-3.1-8b", 8_030_261_248),
                                 ("smollm2-135m", 134_515_008), ("smollm2-360m", 361_821_120),
                                 ("smollm2-1.7b", 1_711_376_384), ("mistral-7b-v0.3", 7_248_023_552)):
            plan = self.plan("robust.yaml", f"model.path={card}", "model.dtype=bf16", "lora={}", "data.max_length=8",
                             "data.max_source_length=8", "data.max_target_length=8")
            # Tensors are rounded up to blocks of 512 bytes on a GPU.
            self.assertLess(abs(plan["bytes"]["weights"] / 2 / parameters - 1), 1e-4, card)

    def test_figures_of_the_presets(self):
        full, r_128 = ("flan_t5_xl.yaml", "batch_size=8"), ("qwen2_5_7b_lora_24gb.yaml",)
        qlora = ("model.quantize=nf4", "lora.r=16", "lora.target_modules=all-linear", "batch_size=1")
        for most, preset, *settings in (
                (25e9, *full), (18.9e9, *full, "optimizer.name=adamw_8bit"), (13.2e9, *full, "optimizer.name=adafactor"),
                (22e9, *r_128, "lora.target_modules=all-linear"), (19e9, *r_128, "optimizer.name=adamw_8bit"),
                (11e9, *r_128, "model.quantize=nf4"), (9.6e9, *r_128, "model.quantize=nf4", "optimizer.name=adamw_8bit"),
                (7.7e9, *r_128, *qlora, "data.max_length=1536"),
                (8.3e9, *r_128, *qlora, "model.path=llama-3.1-8b", "data.max_length=2048"),
                (16e9, "qwen2_5_7b_24gb.yaml", "memory.offload=[optimizer,weights,activations]")):
            with self.subTest(preset=preset, settings=settings):
                self.assertLessEqual(self.plan(preset, *settings)["total"], most)

    def test_a_plan_of_7_billion_takes_little_memory(self):
        self.plan("qwen2_5_7b_lora_24gb.yaml")
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 1_000_000)  # kB

    def test_the_largest_sizes_take_little_memory(self):
        """The limits of config.json (model_limits.cpp), each for itself and together as far as 10^13 parameters go."""
        layers = dict(num_hidden_layers=256, hidden_size=32768, intermediate_size=131072, num_attention_heads=256,
                      num_key_value_heads=8, vocab_size=1 << 20)
        vocabulary = dict(num_hidden_layers=2, hidden_size=1 << 17, intermediate_size=1 << 18, num_attention_heads=1024,
                          num_key_value_heads=1024, vocab_size=1 << 24)
        blocks = dict(num_layers=128, num_decoder_layers=128, d_model=16384, d_ff=65536, num_heads=128, d_kv=64,
                      vocab_size=1 << 20)
        for card, preset, sizes in (("qwen2.5-7b", "tiny_qwen.yaml", layers), ("qwen2.5-7b", "tiny_qwen.yaml", vocabulary),
                                    ("flan-t5-xl", "tiny_t5.yaml", blocks)):
            config = json.loads((ROOT / "configs" / "models" / f"{card}.json").read_text())
            config.pop("layer_types", None)
            with tempfile.TemporaryDirectory() as model:
                (pathlib.Path(model) / "config.json").write_text(json.dumps({**config, **sizes}))
                attention = "[q, v]" if preset == "tiny_t5.yaml" else "[q_proj, v_proj]"
                for method in (["lora=null"], ["lora.r=8"], ["lora.use_dora=true", f"lora.target_modules={attention}"]):
                    for device in ("cpu", "cuda"):
                        with self.subTest(sizes=sizes, method=method, device=device):
                            process = subprocess.Popen(
                                [TRAINER, "plan", "--config", ROOT / "configs" / preset, f"model.path={model}", *method,
                                 f"device={device}", "training.num_threads=1"], stdout=subprocess.DEVNULL)
                            _, status, usage = os.wait4(process.pid, 0)
                            process.returncode = os.waitstatus_to_exitcode(status)
                            self.assertEqual(process.returncode, 0)
                            self.assertLess(usage.ru_maxrss, MOST_FOR_A_PLAN)

    def test_grouped_heads_in_fp32(self):
        """LibTorch has no fused kernel for them on a GPU; the operators that it uses instead are planned."""
        self.assertGreater(self.plan("tiny_qwen.yaml", "model.path=qwen2.5-7b", "device=cuda")["total"], 30e9)

    def test_sizes_of_gpus_end_where_keys_begin(self):
        plan = self.plan("qwen3_0_6b_lora_8gb.yaml", "--gpus", "24,1", "lora.r=8")
        self.assertEqual([gpu["fits"] for gpu in plan["gpus"]], [True, False])

    def card_with(self, card, **keys):
        """A model's card in a folder, with other keys."""
        with tempfile.TemporaryDirectory() as folder:
            config = json.loads((ROOT / "configs" / "models" / f"{card}.json").read_text())
            pathlib.Path(folder, "config.json").write_text(json.dumps({**config, **keys}))
            yield folder

    def test_the_head_of_a_classifier(self):
        names = [f"class {number}" for number in range(3000)]
        settings = "objective.name=classification", "data.kind=auto", "lora={}"
        named = self.plan("tiny_qwen.yaml", "model.path=qwen2.5-0.5b", f"objective.labels={json.dumps(names)}", *settings)
        for folder in self.card_with("qwen2.5-0.5b", architectures=["Qwen2ForSequenceClassification"], id2label=dict(enumerate(names))):
            own = self.plan("tiny_qwen.yaml", f"model.path={folder}", *settings)
        two = self.plan("tiny_qwen.yaml", "model.path=qwen2.5-0.5b", *settings)
        self.assertEqual(own["bytes"], named["bytes"])
        self.assertGreater(own["total"], two["total"] + 2998 * 896 * 4)

    def test_an_encoder_alone_stays_one(self):
        settings = "objective.name=classification", "data.kind=auto", "objective.labels=[a, b, c]"
        asked = self.plan("tiny_t5.yaml", "model.path=flan-t5-small", "model.encoder_only=true", *settings)
        for folder in self.card_with("flan-t5-small", architectures=["T5EncoderModel"], id2label={0: "a", 1: "b", 2: "c"}, problem_type="single_label_classification"):
            found = self.plan("tiny_t5.yaml", f"model.path={folder}", *settings)
        self.assertEqual(found["bytes"], asked["bytes"])

    def test_search_and_gpus(self):
        plan = self.plan("qwen3_0_6b_lora_8gb.yaml", "--search", "--gpus", "1GB,24GB")
        totals = {(row["batch_size"], row["recompute_blocks"]): row["total"] for row in plan["search"]}
        self.assertLess(totals[1, 28], totals[1, 0])
        self.assertLess(totals[1, 28], totals[32, 28])
        kept = {(row["batch_size"], row["light"]): row["total"] for row in plan["search"] if row["recompute_blocks"] == 0}
        self.assertLess(kept[8, True], kept[8, False])
        small, large = plan["gpus"]
        self.assertIsNone(small["fastest"])
        self.assertTrue(large["fits"])
        self.assertLessEqual(large["fastest"]["total"], 0.95 * 24e9)
        table = trainer("plan", "--config", ROOT / "configs/qwen3_0_6b_lora_8gb.yaml", "--search", "--gpus", "24GB")
        self.assert_done(table)
        self.assertIn("optimizer state", table.stdout)

    def on_cards(self, preset, cards, *arguments):
        return self.plan(preset, "--gpus", cards, *arguments)["gpus"]

    def test_several_gpus_divide_the_optimizer_state_of_full_fine_tuning(self):
        alone, two, eight = self.on_cards("flan_t5_xl.yaml", "1x32GB,2x32GB,8x32GB")
        self.assertEqual([row["shards"] for row in (alone, two, eight)], [False, True, True])
        whole = self.plan("flan_t5_xl.yaml")["bytes"]["optimizer_state"]
        saved = alone["total"] - two["total"]
        self.assertLess(abs(saved / (whole / 2) - 1), 0.1, "half of it is another rank's; NCCL needs some memory")
        self.assertLess(eight["total"], two["total"])
        self.assertNotIn("step", alone)
        (same,) = self.on_cards("flan_t5_xl.yaml", "2x32GB", "parallel.shard=none")
        self.assertFalse(same["shards"])
        self.assertGreater(same["total"], alone["total"])

    def test_what_each_gpu_sends(self):
        """A ring sends 2 (N - 1) / N of the gradients; sums at owners and the weights from them are as much."""
        parameters = 2_849_757_184  # FLAN-T5-XL's; gradients and weights in bf16
        for cards, gpus in (("2x80GB", 2), ("8x80GB", 8), ("4x8x80GB", 32)):
            for shard in ("none", "optimizer"):
                (row,) = self.on_cards("flan_t5_xl.yaml", cards, f"parallel.shard={shard}", "effective_batch_size=64", "batch_size=2")
                step = row["step"]
                self.assertLess(abs(step["sent"] / (2 * parameters * 2 * (gpus - 1) / gpus) - 1), 1e-3, cards)
                for link in step["links"]:
                    self.assertAlmostEqual(link["seconds"], step["sent"] / link["rate"])
                    self.assertLess(link["speed"], gpus)
                    # Sums of gradients, except the table's, travel during the last of equal backward passes.
                    sums = (2 * parameters - 2 * 32128 * 2048) * (gpus - 1) / gpus * (2 if shard == "none" else 1)
                    most = step["arithmetic_seconds"] / (64 / gpus / 2) * 2 / 3
                    self.assertLess(abs(link["hidden_seconds"] / min(sums / link["rate"], most) - 1), 2e-3, (cards, shard))
                    self.assertAlmostEqual(link["speed"], step["one_gpu_seconds"] /
                                           (step["arithmetic_seconds"] + link["seconds"] - link["hidden_seconds"]))
                speeds = [link["speed"] for link in step["links"]]
                self.assertEqual(speeds, sorted(speeds, reverse=True), "the fastest connection comes first")
                self.assertEqual(all(link["link"].startswith("net_") for link in step["links"]), gpus == 32)
        (fp32,) = self.on_cards("flan_t5_xl.yaml", "2x80GB", "parallel.shard=none", "optimizer.grad_dtype=fp32")
        self.assertLess(abs(fp32["step"]["sent"] / (parameters * 4) - 1), 1e-3)

    def test_weights_that_are_divided(self):
        arguments = ("effective_batch_size=16", "batch_size=4")
        half, whole = (self.on_cards("qwen2_5_7b_lora_24gb.yaml", "2x24GB", f"parallel.shard={shard}", *arguments)[0]
                       for shard in ("all", "optimizer"))
        self.assertTrue(half["divides"])
        self.assertFalse(whole["divides"])
        blocks = 28 * 2 * (3584 * (2 * 3584 + 2 * 512) + 3 * 3584 * 18944)  # bytes of their matrices in bf16
        saved = whole["total"] - half["total"]
        self.assertLess(abs(saved / (blocks / 2) - 1), 0.15, "half of them, less two blocks that are fetched")
        # For two micro-batches each block travels twice, half of it from either GPU.
        fetched = half["step"]["sent"] - whole["step"]["sent"]
        self.assertGreater(fetched, 2 * 2 * blocks / 2 * 0.95)
        self.assertLess(fetched, 2 * 2 * blocks / 2 * 1.6)

    def test_an_adapter_is_little_to_send(self):
        (row,) = self.on_cards("qwen2_5_7b_lora_24gb.yaml", "2x24GB")
        self.assertLess(row["step"]["sent"], 2e9)
        self.assertGreater(row["step"]["links"][0]["speed"], 1.8)

    def test_a_size_alone_means_the_gpus_of_the_configuration(self):
        bare, two, one = self.on_cards("flan_t5_xl.yaml", "32GB,2x32GB,1x32GB", "parallel.gpus=2")
        self.assertEqual(bare, two)
        self.assertEqual(one["gpus_per_machine"], 1)
        self.assertEqual(self.plan("flan_t5_xl.yaml", "parallel.gpus=2")["total"], two["total"])

    def test_search_considers_what_ranks_may_divide(self):
        small = ("flan_t5_xl.yaml", "model.path=flan-t5-small")
        plan = self.plan(*small, "--search", "parallel.gpus=2", "parallel.shard=none")
        (divided,) = (measure for measure in plan["measures"] if measure["settings"] == ["parallel.shard=optimizer"])
        self.assertTrue(divided["same_result"])
        self.assertEqual(divided["total"], self.plan(*small, "parallel.gpus=2")["total"])
        (all_of_it,) = (measure for measure in plan["measures"] if measure["settings"] == ["parallel.shard=all"])
        self.assertTrue(all_of_it["same_result"])
        self.assertLess(all_of_it["total"], divided["total"])
        alone = self.plan(*small, "--search", "parallel.shard=none")
        for shard in ("optimizer", "all"):
            self.assertNotIn([f"parallel.shard={shard}"], [measure["settings"] for measure in alone["measures"]])

    def test_the_text_about_several_gpus(self):
        result = trainer("plan", "--config", ROOT / "configs/flan_t5_xl.yaml", "--gpus", "2x24GB,4x8x80GB")
        self.assert_done(result)
        for words in ("2 GPUs of 24.0 GB", "4 machines of 8 GPUs of 80.0 GB", "on each with the optimizer's state sharded",
                      "PCIe 4.0, through main memory", "100 Gb/s between machines", "Nothing is measured"):
            self.assertIn(words, result.stdout)
        few = trainer("plan", "--config", ROOT / "configs/flan_t5_xl.yaml", "--gpus", "8x80GB", "batch_size=1",
                      "effective_batch_size=6")
        self.assertIn("2 of the GPUs get no sample: a step has 6", few.stdout)

    def test_what_the_gpus_of_a_machine_offload_together(self):
        small = ("flan_t5_xl.yaml", "model.path=flan-t5-small", "memory.offload=[optimizer]")
        (row,) = self.plan(*small, "--gpus", "3x4x24GB")["gpus"]
        self.assertTrue(row["fits"])
        self.assertEqual(row["offloaded_on_machine"], 4 * self.plan(*small, "parallel.gpus=12")["offloaded"]["total"])
        result = trainer("plan", "--config", ROOT / "configs" / small[0], *small[1:], "--gpus", "2x24GB,24GB")
        self.assertEqual(result.stdout.count("of main memory on each machine"), 1)

    def test_cards_that_are_no_cards(self):
        for cards in ("2x", "0x24GB", "twox24GB", "2x2x2x24GB"):
            self.assert_refused(trainer("plan", "--config", ROOT / "configs/flan_t5_xl.yaml", "--gpus", cards), 2,
                                cards, "GPUSxSIZE (2x24GB)")

    def search(self, preset, *arguments):
        """Returns the plan with --search; it took little memory and some seconds."""
        process = subprocess.Popen(
            [TRAINER, "plan", "--config", ROOT / "configs" / preset, "--json", "--search", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        out = process.stdout.read()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertLess(usage.ru_maxrss, MOST_FOR_A_PLAN)
        self.assertLess(usage.ru_utime, 30)
        return process.returncode, json.loads(out)

    def test_measures_keep_their_promise(self):
        """The settings of each measure, given to another plan, have its memory."""
        for preset, card, expected in (
                ("flan_t5_xl.yaml", "16GB", ("training.batch_size=1", "memory.offload=[optimizer]", "optimizer.name=adamw_8bit",
                                             "optimizer.name=adafactor", "lora={}", "lora={} model.quantize=nf4")),
                ("qwen2_5_7b_lora_24gb.yaml", "12GB", ("model.quantize=nf4", "optimizer.name=adamw_8bit"))):
            code, plan = self.search(preset, "--gpus", card)
            self.assertEqual(code, 0)
            fitting = plan["fitting"][0]
            self.assertTrue(fitting["measures"])
            for measure in fitting["measures"]:
                self.assertLessEqual(measure["total"], fitting["limit"])
            self.assertLessEqual(set(expected), {" ".join(measure["settings"]) for measure in plan["measures"]})
            for measure in plan["measures"] + fitting["measures"]:
                with self.subTest(preset=preset, settings=measure["settings"]):
                    same = self.plan(preset, *measure["settings"])
                    # A setting may bring other defaults with it; Adafactor does not clip gradients.
                    self.assertLess(abs(same["total"] / measure["total"] - 1), 1e-4)
                    self.assertEqual(measure["saved"], plan["total"] - measure["total"])
                    changes = {setting.split("=")[0] for setting in measure["settings"]}
                    exact = changes <= {"training.batch_size", "training.gradient_accumulation_steps",
                                        "memory.gradient_checkpointing", "memory.offload"}
                    self.assertEqual(measure["same_result"], exact)
                    self.assertEqual(bool(measure["changes"]), not exact)

    def test_the_list_of_measures(self):
        result = trainer("plan", "--config", ROOT / "configs/flan_t5_xl.yaml", "--search", "memory.limit=16GB")
        self.assert_refused(result, 5, "more than memory.limit allows", "also, but the numbers change:",
                            "optimizer.name=adafactor")
        self.assertRegex(result.stdout, r"memory\.offload=\[optimizer\]  \(same result; [\d.]+ GB offloaded\)")
        self.assertRegex(result.stderr, r"memory\.offload=\[optimizer\]  \([\d.]+ GB, [\d.]+ times as long; [\d.]+ GB offloaded\)")
        self.assertRegex(result.stdout, r"x 1\.\d\d  optimizer\.name=adamw_8bit  \(changes numbers: ")
        self.assertIn("To fit in 16.0 GB:", result.stdout)

    def test_tiny_models_are_shown_in_megabytes(self):
        shape = {"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 160,
                 "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 512}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(shape))
            result = trainer("plan", f"model.path={folder}", "device=cpu", "data.max_length=64", "--search", "--gpus", "1MB")
        self.assert_done(result)
        self.assertNotRegex(result.stdout, r"\b0\.0 [GM]B|[ (]0\.0  x")
        self.assertIn("MB of memory and time of a step", result.stdout)
        self.assertRegex(result.stdout, r"total +\d+\.\d{3} MB")

    def test_offload_counts_in_the_time_of_a_step(self):
        above, below = (self.plan("flan_t5_xl.yaml", "model.path=flan-t5-base", "--search", f"memory.offload={parts}")["search"]
                        for parts in ("[]", "[weights]"))
        cost = [{row["batch_size"]: row["cost"] for row in rows if row["recompute_blocks"] == 24} for rows in (above, below)]
        added = {size: cost[1][size] - cost[0][size] for size in (1, 8)}
        self.assertGreater(added[8], 0.1)
        self.assertGreater(added[1], 4 * added[8], "small micro-batches move the weights more often")

    def test_what_does_not_fit_says_what_would(self):
        result = trainer("plan", "--config", ROOT / "configs/qwen3_0_6b_lora_8gb.yaml", "memory.gradient_checkpointing=false",
                         "memory.limit=6GB")
        self.assert_refused(result, 5, "What makes it fit, by the memory plan:\n")
        advice = result.stderr[result.stderr.index("What makes it fit"):].splitlines()
        self.assertLessEqual(len(advice), 7)
        settings = advice[1].strip().split("  ")[0].split()
        self.assert_done(trainer("plan", "--config", ROOT / "configs/qwen3_0_6b_lora_8gb.yaml", "memory.limit=6GB",
                                 "memory.gradient_checkpointing=false", *settings))
        for numbers in (("training.batch_size=fit", "memory.gradient_checkpointing=fit"),
                        ("training.batch_size=auto", "memory.gradient_checkpointing=fit"),
                        ("training.batch_size=fit", "memory.gradient_checkpointing=auto")):
            least = trainer("plan", "--config", ROOT / "configs/qwen3_0_6b_lora_8gb.yaml", "memory.limit=700MB", *numbers)
            self.assertIn("batch_size 1, 28 of 28 layers", least.stdout)
            self.assertIn("The least that it needs, more than 700.0 MB:", least.stdout)
        hopeless = trainer("plan", "--config", ROOT / "configs/qwen3_0_6b_lora_8gb.yaml", "memory.limit=700MB")
        self.assert_refused(hopeless, 5, "more than memory.limit allows")
        self.assertNotIn("What makes it fit", hopeless.stderr)

    def test_mistakes(self):
        self.assert_refused(trainer("plan", "model.path=no-such-model"), 4, "no-such-model", "configs/models")
        self.assert_refused(trainer("plan"), 2, "model.path")
        self.assert_refused(trainer("plan", "--config", ROOT / "configs/flan_t5_xl.yaml", "lora={target_modules: [x]}"), 2,
                            "lora.target_modules")
        self.assert_refused(trainer("--config", ROOT / "configs/flan_t5_xl.yaml", "data.train=README.md"), 4,
                            "flan-t5-xl", "trainer plan")
        self.assert_refused(trainer("plan", "model.path=flan-t5-small", "batch_size=auto"), 2, "effective_batch_size")


if __name__ == "__main__":
    unittest.main()
