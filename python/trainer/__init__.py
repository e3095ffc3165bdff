"""Fine-tunes T5, Llama, Qwen and other models: the commands of the program `trainer` as functions (docs/python.md).

    import trainer
    run = trainer.train(model={"path": "model"}, data={"train": "rows.jsonl"}, lora={}, output_dir="runs/first")
    for step in run:
        print(step.step, step.loss)
    print(trainer.generate(run.result(), "Bake a cake."))

The program does the work, in a process of its own; this package needs nothing but Python.
"""
from ._program import program
from ._chat import Chat
from ._commands import config, data, doctor, eval, export, generate, init, plan, runs, train
from ._errors import (ConfigError, DataError, DeviceError, DeviceFault, FormatError, InstallationError, NumericsError,
                     OutOfMemoryError, Stopped, TrainerError, TrainerWarning)
from ._loading import load, load_tokenizer
from ._results import Check, Checkup, ConfigurationFile, DataReport, Evaluation, Plan, Result, Status, Step
from ._run import Run, status, watch

__version__ = "0.1.0"

chat = Chat

__all__ = ["Chat", "Check", "Checkup", "ConfigError", "ConfigurationFile", "DataError", "DataReport", "DeviceError", "DeviceFault",
           "Evaluation", "FormatError", "InstallationError", "NumericsError", "OutOfMemoryError", "Plan", "Result", "Run", "Status",
           "Step", "Stopped", "TrainerError", "TrainerWarning", "chat", "config", "data", "doctor", "eval", "export", "generate",
           "init", "load", "load_tokenizer", "plan", "program", "runs", "status", "train", "watch"]

for _name in __all__:  # errors and results are shown under the names that they are used by
    globals()[_name].__module__ = __name__
