"""`trainer generate`: answers from a list, scores of beams, a forced first token, and files that are resumed."""
import json
import subprocess
import unittest

from support import EndToEnd, python_with, read_rows, trainer, write_rows

REFERENCE = """
import json, sys, torch, transformers
directory, prompts, choices = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
model = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory, dtype=torch.float32).eval()
tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
ids = [tokenizer(choice).input_ids for choice in choices]

def allowed(batch, sequence):
    begun = sequence.tolist()[1:]
    return sorted({choice[len(begun)] for choice in ids if choice[:len(begun)] == begun and len(choice) > len(begun)}) or [1]

for prompt in prompts:
    inputs = tokenizer(prompt, return_tensors="pt")
    options = dict(num_beams=4, num_return_sequences=3, output_scores=True, return_dict_in_generate=True, max_new_tokens=30)
    with torch.no_grad():
        free = model.generate(**inputs, **options)
        chosen = model.generate(**inputs, **options, prefix_allowed_tokens_fn=allowed)
    decode = lambda made: [tokenizer.decode(row, skip_special_tokens=True) for row in made.sequences]
    print(json.dumps({"free": decode(free), "free_scores": free.sequences_scores.tolist(),
                      "chosen": decode(chosen), "chosen_scores": chosen.sequences_scores.tolist()}))
"""
CHOICES = ["bake", "boil", "bake bread", "fry", "fry onions", "cook slowly", "eat"]


class Choices(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = cls.scratch / "rows.jsonl"
        cls.prompts = [row["input"] for row in read_rows(cls.data / "heldout.jsonl")[:6]]
        write_rows(cls.rows, [{"input": prompt, "number": i} for i, prompt in enumerate(cls.prompts)])
        cls.choices = cls.scratch / "choices.txt"
        cls.choices.write_text("\n".join(CHOICES) + "\n\n")

    def generate(self, *options):
        return trainer("generate", self.model, "--input-file", self.rows, "--device", "cpu", "--dtype", "fp32", *options)

    def answers(self, *options):
        done = self.generate(*options)
        self.assert_done(done)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_answers_and_scores_are_those_of_transformers(self):
        python = python_with("transformers")
        if python is None:
            self.skipTest("needs transformers")
        done = subprocess.run([python, "-c", REFERENCE, self.model, json.dumps(self.prompts), json.dumps(CHOICES)],
                              capture_output=True, text=True, check=True)
        expected = [json.loads(line) for line in done.stdout.splitlines()]
        beams = ("--num-beams", 4, "--num-return-sequences", 3, "--scores")
        free = self.answers(*beams, "--max-new-tokens", 30)
        chosen = self.answers(*beams, "--choices", self.choices)
        for row, with_choices, reference in zip(free, chosen, expected, strict=True):
            self.assertEqual(row["predictions"], reference["free"])
            self.assertEqual(with_choices["predictions"], reference["chosen"])
            for ours, theirs in ((row["scores"], reference["free_scores"]), (with_choices["scores"], reference["chosen_scores"])):
                for a, b in zip(ours, theirs, strict=True):
                    self.assertAlmostEqual(a, b, delta=1e-4 * max(1, abs(b)))

    def test_beams_of_the_generation_config_have_scores(self):
        file = self.model / "generation_config.json"
        before = file.read_text()
        self.addCleanup(file.write_text, before)
        expected = self.answers("--num-beams", 2, "--scores", "--max-new-tokens", 5)
        file.write_text(json.dumps(json.loads(before) | {"num_beams": 2}))
        self.assertEqual(self.answers("--scores", "--max-new-tokens", 5), expected)
        self.assert_refused(self.generate("--scores", "--num-beams", 1), 2, "--num-beams")

    def test_every_way_answers_with_a_choice(self):
        for options in ((), ("--num-beams", 3), ("--sample", "--temperature", 5), ("--num-beams", 6, "--num-return-sequences", 6)):
            for row in self.answers("--choices", self.choices, *options):
                answers = row.get("predictions") or [row["prediction"]]
                self.assertLessEqual(set(answers), set(CHOICES), options)
                self.assertEqual(len(set(answers)), len(answers))

    def test_more_beams_than_choices_end(self):
        self.choices_of_two = self.scratch / "two.txt"
        self.choices_of_two.write_text("bake\nfry\n")
        for row in self.answers("--choices", self.choices_of_two, "--num-beams", 5, "--num-return-sequences", 2):
            self.assertEqual(sorted(row["predictions"]), ["bake", "fry"])
        self.assert_refused(self.generate("--choices", self.choices_of_two, "--num-beams", 5, "--num-return-sequences", 3), 2, "2 choices")

    def test_a_forced_first_token_begins_every_answer(self):
        for row in self.answers("--forced-first", "<extra_id_7>", "--max-new-tokens", 5, "--num-beams", 2):
            self.assertIsInstance(row["prediction"], str)  # a sentinel is special, and not in the text
        self.assert_refused(self.generate("--forced-first", "no such token"), 2, "no such token")

    def test_a_resumed_file_is_that_of_an_undisturbed_run(self):
        whole, broken = self.scratch / "whole.jsonl", self.scratch / "broken.jsonl"
        sampled = ("--sample", "--temperature", 2, "--max-new-tokens", 6, "--output-file")
        self.assert_done(self.generate(*sampled, whole))
        lines = whole.read_text().splitlines(keepends=True)
        broken.write_text("".join(lines[:2]) + lines[2][:9])  # killed while it wrote the third
        resumed = self.generate(*sampled, broken, "--resume")
        self.assert_done(resumed)
        self.assertIn("2 of 6 rows are answered already", resumed.stderr)
        self.assertEqual(broken.read_text(), whole.read_text())
        self.assert_done(self.generate(*sampled, broken, "--resume"))  # nothing is left
        self.assertEqual(broken.read_text(), whole.read_text())
        self.assert_done(self.generate(*sampled, self.scratch / "new.jsonl", "--resume"))
        self.assertEqual((self.scratch / "new.jsonl").read_text(), whole.read_text())

    def test_mistakes(self):
        other = self.scratch / "other.jsonl"
        write_rows(other, [{"input": "another", "prediction": "x"}])
        before = other.read_text()
        self.assert_refused(self.generate("--output-file", other, "--resume"), 3, f"{other}:1", "--resume")
        self.assertEqual(other.read_text(), before)
        self.assert_refused(self.generate("--resume"), 2, "--output-file")
        self.assert_refused(self.generate("--scores"), 2, "--num-beams")
        empty = self.scratch / "empty.txt"
        empty.write_text("\n")
        self.assert_refused(self.generate("--choices", empty), 3, empty)
        self.assert_refused(self.generate("--choices", self.scratch / "none.txt"), 4, "none.txt")
        self.assert_refused(self.generate("--choices", self.choices, "--max-new-tokens", 1), 2, "--max-new-tokens")
        for mistake in (("--choices", empty), ("--forced-first", "none"), ("--base", self.scratch / "none")):
            self.assertNotEqual(self.generate("--output-file", other, *mistake).returncode, 0)
            self.assertEqual(other.read_text(), before)  # the answers that are there are kept


if __name__ == "__main__":
    unittest.main()
