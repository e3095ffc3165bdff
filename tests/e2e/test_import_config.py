"""`trainer import-config`: files of other trainers, in their own style, become ones of ours."""
import json
import unittest

from support import EndToEnd, trainer

AXOLOTL = """
base_model: /models/Qwen2.5-7B
model_type: AutoModelForCausalLM
load_in_8bit: false
load_in_4bit: true
datasets:
  - path: rows.jsonl
    type: alpaca
dataset_prepared_path:
val_set_size: 0.05
output_dir: ./outputs/qlora-out
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_modules:
lora_target_linear: true
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_8bit
lr_scheduler: cosine
learning_rate: 2e-4
bf16: auto
tf32: false
gradient_checkpointing: true
warmup_steps: 10
evals_per_epoch: 4
saves_per_epoch: 1
weight_decay: 0.0
deepspeed: zero2.json
some_new_key: 7
special_tokens:
  pad_token: "<|end_of_text|>"
"""

LLAMA_FACTORY = """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: identity,orders
dataset_dir: {folder}
template: llama3
cutoff_len: 2048
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
output_dir: saves/llama3-8b/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
val_size: 0.1
eval_strategy: steps
eval_steps: 500
"""

HUGGING_FACE = {
    "output_dir": "out", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 16, "learning_rate": 5e-05,
    "weight_decay": 0.01, "num_train_epochs": 3.0, "max_steps": -1, "lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {},
    "warmup_ratio": 0.03, "optim": "adamw_torch_fused", "fp16": True, "bf16": False, "eval_strategy": "steps", "eval_steps": 100,
    "save_strategy": "steps", "save_steps": 100, "save_total_limit": 2, "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss", "greater_is_better": False, "logging_steps": 0.1, "log_level": "passive", "seed": 7,
    "label_smoothing_factor": 0.1, "push_to_hub": False, "hub_token": "<HUB_TOKEN>", "ddp_timeout": 1800, "fsdp": [],
    "report_to": ["wandb"], "gradient_checkpointing": True, "max_grad_norm": 0.5, "neftune_noise_alpha": 5,
    "data_seed": None, "dataloader_num_workers": 0, "past_index": -1}

TORCHTUNE = """
output_dir: /tmp/torchtune/llama3_1_8B/qlora
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  apply_lora_to_output: False
  lora_rank: 8
  lora_alpha: 16
  lora_dropout: 0.0
  quantize_base: True
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/Meta-Llama-3.1-8B-Instruct/original/tokenizer.model
  max_seq_len: 2048
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /tmp/Meta-Llama-3.1-8B-Instruct/
  checkpoint_files: [model-00001-of-00004.safetensors]
  output_dir: ${output_dir}
resume_from_checkpoint: False
dataset:
  _component_: torchtune.datasets.alpaca_cleaned_dataset
  packed: False
seed: null
shuffle: True
batch_size: 2
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  weight_decay: 0.01
  lr: 3e-4
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 100
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
epochs: 1
max_steps_per_epoch: null
gradient_accumulation_steps: 8
compile: False
device: cuda
dtype: bf16
enable_activation_checkpointing: True
enable_activation_offloading: False
"""


