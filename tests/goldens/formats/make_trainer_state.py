#!/usr/bin/env python3
"""Makes trainer_state.json beside it as Transformers saves it; with a path, reads that one with Transformers instead.

    make_trainer_state.py            writes the golden
    make_trainer_state.py FILE       fails unless TrainerState reads FILE and would write the same text again
"""

import pathlib
import sys
import tempfile

from transformers.trainer_callback import TrainerState

HERE = pathlib.Path(__file__).resolve().parent

STATE = TrainerState(
    epoch=1.25, global_step=50, max_steps=200, logging_steps=10, eval_steps=25, save_steps=25, train_batch_size=4,
    num_train_epochs=5, num_input_tokens_seen=123456, total_flos=0.0, best_metric=1.0 / 3, best_global_step=25,
    best_model_checkpoint="out/grün/checkpoint-25",
    log_history=[
        {"epoch": 0.25, "grad_norm": 2.345678901234567, "learning_rate": 4.9e-05, "loss": 10.5, "step": 10},
        {"epoch": 0.5, "grad_norm": 1e-07, "learning_rate": 1e-05, "loss": 0.0001, "step": 20},
        {"epoch": 0.625, "eval_loss": 1.0 / 3, "step": 25},
    ],
    stateful_callbacks={"EarlyStoppingCallback": {
        "args": {"early_stopping_patience": 3, "early_stopping_threshold": 0.0},
        "attributes": {"early_stopping_patience_counter": 1}}})


def check(path):
    state = TrainerState.load_from_json(path)
    with tempfile.TemporaryDirectory() as folder:
        again = pathlib.Path(folder) / "again.json"
        state.save_to_json(again)
        if again.read_bytes() != path.read_bytes():
            sys.exit(f"{path}: Transformers writes it otherwise")
    print(f"{path}: step {state.global_step}, {len(state.log_history)} log rows")


if __name__ == "__main__":
    if sys.argv[1:]:
        check(pathlib.Path(sys.argv[1]))
    else:
        STATE.save_to_json(HERE / "trainer_state.json")
        check(HERE / "trainer_state.json")
