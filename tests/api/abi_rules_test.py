#!/usr/bin/env python3
"""Tests which changes abi.py calls incompatible."""
import os, sys, unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import abi

GOLDEN = dict(line.rstrip("\n").split(": ", 1) for line in open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "abi.txt"), encoding="utf-8"))
END = int(GOLDEN["sizeof tessera_options"])

class Rules(unittest.TestCase):
    def of(self, **changes):
        """The problems after changes, each a name with "_" for the first blank; None: gone."""
        now = dict(GOLDEN)
        for what, value in changes.items():
            what = what.replace("_", " ", 1)
            if value is None: del now[what]
            else: now[what] = value
        return abi.incompatible(GOLDEN, now)

    def test_additions_are_compatible(self):
        self.assertEqual(self.of(), [])
        self.assertEqual(self.of(function_tessera_other="void (void)", symbol_tessera_other="TESSERA_1", constant_TESSERA_OTHER="77"), [])
        self.assertEqual(self.of(**{"field_tessera_options.other": f"{END}..{END + 8} int64_t", "sizeof_tessera_options": str(END + 8)}), [])

    def test_what_a_built_program_notices_is_not(self):
        for changes in ({"symbol_tessera_bind": None}, {"constant_TESSERA_F32": "9"}, {"function_tessera_close": "int (tessera_session*)"},
                        {"field_tessera_tensor.other": "32..40 int64_t", "sizeof_tessera_tensor": "40"},  # it stands in arrays
                        {"field_tessera_options.other": "20..24 int32_t"},  # padding, which an older program has not cleared
                        {"field_tessera_options.threads": "16..24 int64_t"}, {"sizeof_tessera_options": str(END - 8)}):
            self.assertTrue(self.of(**changes), changes)

if __name__ == "__main__": unittest.main()
