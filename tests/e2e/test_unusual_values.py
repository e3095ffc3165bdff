"""What a run says of values that are allowed and hardly ever meant, and of evaluations that nobody asked for by name."""
import unittest

from support import EndToEnd, read_rows, trainer


class UnusualValues(EndToEnd):
    family = "qwen2"

    def test_a_run_says_when_it_evaluates_and_warns(self):
        output = self.scratch / "output"
        result = self.train("tiny_qwen.yaml", output, f"data.eval={self.data / 'heldout.jsonl'}", "max_steps=2", "eval_steps=null",
                            "learning_rate=2", "lora.r=512", "effective_batch_size=8", "batch_size=4")
        self.assertIn("after every epoch and at the end", result.stderr)
        self.assertIn("optimizer.learning_rate: 2 is far above", result.stderr)
        self.assertIn("lora.r: 512 is above the size of the matrix", result.stderr)
        self.assertTrue(any(row["kind"] == "eval" for row in read_rows(output / "metrics.jsonl")))

    def test_a_learning_rate_of_2e4_and_a_thousand_epochs_are_warned_of(self):
        result = self.train("tiny_qwen.yaml", self.scratch / "rate", "learning_rate=2e4", "max_steps=1")
        self.assertIn("optimizer.learning_rate: 20000 is far above what trains a model (1e-5 for all weights of a decoder, ",
                      result.stderr)
        # The time limit ends the run after its first steps.
        result = self.train("tiny_qwen.yaml", self.scratch / "epochs", "num_train_epochs=1000", "max_steps=-1", "max_hours=1e-4")
        self.assert_refused(result, 75, "training.num_train_epochs: 1000 times over the same data is rarely meant")

    def test_usual_values_are_no_matter_for_warnings(self):
        result = self.train("tiny_qwen.yaml", self.scratch / "usual", "max_steps=1")
        self.assert_done(result)
        for word in ("far above", "rarely meant", "above the size of the matrix"):
            self.assertNotIn(word, result.stderr)

    def test_another_batch_size_on_resume_says_how_the_update_stays(self):
        output = self.scratch / "batches"
        settings = ("effective_batch_size=null", "save.strategy=steps", "save.steps=1")
        self.assert_done(self.train("tiny_qwen.yaml", output, *settings, "batch_size=8", "max_steps=1"))
        self.assert_refused(self.train("tiny_qwen.yaml", output, *settings, "batch_size=4", "max_steps=2"), 4,
                            "8 there, 4 here", "training.effective_batch_size=8 keeps it")
        result = self.train("tiny_qwen.yaml", output, *settings, "batch_size=4", "training.effective_batch_size=8", "max_steps=2")
        self.assert_done(result)

    def test_a_type_of_llama_cpp_and_several_processes_are_explained(self):
        self.assert_refused(trainer("export", "a", "b.gguf", "--dtype", "q5_k_m"), 2, "llama-quantize")
        self.assert_refused(trainer("serve"), 2, "llama-server")


if __name__ == "__main__":
    unittest.main()
