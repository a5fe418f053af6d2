#!/usr/bin/env python3
"""Embed real sentences with Tessera and with ONNX Runtime; print the neighbours and how far the two agree.

    sentences.py TESSERA MODEL_DIRECTORY
Exit status 1 when the embeddings differ by more than 1e-5 or sentences of like meaning are not nearest.
"""
import os, subprocess, sys, tempfile
import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

GROUPS = [
    ["A man is playing a guitar on stage.", "Someone performs music with a guitar."],
    ["The central bank raised interest rates again.", "Borrowing gets more expensive after the rate decision."],
    ["The kitten sleeps on the warm windowsill.", "A young cat is napping by the window."],
    ["How do I reset my password?", "I forgot my login credentials and need new ones."],
]

def embed(tessera, directory, ids, mask):
    with tempfile.TemporaryDirectory() as d:
        np.save(f"{d}/ids.npy", ids); np.save(f"{d}/mask.npy", mask)
        command = [tessera, "run", f"{directory}/model.onnx", "--input", f"input_ids={d}/ids.npy", "--input", f"attention_mask={d}/mask.npy", "--output-dir", f"{d}/out"]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode: sys.exit(r.stdout + r.stderr)
        return [np.load(f"{d}/out/{n}.npy") for n in ("last_hidden_state", "sentence_embedding")]

def main():
    if len(sys.argv) != 3: sys.exit(__doc__)
    tessera, directory = sys.argv[1:]
    tokenizer = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    tokenizer.no_truncation(); tokenizer.enable_padding()
    session = ort.InferenceSession(os.path.join(directory, "model.onnx"), providers=["CPUExecutionProvider"])
    sentences = [s for g in GROUPS for s in g]
    group = [i for i, g in enumerate(GROUPS) for _ in g]
    worst, good = 0.0, True
    for batch in ([0], list(range(len(sentences)))):     # one sentence, then all: batch and length both change
        coded = tokenizer.encode_batch([sentences[i] for i in batch])
        ids = np.array([c.ids for c in coded], np.int64); mask = np.array([c.attention_mask for c in coded], np.int64)
        ours = embed(tessera, directory, ids, mask)
        theirs = session.run(["last_hidden_state", "sentence_embedding"], {"input_ids": ids, "attention_mask": mask})
        for a, b in zip(ours, theirs): worst = max(worst, float(np.linalg.norm(a - b) / np.linalg.norm(b)))
        print(f"   {ids.shape[0]} sentence(s) of {ids.shape[1]} tokens: agreement with ONNX Runtime so far {worst:.1e} (norm of the difference over the norm)")
    e = ours[1]; similarity = e @ e.T
    for i, s in enumerate(sentences):
        j = int(np.argmax(np.where(np.arange(len(sentences)) == i, -2, similarity[i])))
        good &= group[i] == group[j]
        print(f"   {s:58s} nearest ({similarity[i, j]:.2f}): {sentences[j]}")
    if worst > 1e-5: sys.exit(f"error: the embeddings differ from ONNX Runtime's by {worst:.1e}, more than 1e-5")
    if not good: sys.exit("error: a sentence's nearest neighbour has another meaning")
    print("   every sentence's nearest neighbour is the one of like meaning")

if __name__ == "__main__": main()
