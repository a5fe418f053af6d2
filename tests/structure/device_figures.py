#!/usr/bin/env python3
"""Check that figures of devices stand in codegen/target alone: a constant elsewhere that is a time, a bandwidth, a clock, a capacity
of a device, or a size at which a choice was seen to change on one device, fails.

    device_figures.py SOURCE_DIRECTORY

What counts, in code without its comments and in the comment beside it or on the lines before it:
  literal   a number that is a known device's (132 multiprocessors, 227 << 10 bytes of shared memory, 65536 registers ...)
  large     a literal such as 4.4e6 (bytes in a microsecond, bytes of a cache), from 1e3 on, but for * 1e6 and / 1e3, which convert units
  unit      a named constant with a number whose comment gives it a device's unit (us, ns, cycles, MHz, GB/s), or names a device
  bytes     a named constant of codegen/schedule or fusion that is a number of bytes of 1 KB or more
Questions whose answers are data elsewhere count, too:
  kind      is_gpu(): a figure or a function of codegen/target, or a member of Backend or DeviceRoutes, says in what devices differ
  operator  an operator's name compared with a text: its record or graph/ops/questions.h says in what operators differ
A constant that is none of these by its nature stands in ALLOWED with the reason. An entry that nothing needs any more fails, too.
"""
import os, re, sys

FOLDERS = ["codegen", "measure", "fusion", "runtime", "api", "report", "tools/command"]
HOME = ("codegen/target/", "measure/calibrate/")  # figures, and what measures them

LITERAL = re.compile(r"(?<![\w.])(132|108|(?:227|228|163|164|99|100) << 10|65536|232448|233472|166912|167936)(?![\w.])")
LARGE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e\+?[3-9](?!\w)")
CONVERSION = re.compile(r"[*/]\s*1e[369](?!\w)")  # of units
UNIT = re.compile(r"\b(us|ns|MHz|GHz|GB/s|TB/s|microseconds?|nanoseconds?|cycles?|[HAV]100|H200|A10G?|L40S?|RTX \d+)\b")
CONSTANT = re.compile(r"\b(?:constexpr|const)\s+(?:static\s+)?(?:std::)?(?:u?int\d*_t|int|double|float|size_t|auto)\s+(k\w+)\s*(?:\[\])?\s*[={]")
NUMBER = re.compile(r"(?<![\w.])\d")
KIND = re.compile(r"\bis_gpu\(\)")
OPERATOR = re.compile(r'\bop->name\s*(?:[!=]=\s*(?:std::string_view\()?"|\.(?:starts|ends)_with\()')
DECLARED = re.compile(r"\b(k[A-Z]\w*)\s*(?:\[\])?\s*=\s*([^,;]*)")

ALLOWED = {  # "path name": reason; name: of the constant, or the literal itself; "*": all of the file's
    "codegen/llvm/gpu_hazards.h kMaxShared": "the most that any architecture gives a block; schedules keep to their target's",
    "codegen/schedule/block_facts.h kExchangeBytes": "what our kernels take to exchange partial results",
    "codegen/schedule/space.cpp kExchangeBytes": "what the emitter leaves to exchanges next to resident tiles",
    "codegen/schedule/block_facts.h kMaxExchangeBytes": "what generated code may take for exchanges, on every GPU",
    "codegen/schedule/cost.h *": "parameters of the cost model, which tools/ fits to measurements",
    "fusion/attention_score.cpp kMasked": "a score that is as good as -inf",
    "fusion/cost.cpp 1e6": "a text says MB from here on",
    "fusion/cost.cpp 1e3": "and kB below",
    "codegen/device/library_cost.cpp is_gpu": "the price of a call has a model for each kind of device, chosen once",
    "codegen/schedule/candidates.cpp is_gpu": "the space of schedules, what is legal and their cost have a model for each kind of device, which begins here",
    "codegen/schedule/cost.cpp is_gpu": "the same",
    "codegen/schedule/legal.cpp is_gpu": "the same",
    "codegen/schedule/predict.cpp is_gpu": "the same",
    "codegen/schedule/space.cpp is_gpu": "the same",
    "codegen/schedule/own_lowering.h is_gpu": "kernels of structured operators are written for lanes of a block or of a vector",
    "codegen/schedule/own_runs.cpp is_gpu": "the same",
    "codegen/schedule/own_sort.cpp is_gpu": "the same",
    "codegen/schedule/own_tile.cpp is_gpu": "the same",
    "tools/command/calibrate.cpp is_gpu": "says which device was measured",
    "tools/command/command.cpp is_gpu": "--target names a kind of device where --device does not",
    "runtime/cpu/chunk.h kElementsPerChunk": "what one task of a pool takes of a pointwise kernel",
    "runtime/library/conv.cpp 1.5e5": "a core's share of work, roughly: tasks are not made smaller than some microseconds",
    "runtime/library/conv.cpp 1e4": "the same, of memory",
    "runtime/library/conv.cpp kBlock": "what starting a primitive costs, roughly: blocks are not made smaller than pays",
    "runtime/library/conv.cpp kWeights": "the same, of reading the weights again",
}

