"""The API reference: one page with every public header."""
import html
import pathlib
import re
import tempfile
import unittest

from support import ROOT, run_script


class ApiReference(unittest.TestCase):
    def test_the_page_has_what_the_headers_offer_and_no_more(self):
        with tempfile.TemporaryDirectory() as scratch:
            out = pathlib.Path(scratch) / "api.html"
            run_script("make/api_reference", "--out", out)
            page = out.read_text(encoding="utf-8")
        text = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))
        entries = {name.split("::")[-1] for name in re.findall(r'<span id="([^"]+)">', page)}
        missing = []
        for header in (ROOT / "cmake" / "public_headers.txt").read_text(encoding="utf-8").split():
            path = ROOT / "include" / header
            types = re.findall(r"^(?:class|struct|enum class) (\w+)[^;\w]", path.read_text(encoding="utf-8"), re.M)
            missing += [f"{header}: {name}" for name in types if name not in entries]
            missing += [] if f'#include "{header}"' in text else [header]
        self.assertEqual(missing, [])
        targets = set(re.findall(r'id="([^"]+)"', page))
        self.assertEqual([link for link in re.findall(r'href="#([^"]+)"', page) if link not in targets], [])
        for shown in ("StepResult step(const EffectiveBatch& batch, const StepCuts* replay = nullptr);",
                      "log::warning", "constexpr const char* kVersion",
                      "The loss is the sum of token losses / the normaliser of the whole effective batch",
                      "int64_t effective_batch_size() const;"):
            self.assertTrue(shown in text, shown)
        for hidden in ("private:", "optimizer_;", "{ return ", "\n  return "):
            self.assertFalse(hidden in re.sub(r"//.*", "", text), hidden)


if __name__ == "__main__":
    unittest.main()
