"""The page of `tessera explain -o report.html`, driven in headless Chromium: page_test.py TESSERA MODELS"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import onnx
from onnx import TensorProto, helper

from chromium import Chromium

TESSERA, MODELS = sys.argv[1:3]
SHAPES = ["--shape", "s10=1", "--shape", "s12=32", "--shape", "s86=1"]
HOSTILE = "</script><script>window.ran=1</script><img src=x onerror=window.ran=1>"


def explain(model, file, *options):
    subprocess.run([TESSERA, "explain", model, "--format", "html", "-o", file, *options], check=True, stderr=subprocess.DEVNULL)


def hostile_model(file):
    """Every name that a model may choose holds markup."""
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [HOSTILE + "dim", 8])
    nodes = [helper.make_node("Relu", [HOSTILE + "in"], [HOSTILE + "a"], name=HOSTILE + "relu"),
             helper.make_node("Softmax", [HOSTILE + "a"], [HOSTILE + "b"], name=HOSTILE + "softmax"),
             helper.make_node("CumSum", [HOSTILE + "b", "axis"], [HOSTILE + "out"], name=HOSTILE + "sum")]
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    graph = helper.make_graph(nodes, HOSTILE + "graph", [info(HOSTILE + "in")], [info(HOSTILE + "out")], [axis])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name=HOSTILE)
    model.ir_version = 8
    onnx.save(model, file)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        explain(f"{MODELS}/bert.dynamo.f32.onnx", cls.path / "bert.html", *SHAPES)
        cls.browser = Chromium().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.folder.cleanup()

    def open(self, file="bert.html", width=1280, **options):
        page = self.browser.open(self.path / file, width, **options)
        self.addCleanup(page.close)
        self.addCleanup(lambda: self.assertEqual(page.errors(), []))
        return page

    def report(self, page):
        return json.loads(page.value("document.getElementById('report').textContent"))

    def screen(self, page, node):
        """The position of a graph's node on the screen, after the graph moved to it."""
        return page.value(f"(() => {{ const n = view.scene.tree.nodes.get({json.dumps(node)}), r = canvas.getBoundingClientRect();"
                          " return [r.left + view.x + (n.ax + n.w / 2) * view.scale, r.top + view.y + (n.ay + Math.min(n.h, 44) / 2) * view.scale]; })()")

    def test_opens_at_both_widths_and_themes(self):
        for width in (1280, 390):
            for dark in (False, True):
                page = self.open(width=width, dark=dark)
                drawn = page.value("performance.getEntriesByName('graph drawn')[0].startTime")
                loaded = page.value("performance.timing.loadEventEnd - performance.timing.navigationStart")
                print(f"bert at {width} pixels, {'dark' if dark else 'light'}: load event after {loaded} ms, graph drawn after {drawn:.0f} ms")
                self.assertEqual(page.value("document.documentElement.dataset.theme"), "dark" if dark else "light")
                self.assertLessEqual(page.value("document.documentElement.scrollWidth"), width)
                self.assertGreater(page.value("view.drawn"), 5)
                # Something other than the background is on the canvas.
                self.assertGreater(page.value("new Set(new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"), 20)
                page.value("choose(operators[100].id)")
                page.frame()
                self.assertLessEqual(page.value("document.documentElement.scrollWidth"), width)

    def test_says_what_the_report_says(self):
        page = self.open()
        report = self.report(page)
        cards = page.value("document.getElementById('cards').textContent")
        for key in ("operators", "kernels", "library_calls", "launches"):
            self.assertIn(str(report["totals"][key]), cards)
        # Folded, each step is in one row or stands behind one; unfolded, each has a row of its own.
        count = "document.querySelectorAll('#steps tbody tr').length"
        equal = {s["class"] for s in report["steps"]}
        self.assertEqual(page.value(count), len(equal))
        self.assertLess(len(equal), len(report["steps"]))
        page.value("document.querySelectorAll('#steps .fold').forEach(b => b.click())")
        for _ in range(len(equal)):
            page.value("[...document.querySelectorAll('#steps .fold[aria-expanded=false]')].slice(0, 1).forEach(b => b.click())")
        rows = set(page.value("[...document.querySelectorAll('#steps tbody tr')].map(r => r.dataset.id)"))
        self.assertEqual(rows, {s["id"] for s in report["steps"]})
        # Every buffer of the arena is drawn.
        buffers = [b for b in report["memory"]["buffers"] if b.get("offset") is not None and b["bytes"]]
        self.assertEqual(page.value("document.querySelectorAll('#memory rect').length"), len(buffers))
        for code in report["codes"]:
            self.assertIn(code["code"], page.value("document.getElementById('codes').textContent"))

    def test_each_step_and_operator_is_in_the_graph(self):
        page = self.open()
        report = self.report(page)
        page.value("layers.forEach(unfold); openAll()")
        shown = set(page.value("view.scene.boxes.map(n => n.id)"))
        for s in report["steps"]:
            self.assertIn("step:" + s["id"], shown)
            for o in s["operators"]:
                self.assertIn(f"step:{s['id']}/{o}", shown)
        # No two boxes of one cluster overlap, and each lies in its cluster.
        self.assertEqual(page.value("""view.scene.boxes.filter(n => n.parent.kind !== 'root' && (n.ax < n.parent.ax || n.ay < n.parent.ay ||
            n.ax + n.w > n.parent.ax + n.parent.w + 1 || n.ay + n.h > n.parent.ay + n.parent.h + 1)).length"""), 0)
        self.assertEqual(page.value("""view.scene.boxes.filter(a => a.parent.children.some(b => a !== b &&
            a.ax < b.ax + b.w && b.ax < a.ax + a.w && a.ay < b.ay + b.h && b.ay < a.ay + a.h)).length"""), 0)
        page.value("closeAll()")
        self.assertLess(page.value("view.scene.boxes.length"), len(report["steps"]))

    def test_search_goes_from_hit_to_hit(self):
        page = self.open()
        operator = next(o for o in self.report(page)["operators"] if o["op"] == "Softmax" and o["steps"])
        page.key("/")
        page.type(operator["name"])
        self.assertIn("hit", page.value("document.getElementById('hits').textContent"))
        page.key("Enter")
        self.assertEqual(page.value("chosen.id"), operator["id"])
        self.assertIn(operator["name"], page.value("document.getElementById('details').textContent"))
        page.frame()
        x, y = self.screen(page, page.value("chosenNode().id"))
        self.assertEqual(page.value(f"nodeAt({x} - canvas.getBoundingClientRect().left, {y} - canvas.getBoundingClientRect().top).id"), page.value("chosenNode().id"))
        page.value("search('softmax')")
        page.key("Enter")
        first = page.value("chosen.id")
        page.key("Enter")
        self.assertNotEqual(page.value("chosen.id"), first)

    def test_click_opens_details_and_clusters(self):
        page = self.open()
        report = self.report(page)
        step = next(s for s in report["steps"] if s["kind"] == "kernel" and len(s["operators"]) > 1)
        page.value(f"choose({json.dumps(step['id'])}); choose(null, false)")
        page.frame()
        x, y = self.screen(page, "step:" + step["id"])
        page.click(x, y)
        self.assertEqual(page.value("chosen.id"), step["id"])
        text = page.value("document.getElementById('details').textContent")
        for part in (step["id"], "Price", "Operators", "predicted", step["schedule"]["kind"], *step["operators"][:3]):
            self.assertIn(part, text)
        edge = next(e for e in report["edges"] if step["id"] in e["producer_steps"] and not e["fused"])
        self.assertIn(edge["code"], text)
        self.assertIn(edge["detail"], text)
        page.click(x, y, count=2)
        self.assertTrue(page.value(f"view.scene.tree.nodes.get({json.dumps('step:' + step['id'])}).open"))
        before = page.value("[view.x, view.y]")
        left, top = page.value("[canvas.getBoundingClientRect().left, canvas.getBoundingClientRect().top]")
        page.drag(left + 20, top + 20, left + 90, top + 60)
        moved = page.value("[view.x, view.y]")
        self.assertEqual([round(a - b) for a, b in zip(moved, before)], [70, 40])
        scale = page.value("view.scale")
        page.wheel(left + 100, top + 100, -200)
        page.wait(f"view.scale > {scale}")

    def test_a_row_unfolds_and_a_head_sorts(self):
        page = self.open()
        ids = "[...document.querySelectorAll('#steps tbody tr')].map(r => r.dataset.id)"
        rows = page.value(ids)
        page.click_on("#steps th:nth-child(5) button") # predicted
        by_time = page.value(ids)
        self.assertNotEqual(by_time, rows)
        self.assertEqual(sorted(by_time), sorted(rows))
        self.assertEqual(page.value("document.querySelector('#steps th:nth-child(5)').getAttribute('aria-sort')"), "descending")
        page.click_on("#steps th:nth-child(5) button")
        self.assertEqual(page.value("document.querySelector('#steps th:nth-child(5)').getAttribute('aria-sort')"), "ascending")
        report = self.report(page)
        of_class = {s["id"]: [t["call_us"] for t in report["steps"] if t["class"] == s["class"]] for s in report["steps"]}
        times = [sum(of_class[i]) for i in page.value(ids)]
        self.assertEqual(times, sorted(times))
        folded = page.value("document.querySelector('#steps .fold').closest('tr').dataset.id")
        page.click_on("#steps .fold")
        self.assertEqual(page.value(ids + ".length"), len(rows) + len(of_class[folded]))
        page.click_on("#steps input")
        page.type("nothing like it")
        self.assertEqual(page.value(ids), [])
        page.value("document.querySelector('#steps input').value = ''")
        page.type("matmul")
        self.assertTrue(all("matmul" in i for i in page.value(ids)))
        page.click_on("#steps tbody tr td")
        self.assertEqual(page.value("chosen.id"), page.value(ids)[0])

    def test_keys(self):
        page = self.open()
        page.key("?")
        self.assertTrue(page.value("document.getElementById('keys').open"))
        for what in page.value("keys.map(k => k[1]).filter(Boolean)"):
            self.assertIn(what, page.value("document.getElementById('keys').textContent"))
        page.value("document.getElementById('keys').close()")
        scale, x = page.value("view.scale"), page.value("view.x")
        page.key("+")
        self.assertGreater(page.value("view.scale"), scale)
        page.key("-")
        page.key("0")
        page.key("ArrowRight", "")
        self.assertNotEqual(page.value("view.x"), x)
        page.key("j")
        self.assertEqual(page.value("chosen.id"), page.value("steps[0].id"))
        page.key("j")
        self.assertEqual(page.value("chosen.id"), page.value("steps[1].id"))
        page.key("e")
        self.assertTrue(page.value("chosenNode().open"))
        boxes = page.value("view.scene.boxes.length")
        page.key("o")
        self.assertGreater(page.value("view.scene.boxes.length"), boxes)
        page.key("c")
        self.assertLess(page.value("view.scene.boxes.length"), boxes)
        page.key("b")
        self.assertEqual(page.value("view.colour"), "bound")
        page.key("d")
        self.assertEqual(page.value("document.documentElement.dataset.theme"), "dark")
        order = "document.querySelector('#steps tbody tr').dataset.id"
        first = page.value(order)
        page.key("s")
        self.assertNotEqual(page.value(order), first)
        page.key("Escape", "")
        self.assertIsNone(page.value("chosen.id"))

    def test_prints_light_and_goes_back(self):
        page = self.open(dark=True)
        before = page.value("[view.scale, view.x, view.y]")
        self.assertGreater(len(page.call("Page.printToPDF", printBackground=True)["data"]), 10000)
        self.assertEqual(page.value("document.documentElement.dataset.theme"), "dark")
        self.assertEqual(page.value("[view.scale, view.x, view.y]"), before)

    def test_hostile_names_are_text(self):
        hostile_model(self.path / "hostile.onnx")
        explain(self.path / "hostile.onnx", self.path / "hostile.html", "--shape", HOSTILE + "in=4x8")
        self.assertNotIn(HOSTILE, (self.path / "hostile.html").read_text())
        page = self.open("hostile.html")
        for step in page.value("operators.map(o => o.id)"):
            page.value(f"choose({json.dumps(step)})")
            self.assertIn(HOSTILE, page.value("document.getElementById('details').textContent"))
        page.value("openAll(); search('relu'); nextHit(1)")
        page.frame()
        self.assertIn(HOSTILE, page.value("document.getElementById('about').textContent"))
        self.assertEqual(page.value("document.querySelectorAll('img').length"), 0)
        self.assertIsNone(page.value("window.ran ?? null"))

    def test_two_reports_side_by_side(self):
        done = subprocess.run([TESSERA, "diff", f"{MODELS}/bert.dynamo.f32.onnx", "--with", "no-fusion", "-o", self.path / "diff.html", *SHAPES], stderr=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 1)
        for width in (1280, 390):
            page = self.open("diff.html", width)
            self.assertLessEqual(page.value("document.documentElement.scrollWidth"), width)
        page = self.open("diff.html")
        diff = self.report(page)["diff"]
        self.assertEqual(page.value("document.querySelectorAll('#changed-steps tbody tr').length"), min(400, len(diff["steps"])))
        self.assertEqual(page.value("document.querySelectorAll('#changed-edges tbody tr').length"), min(400, len(diff["edges"])))
        shown = "frames.%s.contentDocument.getElementById('details').textContent"
        ready = " && ".join(f"frames.{side}.contentWindow.performance.getEntriesByName('page done').length === 1" for side in "ab")
        page.wait(ready)
        # A row shows its steps in both; what is chosen in one is chosen in the other.
        page.value("document.querySelector('#changed-steps tbody tr').click()")
        row = page.value("records(diff.steps).find(s => 'steps ' + records(diff.steps).indexOf(s) === document.querySelector('#changed-steps tbody tr').dataset.id)")
        for side in "ab":
            page.wait(f"{shown % side}.includes({json.dumps(row[side][0])})")
        step = next(s for s in self.report(page)["a"]["steps"] if s["kind"] == "kernel" and s["id"] != row["a"][0])
        page.value(f"frames.a.contentDocument.querySelector('#steps tr[data-id={json.dumps(step['id'])}]').click()")
        page.wait(f"{shown % 'a'}.includes({json.dumps(step['id'])})")
        other = page.value(f"counterpart('a', {json.dumps(step['id'])})")
        page.wait(f"{shown % 'b'}.includes({json.dumps(other)})")

    def test_measured_steps_have_a_timeline(self):
        text = (self.path / "bert.html").read_text()
        start = text.index('id="report">') + len('id="report">')
        end = text.index("</script>", start)
        report = json.loads(text[start:end])
        self.assertFalse(self.open().value("!!document.getElementById('timeline')"))
        for s in report["steps"]:
            s["measured_us"] = 1 + s["index"] / 10
        (self.path / "measured.html").write_text(text[:start] + json.dumps(report).replace("<", "\\u003c") + text[end:])
        page = self.open("measured.html")
        self.assertGreaterEqual(page.value("document.querySelectorAll('#timeline rect').length"), len(report["steps"]))
        page.value("document.querySelectorAll('#timeline rect')[4].dispatchEvent(new MouseEvent('click'))")
        self.assertIsNotNone(page.value("chosen.id"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