class ImportConfig(EndToEnd):
    def imported(self, name, text):
        """Returns the values of the result, by key, and what was said."""
        file, result = self.scratch / name, self.scratch / (name + ".ours.yaml")
        result.unlink(missing_ok=True)
        file.write_text(text)
        ran = trainer("import-config", file, "--out", result)
        self.assert_done(ran)
        resolved = trainer("config", "--config", result)
        self.assert_done(resolved)
        values, section = {}, ""
        for line in result.read_text().splitlines():
            line = line.split("  # ")[0].rstrip() if not line.startswith("#") else ""
            if line.endswith(":") and not line.startswith(" "):
                section = line[:-1] + "."
            elif line.startswith("  "):
                key, value = line.strip().split(": ", 1)
                values[section + key] = value
            elif line:
                values.update([line.split(": ", 1)])
        return values, ran.stderr

    def assert_values(self, values, **expected):
        for key, value in expected.items():
            self.assertEqual(values.get(key.replace("__", ".")), value, key)

    def test_axolotl(self):
        values, said = self.imported("axolotl.yaml", AXOLOTL)
        self.assert_values(
            values, model__path="/models/Qwen2.5-7B", model__quantize="nf4", model__dtype="bf16", lora__r="32", lora__lora_alpha="16",
            lora__target_modules="all-linear", data__train="[rows.jsonl]", data__kind="chat", data__eval="0.05", data__max_length="4096",
            data__packing="true", training__batch_size="2", training__effective_batch_size="8", training__num_train_epochs="4",
            optimizer__name="adamw_8bit", optimizer__learning_rate="2.0e-04", optimizer__lr_scheduler_type="cosine",
            optimizer__warmup_steps="10", memory__gradient_checkpointing="true", output_dir="./outputs/qlora-out")
        for word in ("axolotl", "2 x 4 = 8", "deepspeed", "some_new_key", "special_tokens", "evals_per_epoch", "sample_packing", "paged"):
            self.assertIn(word, said)
        self.assertNotIn("model_type", said)

    def test_axolotl_without_an_adapter_trains_all(self):
        values, said = self.imported("full.yaml", "base_model: m\nmicro_batch_size: 1\nlora_r: 8\n"
                                     "datasets:\n  - {path: a.jsonl, type: {field_instruction: q, field_output: a, "
                                     "format: 'Q: {instruction} A:'}}\n")
        self.assertFalse([key for key in values if key.startswith("lora")])
        self.assertIn("lora_r", said)
        self.assert_values(values, data__kind="completion", data__target="a", training__num_train_epochs="1")
        self.assertIn("{q}", values["data.input"])

    def test_llama_factory(self):
        (self.scratch / "dataset_info.json").write_text(json.dumps({"identity": {"file_name": "identity.json"}}))
        values, said = self.imported("factory.yaml", LLAMA_FACTORY.format(folder=self.scratch))
        self.assert_values(
            values, model__path="meta-llama/Meta-Llama-3-8B-Instruct", model__dtype="bf16", lora__r="8", lora__target_modules="all-linear",
            data__train=f"[{self.scratch / 'identity.json'}]", data__max_length="2048", data__max_samples="1000", data__eval="0.1",
            training__batch_size="1", training__effective_batch_size="8", training__eval_strategy="steps", training__eval_steps="500",
            optimizer__lr_scheduler_type="cosine", optimizer__warmup_ratio="0.1", save__steps="500", overwrite_output_dir="true")
        self.assertEqual(float(values["lora.lora_alpha"]), 16)
        for word in ("LLaMA-Factory", "orders", "template", "1 x 8 = 8"):
            self.assertIn(word, said)

    def test_preferences_of_axolotl(self):
        values, said = self.imported("dpo.yaml", "base_model: m\nadapter: lora\nrl: dpo\nrl_beta: 0.2\nmicro_batch_size: 1\n"
                                     "datasets:\n  - {path: pairs.jsonl, type: chatml.intel}\n")
        self.assert_values(values, objective__name="dpo", data__kind="preference", data__train="[pairs.jsonl]")
        self.assertEqual(float(values["objective.beta"]), 0.2)
        self.assertNotIn("chatml.intel", said)
        values, said = self.imported("grpo.yaml", "base_model: m\nadapter: lora\nrl: grpo\n")
        self.assertNotIn("objective.name", values)
        self.assertIn("rl: grpo", said)

    def test_preferences_of_llama_factory(self):
        text = f"model_name_or_path: m\nstage: STAGE\ndataset: pairs\ndataset_dir: {self.scratch}\n"
        (self.scratch / "dataset_info.json").write_text(json.dumps({"pairs": {"file_name": "pairs.json", "ranking": True}}))
        values, said = self.imported("simpo.yaml", text.replace("STAGE", "dpo") + "pref_loss: simpo\npref_ftx: 0.5\n")
        self.assert_values(values, objective__name="simpo", data__kind="preference")
        for key, value in {"objective.beta": 0.1, "objective.gamma": 0.5, "objective.rpo_alpha": 0.5}.items():
            self.assertEqual(float(values[key]), value)
        self.assertNotIn("ranking", said)
        values, _ = self.imported("kto.yaml", text.replace("STAGE", "kto") + "kto_chosen_weight: 1.5\n")
        self.assert_values(values, objective__name="kto", data__kind="feedback")
        self.assertEqual(float(values["objective.desirable_weight"]), 1.5)

    def test_preferences_of_trl(self):
        start = "model_name_or_path: m\ndataset_name: d\nmax_length: 512\n"
        values, said = self.imported("trl_dpo.yaml", start + "beta: 0.2\nloss_type: [sigmoid, sft]\nloss_weights: [1.0, 0.5]\n"
                                     "precompute_ref_log_probs: true\nlabel_smoothing: 0.1\n")
        self.assert_values(values, objective__name="dpo", data__kind="preference", objective__reference="kept", objective__nll_over="tokens",
                           training__dropout="0")
        for key, value in {"objective.beta": 0.2, "objective.rpo_alpha": 0.5, "objective.label_smoothing": 0.1,
                           "optimizer.learning_rate": 1e-6}.items():
            self.assertEqual(float(values[key]), value, key)
        values, said = self.imported("trl_norm.yaml", start + "loss_type: [aot]\n")
        self.assertIn("loss_type: aot", said)
        values, _ = self.imported("trl_ipo.yaml", start + "loss_type: ipo\nbeta: 0.2\n")
        self.assert_values(values, objective__name="ipo")
        values, _ = self.imported("trl_kto.yaml", start + "beta: 0.2\ndesirable_weight: 1.5\n")
        self.assert_values(values, objective__name="kto", data__kind="feedback")
        self.assertEqual(float(values["objective.desirable_weight"]), 1.5)
        values, _ = self.imported("trl_simpo.yaml", start + "loss_type: simpo\nbeta: 2.0\nsimpo_gamma: 0.8\ncpo_alpha: 0\n")
        self.assert_values(values, objective__name="simpo")
        for key, value in {"objective.beta": 2, "objective.gamma": 0.8}.items():
            self.assertEqual(float(values[key]), value, key)
        values, _ = self.imported("trl_cpo.yaml", start + "cpo_alpha: 0.7\n")
        self.assert_values(values, objective__name="cpo", objective__nll_over="tokens")
        values, _ = self.imported("trl_orpo.yaml", start + "beta: 0.1\nmax_completion_length: 256\n")
        self.assert_values(values, objective__name="orpo", objective__nll_over="tokens", data__loss_on="everything")
        values, said = self.imported("trl_unnamed.yaml", start + "beta: 0.2\n")
        self.assert_values(values, objective__name="dpo")
        self.assertIn("ORPOTrainer", said)

    def test_hugging_face(self):
        values, said = self.imported("training_args.json", json.dumps(HUGGING_FACE))
        self.assert_values(
            values, model__dtype="bf16", training__batch_size="4", training__effective_batch_size="64", training__max_grad_norm="0.5",
            training__eval_steps="100", training__load_best_model_at_end="true", training__metric_for_best_model="loss",
            training__label_smoothing="0.1", optimizer__name="adamw", optimizer__weight_decay="0.01", optimizer__lr_scheduler_type="cosine",
            save__total_limit="2", seed="7", output_dir="out", memory__gradient_checkpointing="true", observe__report_to="[wandb]",
            training__neftune_noise_alpha="5")
        for word in ("fp16", "cosine_with_restarts", "logging_steps"):
            self.assertIn(word, said)
        for word in ("hub_token", "log_level", "ddp_timeout", "push_to_hub", "past_index", "data_seed", "fsdp"):
            self.assertNotIn(word, said)

    def test_torchtune(self):
        values, said = self.imported("torchtune.yaml", TORCHTUNE)
        self.assert_values(
            values, model__path="/tmp/Meta-Llama-3.1-8B-Instruct/", model__quantize="nf4", model__dtype="bf16", lora__r="8",
            lora__target_modules="[q_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]", data__train="[yahma/alpaca-cleaned]",
            data__max_length="2048", training__batch_size="2", training__effective_batch_size="16", training__num_train_epochs="1",
            training__max_grad_norm="0", optimizer__learning_rate="3.0e-04", optimizer__warmup_steps="100",
            optimizer__lr_scheduler_type="cosine", memory__gradient_checkpointing="true", output_dir="/tmp/torchtune/llama3_1_8B/qlora")
        self.assertIn("torchtune", said)

    def test_a_value_that_is_none_here_is_named_and_left_out(self):
        values, said = self.imported("odd.yaml", "per_device_train_batch_size: 2\nlearning_rate: -3\nwarmup_steps: 5\n")
        self.assertIn("learning_rate: -3", said)
        self.assert_values(values, optimizer__warmup_steps="5", optimizer__learning_rate="5.0e-05")  # what it is there without the key

    def test_a_value_of_the_wrong_kind_is_named(self):
        values, said = self.imported("kinds.yaml", "micro_batch_size: few\ngradient_accumulation_steps: 99999999999999999999\n"
                                     "datasets: 5\nadapter: [a]\n")
        for word in ("micro_batch_size: its value", "gradient_accumulation_steps: its value", "datasets", "adapter"):
            self.assertIn(word, said)
        self.assert_values(values, training__batch_size="1")

    def test_without_out_the_result_goes_to_stdout(self):
        file = self.scratch / "plain.yaml"
        file.write_text("per_device_train_batch_size: 2\n")
        result = trainer("import-config", file)
        self.assert_done(result)
        self.assertIn("batch_size: 2", result.stdout)

    def test_no_file_is_overwritten(self):
        file = self.scratch / "mine.yaml"
        file.write_text("per_device_train_batch_size: 2\n")
        self.assert_refused(trainer("import-config", file, "--out", file), 2, "is not overwritten")
        self.assertEqual(file.read_text(), "per_device_train_batch_size: 2\n")

    def test_what_is_no_configuration_is_refused(self):
        for name, text, words in (("list.yaml", "- a\n", "mapping"), ("empty.yaml", "{}\n", "no keys"), ("broken.yaml", "a: [1\n", "broken.yaml:"),
                                  ("training_args.bin", "\x80", "pickle")):
            (self.scratch / name).write_text(text)
            with self.subTest(name):
                self.assert_refused(trainer("import-config", self.scratch / name), 2, words)
        self.assert_refused(trainer("import-config", self.scratch / "none.yaml"), 4, "none.yaml")
        self.assert_refused(trainer("import-config"), 2, "FILE")


if __name__ == "__main__":
    unittest.main()
