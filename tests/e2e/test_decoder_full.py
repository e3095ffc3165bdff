"""Full fine-tuning of a tiny Llama on plain text; the split of a step does not change it; runs are reproducible."""
import unittest

from support import EndToEnd, read_rows, tensors_of, write_rows

STEPS = 30


class DecoderFull(EndToEnd):
    family = "llama"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = cls.data / "text.jsonl"
        write_rows(text, [{"text": row["input"] + " " + row["target"]} for row in read_rows(cls.data / "train.jsonl")])
        settings = ("lora=null", f"data.train={text}", "data.kind=text", "data.max_length=160", f"max_steps={STEPS}",
                    "training.effective_batch_size=16", "optimizer.learning_rate=3e-3", "save.strategy=no")
        cls.outputs, cls.results = {}, {}
        for name, batch_size in (("whole", 16), ("cut", 3), ("again", 3)):
            cls.outputs[name] = cls.scratch / name
            cls.results[name] = cls.train(cls, "tiny_qwen.yaml", cls.outputs[name], *settings,
                                          f"training.batch_size={batch_size}")

    def test_loss_falls(self):
        self.assert_done(self.results["whole"])
        self.assert_loss_falls(self.outputs["whole"], STEPS, to=0.8)

    def test_the_cut_does_not_change_the_training(self):
        self.assert_done(self.results["cut"])
        whole, cut = (self.assert_loss_falls(self.outputs[name], STEPS, to=0.8) for name in ("whole", "cut"))
        self.assertNotEqual(whole[0]["micro_batch_sizes"], cut[0]["micro_batch_sizes"])
        for one, other in zip(whole, cut):
            self.assertEqual(one["supervised_tokens"], other["supervised_tokens"])
            self.assertAlmostEqual(one["loss"] / other["loss"], 1, delta=1e-3)

    def test_a_run_repeats_itself(self):
        self.assert_done(self.results["again"])
        one, other = (tensors_of(self.outputs[name] / "model.safetensors") for name in ("cut", "again"))
        self.assertEqual(one, other)


if __name__ == "__main__":
    unittest.main()
