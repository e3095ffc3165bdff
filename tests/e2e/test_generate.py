"""Answers on the command line: ways of choosing tokens, batches, stop strings, conversations."""
import json
import os
import pty
import subprocess
import unittest

from support import TRAINER, EndToEnd, read_rows, trainer, write_rows

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


class Generate(EndToEnd):
    family = "qwen2"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.untrained = cls.model
        cls.train(cls, "tiny_qwen.yaml", cls.scratch / "trained", "lora=null", "max_steps=30",
                  "optimizer.learning_rate=5e-3", "data.max_length=160").check_returncode()
        cls.model = cls.scratch / "trained"  # its answers are no longer a single letter
        (cls.model / "chat_template.jinja").write_text(TEMPLATE)
        cls.rows = cls.data / "heldout.jsonl"
        cls.prompts = [row["input"] for row in read_rows(cls.rows)]

    def generate(self, *arguments, text=None):
        return trainer("generate", *arguments, "--device", "cpu", "--dtype", "fp32", "--max-new-tokens", 12, text=text)

    def answers(self, *arguments):
        result = self.generate(self.model, "--input-file", self.rows, *arguments)
        self.assert_done(result)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([row["input"] for row in rows], self.prompts)
        return [row.get("predictions") or row["prediction"] for row in rows]

    def test_the_batch_size_changes_nothing(self):
        for choice in ([], ["--sample", "--seed", 3], ["--num-beams", 3, "--num-return-sequences", 2]):
            with self.subTest(choice):
                self.assertEqual(self.answers("--batch-size", 1, *choice), self.answers("--batch-size", 7, *choice))

    def test_answers_of_very_different_lengths_take_each_others_places(self):
        rows = self.scratch / "uneven.jsonl"
        whole = [("Fry onions. " * 12)[:1 + 23 * i % 110] for i in range(40)]
        for choice in ([], ["--sample", "--seed", 3], ["--num-beams", 3]):
            for dtype in ("fp32", "bf16"):
                # MKL may round longer prompts differently with others, which in bf16 is soon another token.
                prompts = whole if dtype == "fp32" else [prompt[:24] for prompt in whole]
                write_rows(rows, [{"input": prompt} for prompt in prompts])
                with self.subTest(choice=choice, dtype=dtype):
                    answers = []
                    for size in (1, 3, 64):
                        result = trainer("generate", self.model, "--input-file", rows, "--batch-size", size, *choice,
                                         "--device", "cpu", "--dtype", dtype, "--max-new-tokens", 60, "--stop", "e",
                                         "--repetition-penalty", 1.2)
                        self.assert_done(result)
                        found = [json.loads(line) for line in result.stdout.splitlines()]
                        self.assertEqual([row["input"] for row in found], prompts)
                        answers.append([row["prediction"] for row in found])
                    self.assertGreater(len({len(answer) for answer in answers[0]}), 2)
                    self.assertEqual(answers[0], answers[1])
                    self.assertEqual(answers[0], answers[2])

    def test_a_lack_of_memory_makes_batches_smaller_and_changes_nothing(self):
        arguments = ["--num-beams", 4, "--batch-size", 64]
        ample = self.answers(*arguments)
        recovered = 0
        for limit in range(100, 2000, 200):
            result = self.generate(self.model, "--input-file", self.rows, *arguments, "--memory-limit", f"{limit}kB")
            if result.returncode == 5:
                self.assertIn("--memory-limit", result.stderr)
                continue
            self.assert_done(result)
            self.assertEqual([json.loads(line)["prediction"] for line in result.stdout.splitlines()], ample)
            recovered += "at once" in result.stderr
            if "at once" not in result.stderr:
                break
        self.assertGreater(recovered, 0)

    def test_sampling_follows_the_seed(self):
        first, again, other = (self.answers("--temperature", 1.5, "--seed", seed) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertNotEqual(first, self.answers())
        self.assertEqual(self.answers("--sample", "--top-k", 1), self.answers("--greedy"))

    def test_temperature_0_is_greedy(self):
        greedy = self.answers("--greedy")
        self.assertEqual(self.answers("--temperature", 0), greedy)
        self.assertEqual(self.answers("--temperature", 0, "--top-p", 0.9), greedy)

    def test_a_prompt_that_bypasses_the_chat_template_is_told(self):
        self.assertIn("--chat", self.generate(self.model, "Fry onions.").stderr)
        self.assertNotIn("--chat", self.generate(self.model, "--chat", "Fry onions.").stderr)

    def test_rows_go_to_a_file(self):
        output = self.scratch / "answers.jsonl"
        self.assert_done(self.generate("--model", self.model, "--input", self.rows, "--output", output))
        self.assertEqual([row["prediction"] for row in read_rows(output)], self.answers())

    def test_prompts_follow_the_model(self):
        result = self.generate(self.model, self.prompts[0], self.prompts[1])
        self.assert_done(result)
        self.assertEqual(result.stdout, "".join(answer + "\n" for answer in self.answers()[:2]))

    def test_a_stop_string_ends_the_answer_and_is_cut_off(self):
        whole = self.answers()[0]
        stop = whole[2:5]
        result = self.generate(self.model, self.prompts[0], "--stop", "never there", "--stop", stop)
        self.assert_done(result)
        self.assertEqual(result.stdout, whole[:whole.index(stop)] + "\n")

    def test_the_models_stop_strings_end_answers_too(self):
        answer = self.answers()[0]
        stop = answer[3:5]
        file = self.model / "generation_config.json"
        kept = file.read_text()
        try:
            file.write_text(json.dumps(dict(json.loads(kept), stop_strings=[stop])))
            self.assertEqual(self.answers()[0], answer[:answer.index(stop)])
            self.assertEqual(self.answers("--stop", answer[5:7])[0], answer[:answer.index(answer[5:7])])
            file.write_text(json.dumps(dict(json.loads(kept), max_time=1.0)))
            self.assert_refused(self.generate(self.model, "Fry onions."), 4, "generation_config.json", "max_time")
        finally:
            file.write_text(kept)

    def test_messages_are_rendered_by_the_template(self):
        rows = self.scratch / "conversations.jsonl"
        user, system = {"role": "user", "content": "Fry onions."}, {"role": "system", "content": "Be brief."}
        write_rows(rows, [{"messages": [user]}, {"messages": [system, user, {"role": "assistant", "content": "{}"}]}])
        result = self.generate(self.model, "--input-file", rows)
        self.assert_done(result)
        answers = [json.loads(line)["prediction"] + "\n" for line in result.stdout.splitlines()]
        chat, with_system = (self.generate(self.model, "--chat", *more, "Fry onions.")
                             for more in ([], ["--system", "Be brief."]))
        rendered = self.generate(self.model, "<|im_start|>user\nFry onions.<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual([chat.stdout, with_system.stdout], answers)
        self.assertEqual(chat.stdout, rendered.stdout)

    def test_a_conversation_goes_on_from_line_to_line(self):
        talk = self.generate(self.model, "--chat", text="Fry onions.\nAgain.\n/exit\nMore.\n")
        self.assert_done(talk)
        first = self.generate(self.model, "--chat", "Fry onions.").stdout
        messages = [{"role": "user", "content": "Fry onions."}, {"role": "assistant", "content": first[:-1]},
                    {"role": "user", "content": "Again."}]
        second = self.generate(self.model, "--input-file", "-", text=json.dumps({"messages": messages}) + "\n")
        self.assertEqual(talk.stdout, first + json.loads(second.stdout)["prediction"] + "\n")

    def test_a_terminal_is_prompted(self):
        ours, theirs = pty.openpty()
        arguments = ["generate", self.model, "--chat", "--device", "cpu", "--max-new-tokens", "4"]
        with subprocess.Popen([TRAINER, *arguments], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as program:
            os.close(theirs)
            os.write(ours, b"Fry onions.\n/exit\n")
            shown = b""
            while True:
                try:
                    shown += os.read(ours, 4096)
                except OSError:  # the other end is closed
                    break
            self.assertEqual(program.wait(timeout=60), 0, program.stderr.read())
        os.close(ours)
        self.assertEqual(shown.count(b"> "), 2, shown)

    def test_a_terminal_shows_what_is_learned_of_a_conversation(self):
        messages = [{"role": "user", "content": "Fry\x1b[31m onions."}, {"role": "assistant", "content": "Now."}]
        row = json.dumps({"messages": messages}) + "\n"
        command = [TRAINER, "tokenize", "--chat", "--model", self.model, "--input", "-"]
        piped = subprocess.run(command, input=row, capture_output=True, text=True, check=True)
        chat = json.loads(piped.stdout)
        for environment, mark in (({}, "\x1b[32m{}\x1b[0m"), ({"NO_COLOR": "1"}, "[[{}]]")):
            ours, theirs = pty.openpty()
            subprocess.run(command, input=row, stdout=theirs, text=True, check=True,
                           env={key: value for key, value in os.environ.items() if key != "NO_COLOR"} | environment)
            os.close(theirs)
            shown = os.read(ours, 65536).decode()
            os.close(ours)
            self.assertIn(f"stdin:1: {len(chat['ids'])} tokens, {sum(chat['mask'])} of them supervised", shown)
            self.assertIn("    <|im_start|>user\r\n    Fry\\x1b[31m onions.<|im_end|>\r\n", shown)
            self.assertIn("    <|im_start|>assistant\r\n    " + mark.format("Now.<|im_end|>"), shown)
            for token, learned in zip(chat["ids"], chat["mask"]):
                self.assertIn(" " + (mark.format(token) if learned else str(token)), shown)

    def test_what_does_not_go_together_is_a_usage_error(self):
        for arguments, words in ((["--greedy", "--top-p", "0.5"], ["--greedy"]), (["--top-p", "1.5"], ["--top-p"]),
                                 (["--num-return-sequences", "2"], ["num_return_sequences"]),
                                 (["--temperature", "0", "--sample"], ["--temperature"]),
                                 (["--temperature", "-1"], ["--temperature"]), (["--stop", ""], ["--stop"]),
                                 (["--temperature", "nan"], ["--temperature", "finite"]), (["--top-p", "nan"], ["--top-p"]),
                                 (["--num-beams", "2", "--length-penalty", "-inf"], ["--length-penalty"]),
                                 (["--num-beams", "2", "--num-return-sequences", "3"], ["num_return_sequences"])):
            with self.subTest(arguments):
                self.assert_refused(self.generate(self.model, "Fry onions.", *arguments), 2, *words)
        self.assert_refused(trainer("generate"), 2, "MODEL")
        self.assert_refused(trainer("generate", self.model), 2, "--input-file")

    def test_a_missing_template_says_what_to_do(self):
        config = json.loads((self.untrained / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        (self.untrained / "tokenizer_config.json").write_text(json.dumps(config))
        self.assert_refused(self.generate(self.untrained, "--chat", "Hello"), 4, "chat_template.jinja", "--chat")

    def test_a_prompt_beyond_the_positions_is_warned_of(self):
        result = self.generate(self.model, "word " * 2500)
        self.assert_done(result)
        self.assertIn("max_position_embeddings", result.stderr)


if __name__ == "__main__":
    unittest.main()
