"""Tests what is refused when licences are gathered (tools/scripts/licences.py), and found when they are checked (licences.py)."""

import importlib.util
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def script(path):
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), ROOT / f"{path}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gather, check = script("tools/scripts/licences"), script("tests/install/licences")


class Licences(unittest.TestCase):
    def test_what_may_be_shipped(self):
        self.assertEqual(gather.expression_of("gcc-12", "libgomp.so.1"), "GPL-3.0-or-later WITH GCC-exception-3.1")
        self.assertEqual(gather.expression_of("python3.11", "pyconfig.h"), "PSF-2.0")
        for name, part in (("jbigkit", "'jbigkit' is under GPL-2.0-or-later and is linked for libx.so"), ("nobody", "add it to LICENCES")):
            with self.assertRaisesRegex(gather.Problem, part):
                gather.expression_of(name, "libx.so")

    def test_a_file_without_owner(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "site-packages", "x.proto")
            file.parent.mkdir()
            file.touch()
            with self.assertRaisesRegex(gather.Problem, "no distribution"):
                gather.of_distribution(file)
            self.assertEqual(gather.of_debian([str(file)]), {})

    def test_what_the_check_finds(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "sboms").mkdir()
            (tree / "licenses").mkdir()
            (tree / "licenses" / "LICENSE").touch()
            (tree / "licenses" / "jbigkit.txt").write_text("nothing")
            shutil.copy(sys.executable, tree / "libjbig-92f86d0b.so.0")
            shutil.copy(sys.executable, tree / "libother.so.1")
            properties = [{"name": "tessera:text", "value": "licenses/jbigkit.txt"}, {"name": "tessera:file", "value": "libjbig.so.0"}]
            component = {"name": "jbigkit", "licenses": [{"expression": "GPL-2.0-or-later AND MIT"}], "properties": properties}
            (tree / "sboms" / "tessera.cdx.json").write_text(json.dumps({"components": [component]}))
            found = "\n".join(check.problems_of(tree))
        for part in ("jbigkit is under GPL-2.0", "jbigkit.txt lacks 'Permission", "libother.so.1 is libother.so.1, which no component"):
            self.assertIn(part, found)
        self.assertNotIn("is libjbig", found)


if __name__ == "__main__":
    unittest.main()
