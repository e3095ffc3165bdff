"""Training from Parquet files, as most of the hub has them: flat and nested, damaged, encrypted, without pyarrow."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, read_rows, trainer

LIBRARY = TRAINER.parent / "libtrainer_parquet.so"


def python_with_pyarrow():
    """A Python that can write Parquet; None if there is none."""
    for python in (sys.executable, *ROOT.glob(".venv/bin/python")):
        if subprocess.run([python, "-c", "import pyarrow.parquet"], capture_output=True).returncode == 0:
            return python
    return None


PYTHON = python_with_pyarrow()


@unittest.skipUnless(PYTHON and LIBRARY.exists(), "there is no pyarrow")
class Parquet(EndToEnd):
    family = "t5"

    def write(self, code, *arguments):
        """Runs Python code that writes Parquet; it sees pa, pq, json, sys."""
        head = "import json, sys\nimport pyarrow as pa, pyarrow.parquet as pq\n"
        subprocess.run([PYTHON, "-c", head + code, *map(str, arguments)], check=True)

    def arguments(self, path, *overrides):
        return ("--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}", f"data.train={path}",
                f"data.cache={self.scratch / 'cache'}", "data.eval=null", *overrides)

    def report(self, path, *overrides):
        result = trainer("data", *self.arguments(path, *overrides), "--json")
        self.assert_done(result)
        report = json.loads(result.stdout.replace(str(path), "FILE"))
        return report

    def test_a_run_is_that_of_the_same_rows(self):
        path = self.scratch / "train.parquet"
        self.write("rows = [json.loads(line) for line in open(sys.argv[1], encoding='utf-8')]\n"
                   "pq.write_table(pa.Table.from_pylist(rows), sys.argv[2], row_group_size=64, compression='snappy')\n",
                   self.data / "train.jsonl", path)
        self.assertEqual(self.report(path), self.report(self.data / "train.jsonl"))
        losses = []
        for name, data in (("rows", self.data / "train.jsonl"), ("parquet", path)):
            output = self.scratch / name
            self.assert_done(self.train("tiny_t5.yaml", output, "max_steps=3", f"data.train={data}",
                                        f"data.cache={self.scratch / 'cache'}"))
            losses.append([row["loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"])
        self.assertEqual(*losses)

    def test_prompts_and_completions_as_lists_of_messages(self):
        """TRL's conversational form; a call in one row gives all structs of the column the field."""
        rows = [{"prompt": [{"role": "user", "content": f"q{i}"}], "completion": [{"role": "assistant", "content": f"a{i}"}], "train": i != 1}
                for i in range(3)]
        rows[1]["completion"][0]["name"] = "n"
        lines, path, template = self.scratch / "pc.jsonl", self.scratch / "pc.parquet", self.scratch / "pc.jinja"
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}. {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")
        self.write("rows = [json.loads(line) for line in open(sys.argv[1], encoding='utf-8')]\n"
                   "pq.write_table(pa.Table.from_pylist(rows), sys.argv[2])\n", lines, path)
        chat = (f"data.chat_template={template}", "data.kind=chat", "data.input=null", "data.target=null")
        reports = [self.report(file, *chat) for file in (path, lines)]
        self.assertEqual(*reports)
        self.assertEqual(reports[0]["train"]["input"]["field"], "prompt, completion")
        self.assertEqual(reports[0]["train"]["unused_marks"]["fields"], ["train"])

    def test_a_folder_of_parts(self):
        folder = self.scratch / "parts"
        folder.mkdir()
        self.write("for part in range(3):\n"
                   "    rows = [{'input': f'fry {part} {i}', 'target': 'onions', 'n': i} for i in range(10)]\n"
                   "    pq.write_table(pa.Table.from_pylist(rows), f'{sys.argv[1]}/train-0000{part}.parquet')\n", folder)
        report = self.report(folder)
        self.assertEqual((report["train"]["rows"], report["train"]["kind"]), (30, "seq2seq"))

    def test_memory_stays_small_with_one_large_row_group(self):
        path = self.scratch / "large.parquet"
        self.write("import os\n"
                   "rows = [{'input': os.urandom(15000).hex(), 'target': 'x', 'n': i} for i in range(15000)]\n"
                   "pq.write_table(pa.Table.from_pylist(rows), sys.argv[1], row_group_size=15000, compression='snappy')\n", path)
        small, large = self.most_anonymous(self.data / "train.jsonl"), self.most_anonymous(path)
        self.assertLess(large - small, 225 << 20, "half of the row group")

    def most_anonymous(self, data):
        """The most memory that `trainer data` held besides mapped files, whose pages the system takes back."""
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
        command = [TRAINER, "data", *map(str, self.arguments(data, "data.max_samples=10", "data.input=input", "data.target=target"))]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        most = 0
        while process.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            except OSError:  # it has just ended
                break
            most = max([most, *(int(kilobytes) << 10 for kilobytes in re.findall(r"RssAnon:\s+(\d+) kB", status))])
            time.sleep(0.002)
        self.assertEqual(process.wait(), 0)
        return most

    def test_encrypted_and_nested_columns_are_refused_by_name(self):
        path = self.scratch / "nested.parquet"
        self.write("rows = [{'input': [{'a': 1}], 'target': 'x', 'image': {'bytes': b'x', 'path': 'p'}}]\n"
                   "pq.write_table(pa.Table.from_pylist(rows), sys.argv[1])\n", path)
        self.assert_refused(trainer("data", *self.arguments(path)), 3, f"{path}:1: ", "field \"input\" is an array, not text")
        self.assert_refused(trainer("data", *self.arguments(path, "data.input=image", "data.target=target")), 3,
                            f"{path}: column \"image\" cannot be read: bytes: bytes (binary), not text")
        encrypted = self.scratch / "encrypted.parquet"
        self.write("import base64, pyarrow.parquet.encryption as pe\n"
                   "class Keys(pe.KmsClient):\n"
                   "    def __init__(self, config): super().__init__()\n"
                   "    def wrap_key(self, key, name): return base64.b64encode(key)\n"
                   "    def unwrap_key(self, key, name): return base64.b64decode(key)\n"
                   "factory = pe.CryptoFactory(Keys)\n"
                   "properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), pe.EncryptionConfiguration(\n"
                   "    footer_key='f', column_keys={'c': ['input']}))\n"
                   "table = pa.table({'input': ['a'], 'target': ['b']})\n"
                   "with pq.ParquetWriter(sys.argv[1], table.schema, encryption_properties=properties) as file:\n"
                   "    file.write_table(table)\n", encrypted)
        self.assert_refused(trainer("data", *self.arguments(encrypted)), 3, encrypted, "is encrypted")

    def test_columns_of_one_name_are_refused_where_they_are_read(self):
        path = self.scratch / "twice.parquet"
        self.write("names = ['input', 'target', 'input', 'note', 'note']\n"
                   "columns = [pa.array([word]) for word in ('a', 'b', 'c', 'd', 'e')]\n"
                   "pq.write_table(pa.Table.from_arrays(columns, names), sys.argv[1])\n", path)
        self.assert_refused(trainer("data", *self.arguments(path)), 3,
                            f"{path}: has 2 columns with the name \"input\"; rename or remove one")
        asked = ("data.input=note", "data.target=target")
        self.assert_refused(trainer("data", *self.arguments(path, *asked)), 3, f"{path}: has 2 columns with the name \"note\"")
        fields = self.scratch / "fields.parquet"
        self.write("inner = pa.StructArray.from_arrays([pa.array(['a']), pa.array(['b'])], ['x', 'x'])\n"
                   "table = pa.Table.from_arrays([pa.array(['c']), pa.array(['d']), inner], ['input', 'target', 'extra'])\n"
                   "pq.write_table(table, sys.argv[1])\n", fields)
        self.assert_refused(trainer("data", *self.arguments(fields, "data.input=extra", "data.target=target")), 3,
                            f"{fields}: column \"extra\" cannot be read: has 2 fields with the name \"x\"")
        # Where no row is built from them, they are of no importance.
        self.write("columns = [pa.array([word]) for word in ('a', 'b', 'd', 'e')]\n"
                   "pq.write_table(pa.Table.from_arrays(columns, ['input', 'target', 'note', 'note']), sys.argv[1])\n", path)
        self.assert_done(trainer("data", *self.arguments(path, "data.input=input", "data.target=target")))

    def test_without_pyarrow_the_command_is_said(self):
        path = self.scratch / "any.parquet"
        path.write_bytes(b"PAR1")
        nothing = self.scratch / "nothing"
        nothing.mkdir()
        environment = dict(os.environ, PYARROW_DIR=str(nothing))
        def refused():
            return subprocess.run([TRAINER, "data", *map(str, self.arguments(path))], text=True, capture_output=True, env=environment)
        self.assert_refused(refused(), 3, path, "there is no pyarrow; run: ", "-m pip install 'pyarrow==")
        (nothing / "libarrow.so.1900").touch()
        self.assert_refused(refused(), 3, f"{nothing} is 19.0; run: ")


if __name__ == "__main__":
    unittest.main()
