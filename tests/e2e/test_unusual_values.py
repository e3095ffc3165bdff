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

    def test_a_type_of_llama_cpp_and_several_processes_are_explained(self):
        self.assert_refused(trainer("export", "a", "b.gguf", "--dtype", "q4_k_m"), 2, "llama-quantize")
        self.assert_refused(trainer("serve"), 2, "llama-server")


if __name__ == "__main__":
    unittest.main()
