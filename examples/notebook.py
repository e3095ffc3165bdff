# %% [markdown]
# # A first run from Python
#
# A tiny T5 with random weights learns to turn cooking sentences into JSON, in a minute on two cores. This page is a notebook that
# was executed: `scripts/make/notebook` makes it from `examples/notebook.py`. [python.md](python.md) describes the functions.
#
# The first cell makes the rows and the model, so that nothing is downloaded. With a model of yours, put its directory or its name
# on the Hugging Face Hub in `model`, and your rows in `data`.

# %%
import subprocess
import sys

for script, *options in (("demo_data", "--out", "runs/notebook/data"),
                         ("tiny_model", "--family", "t5", "--text", "runs/notebook/data/text.txt", "--out", "runs/notebook/model")):
    subprocess.run([sys.executable, f"scripts/make/{script}", *options], check=True)

# %% [markdown]
# A configuration is a file, the name of a preset, a dict, keywords, or all of these. The keys are those of [config.md](config.md).

# %%
import trainer

settings = {"model": {"path": "runs/notebook/model"},
            "data": {"train": "runs/notebook/data/train.jsonl", "eval": "runs/notebook/data/heldout.jsonl"},
            "output_dir": "runs/notebook/output", "overwrite_output_dir": True}
trainer.data("demo_t5.yaml", settings)

# %% [markdown]
# What is learned is in colour. How much memory will it need?

# %%
trainer.plan("demo_t5.yaml", settings)

# %% [markdown]
# `train` starts the run and returns at once. Its steps come one by one; the bar and the curve change meanwhile. Interrupting the
# cell lets the run save its state and end; the same cell, without `overwrite_output_dir`, resumes it.

# %%
run = trainer.train("demo_t5.yaml", settings, max_steps=800)
for step in run:
    if step.step in (1, 200, 400, 800):
        print(f"step {step.step}: loss {step.loss:.4f}")

# %%
result = run.result()
result

# %% [markdown]
# Sentences that it has not seen:

# %%
sentences = ["Please for fifty minutes, carefully bake peas.", "Roast fish for forty minutes."]
for sentence, answer in zip(sentences, result.generate(sentences, max_new_tokens=60)):
    print(sentence, "->", answer)

# %%
trainer.eval(result, "runs/notebook/data/heldout.jsonl", generate=True, max_new_tokens=60)

# %% [markdown]
# An error is an exception with the words of the program:

# %%
try:
    trainer.train("demo_t5.yaml", settings, learning_rte=1e-3)
except trainer.ConfigError as error:
    print(error)
