"""Tests which sources tools/scripts/unity_groups.py puts into one translation unit."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "scripts"))
import unity_groups

OTHER = "namespace t {\nvoid f(int rows) { first(rows); }\n}"


class UnityGroups(unittest.TestCase):
    def clash(self, a, b):
        a, b = unity_groups.local_names(a), unity_groups.local_names(b)
        return unity_groups.clash(a, b) or unity_groups.clash(b, a)

    def test_names_of_a_file(self):
        names, used = unity_groups.local_names("""#define LIMIT 3
namespace t {
namespace {
using std::string; // struct Comment {};
struct Image : Base { int width() { return 1; } };
template <class T, class U = X<T>> [[nodiscard]] bool same(T a, U b) { return a == b; }
enum class Kind { A };
const char* text = "struct Quoted {";
} // namespace
constexpr int64_t kRows = int64_t{1} << 4;
static int count() { return LIMIT; }
void Outer::method() { int inside = other.called(free(1)); }
int exported(int x) { return x; }
} // namespace t
""")
        self.assertEqual({name: kind for name, (kind, _) in names.items()}, {
            "LIMIT": "macro", "string": "using", "Image": "type", "same": "function", "Kind": "type", "text": "value",
            "kRows": "value", "count": "function"})
        self.assertTrue(used["free"])
        self.assertNotIn("called", used)

    def test_clashes(self):
        local = "namespace t {{\nnamespace {{\n{}\n}}\n}}"
        for declaration in ("int first(int x) { return x; }", "struct rows {};", "constexpr int rows = 1;"):
            self.assertTrue(self.clash(local.format(declaration), OTHER), declaration)
            self.assertTrue(self.clash(local.format(declaration), local.format(declaration)), declaration)
        self.assertTrue(self.clash("#define rows 1\n", OTHER))
        self.assertTrue(self.clash(local.format("namespace fs = std::filesystem;"), local.format("namespace fs = other;")))

    def test_no_clash(self):
        local = "namespace t {{\nnamespace {{\n{}\n}}\n}}"
        for declaration in ("int rows(int x) { return x; }", "int second() { return 1; }"):  # a variable hides a function
            self.assertFalse(self.clash(local.format(declaration), OTHER), declaration)
        for same in ("using test::Maker;", "namespace fs = std::filesystem;"):
            self.assertFalse(self.clash(local.format(same), local.format(same)), same)
        self.assertFalse(self.clash(local.format("struct Size {};"), "int n = a.Size + a->Size + b::Size;"))

    def test_headers_of_a_file(self):
        included = unity_groups.of_headers(["cuda.h", "runtime/library/blocks.h"])  # the first is not the project's
        self.assertIn("Block", included)
        self.assertIn("DType", unity_groups.of_headers(["base/tensor.h"]))  # of base/dtype.h, which it includes
        _, used = unity_groups.read(ROOT / "runtime/library/pool.cpp")
        self.assertIn("Block", used)

    def test_groups(self):
        names = {"a": ({"x": ("type", "")}, {}), "b": ({"x": ("type", "")}, {}), "c": ({}, {}), "d": ({}, {}), "e": ({}, {})}
        self.assertEqual(unity_groups.groups(list("abcde"), 4, names.get), [["a", "c", "d"], ["b", "e"]])
        self.assertEqual(unity_groups.groups(list("cde"), 4, names.get), [["c", "d", "e"]])
        self.assertEqual(unity_groups.groups([], 4, names.get), [])


if __name__ == "__main__":
    unittest.main()