def value(text):
    """The number of `64 << 10` or `int64_t{1} << 20`; None for anything else."""
    text = re.sub(r"\b(?:u?int\d*_t|size_t)\{(\d+)\}", r"\1", text).strip()
    m = re.fullmatch(r"(\d+)(?:\s*<<\s*(\d+))?", text)
    return int(m[1]) << int(m[2] or 0) if m else None

def found(path, lines):
    """(line, kind, name) of every suspicious constant of a file."""
    comment = ""  # that stands before the line
    for number, line in enumerate(lines, 1):
        code, _, beside = re.sub(r"/\*(.*?)\*/", r"//\1", line).partition("//")
        code = CONVERSION.sub("", re.sub(r'"(?:[^"\\]|\\.)*"', '""', code))
        if not code.strip():
            comment += " " + beside
            continue
        if KIND.search(code): yield number, "kind", "is_gpu"
        if OPERATOR.search(code): yield number, "operator", "op->name"
        names = DECLARED.findall(code) if CONSTANT.search(code) else []
        for name, text in names:
            if not NUMBER.search(text): continue
            if UNIT.search(beside) or UNIT.search(comment): yield number, "unit", name
            elif LARGE.search(text): yield number, "large", name
            elif path.startswith(("codegen/schedule", "fusion")) and "Bytes" in name and (value(text) or 0) >= 1024: yield number, "bytes", name
            elif LITERAL.search(text): yield number, "literal", name
        if not names:
            if re.match(r"\s*X\(\w+, [\d.e]+\)", code) and UNIT.search(beside): yield number, "unit", re.match(r"\s*X\((\w+)", code)[1]
            for m in LITERAL.findall(code): yield number, "literal", m
            for m in LARGE.findall(code): yield number, "large", m
        comment = ""

WHERE_FIGURES = "looks like a figure of a device: it belongs to codegen/target"
WHERE = {"kind": "asks what a device is: that belongs to codegen/target or to an interface of devices",
         "operator": "asks what an operator is: that belongs to its record or to graph/ops/questions.h"}

# Lines that are found and lines that are not, checked before anything else is.
EXAMPLES = [
    ("constexpr double kLaunch = 3.4; // us", "unit"), ("// Of an H200.\nconstexpr double kBusy = 0.9;", "unit"),
    ("constexpr double kBytesPerUs = 4.4e6;", "large"), ("const auto all = 132 * blocks;", "literal"),
    ("if (shared > 227 << 10) return;", "literal"), ("constexpr int64_t kRowBytes = 32 << 10;", "bytes"),
    ("constexpr double kMargin = 1.1;", None), ("double ms = us / 1e3;", None), ("return n * 1e6;", None), ("// takes 3 us", None),
    ("if (device.is_gpu()) return 2;", "kind"), ('if (node.op->name == "cast") return;', "operator"),
    ('if (n.op->name.starts_with("gather")) return;', "operator"), ("if (node.op->name == step.op) return;", None),
    ('log("132 multiprocessors");', None), ("constexpr int64_t kFewRows = 8;", None), ("constexpr int kBytes = 2;", None),
]

def main():
    for text, kind in EXAMPLES:
        seen = [k for _, k, _ in found("codegen/schedule/example.cpp", text.splitlines())]
        assert seen == ([kind] if kind else []), f"the check itself is broken: {text!r} gives {seen}"
    root = sys.argv[1]
    problems, used, files = [], set(), 0
    for top in FOLDERS:
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for n in sorted(names):
                path = os.path.relpath(os.path.join(folder, n), root)
                if not n.endswith((".h", ".cpp")) or path.startswith(HOME): continue
                files += 1
                for line, kind, name in found(path, open(os.path.join(root, path), encoding="utf-8").read().splitlines()):
                    keys = {f"{path} {name}", f"{path} *"} & ALLOWED.keys()
                    if keys: used |= keys
                    else: problems.append(f"{path}:{line}: {name} ({kind}) {WHERE.get(kind, WHERE_FIGURES)}, or to ALLOWED with a reason")
    problems += [f"ALLOWED: nothing needs '{key}' any more" for key in sorted(ALLOWED.keys() - used)]
    print("\n".join(problems) or f"{files} files, figures of devices in codegen/target alone")
    sys.exit(1 if problems else 0)

if __name__ == "__main__": main()
