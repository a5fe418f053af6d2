"""Kernels as people learn them: fused softmax, matrix product with grouped order, layer norm forward and backward, dropout, attention."""

from __future__ import annotations

import unittest

from support import KernelTest, numpy, run, text_of, tl, triton, verify


@triton.jit
def softmax(out, x, x_stride, out_stride, rows, columns, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=num_stages):
        at = tl.arange(0, BLOCK)
        inside = at < columns
        t = tl.load(x + row * x_stride + at, mask=inside, other=-float("inf"))
        e = tl.exp(t - tl.max(t, axis=0))
        tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr):
    pid = tl.program_id(axis=0)
    rows = tl.cdiv(M, BM)
    in_group = GROUP * tl.cdiv(N, BN)
    first = pid // in_group * GROUP
    height = min(rows - first, GROUP)
    i = first + ((pid % in_group) % height)
    j = (pid % in_group) // height
    m = (i * BM + tl.arange(0, BM)) % M
    n = (j * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    p = a + (m[:, None] * am + k[None, :] * ak)
    q = b + (k[:, None] * bk + n[None, :] * bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        x = tl.load(p, mask=k[None, :] < K - step * BK, other=0.0)
        y = tl.load(q, mask=k[:, None] < K - step * BK, other=0.0)
        total = tl.dot(x, y, total)
        p += BK * ak
        q += BK * bk
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)
    m = i * BM + tl.arange(0, BM)
    n = j * BN + tl.arange(0, BN)
    tl.store(c + cm * m[:, None] + cn * n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def masked_matmul(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    p = a + (m[:, None] * am + k[None, :] * ak)
    q = b + (k[:, None] * bk + n[None, :] * bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        x = tl.load(p, mask=(k[None, :] < K - step * BK) & (m[:, None] < M), other=0.0)
        y = tl.load(q, mask=(K - step * BK > k[:, None]) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        p += BK * ak
        q += BK * bk
    tl.store(c + cm * m[:, None] + cn * n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def layer_norm(x, y, w, b, mean, rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    y += row * stride
    x += row * stride
    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        partial += tl.load(x + at, mask=at < N, other=0.0).to(tl.float32)
    mu = tl.sum(partial, axis=0) / N
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        t = tl.load(x + at, mask=at < N, other=0.0).to(tl.float32)
        t = tl.where(at < N, t - mu, 0.0)
        squares += t * t
    r = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < N
        t = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mu) * r
        tl.store(y + at, t * tl.load(w + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


@triton.jit
def layer_norm_backward(dx, dy, dw, x, w, mean, rstd, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < N
    t = tl.load(x + row * stride + at, mask=inside, other=0).to(tl.float32)
    g = tl.load(dy + row * stride + at, mask=inside, other=0).to(tl.float32)
    scale = tl.load(w + at, mask=inside).to(tl.float32)
    r = tl.load(rstd + row)
    hat = tl.where(inside, (t - tl.load(mean + row)) * r, 0.0)
    scaled = tl.where(inside, scale * g, 0.0)
    c1 = tl.sum(hat * scaled, axis=0) / N
    c2 = tl.sum(scaled, axis=0) / N
    tl.store(dx + row * stride + at, (scaled - (hat * c1 + c2)) * r, mask=inside)
    tl.atomic_add(dw + at, g * hat, mask=inside)


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(x + at, mask=at < n)
    keep = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(keep, t / (1 - p), 0.0), mask=at < n)


@triton.jit
def attention(q, k, v, out, scale, T, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    head = tl.program_id(1).to(tl.int64) * T * D
    queries = tl.load(q + head + m[:, None] * D + d[None, :], mask=m[:, None] < T, other=0.0)
    most = tl.full([BM], float("-inf"), tl.float32)
    weight = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    end = min(T, (tl.program_id(0) + 1) * BM) if CAUSAL else T
    for start in tl.range(0, end, BN, num_stages=2):
        n = start + tl.arange(0, BN)
        keys = tl.load(k + head + n[None, :] * D + d[:, None], mask=n[None, :] < T, other=0.0)
        s = tl.dot(queries, keys) * (scale * 1.44269504)
        inside = n[None, :] < T
        if CAUSAL:
            inside &= n[None, :] <= m[:, None]
        s = tl.where(inside, s, float("-inf"))
        higher = tl.maximum(most, tl.max(s, 1))
        e = tl.exp2(s - higher[:, None])
        alpha = tl.exp2(most - higher)
        weight = weight * alpha + tl.sum(e, 1)
        values = tl.load(v + head + n[:, None] * D + d[None, :], mask=n[:, None] < T, other=0.0)
        total = tl.dot(e.to(values.dtype), values, total * alpha[:, None])
        most = higher
    tl.store(out + head + m[:, None] * D + d[None, :], (total / weight[:, None]).to(out.dtype.element_ty), mask=m[:, None] < T)


def floats(*shape, dtype=numpy.float32):  # type: ignore[no-untyped-def]
    return numpy.random.default_rng(1).standard_normal(shape).astype(dtype)


def softmax_of(x):  # type: ignore[no-untyped-def]
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Tutorials(KernelTest):
    def test_softmax(self) -> None:
        for rows, columns in ((1, 1), (5, 100), (3, 128)):
            x = floats(rows, columns)
            out = numpy.zeros_like(x)
            run(softmax, out, x, columns, columns, rows, columns, BLOCK=128, num_stages=2, grid=(2,))
            self.close(out, softmax_of(x), 1e-6)

    def test_matmul(self) -> None:
        for m, n, k in ((32, 32, 32), (50, 40, 70), (33, 17, 1)):
            a, b, c = floats(m, k, dtype=numpy.float16), floats(k, n, dtype=numpy.float16), numpy.zeros((m, n), numpy.float16)
            for activation in ("", "leaky_relu"):
                run(matmul, a, b, c, m, n, k, k, 1, n, 1, n, 1, BM=32, BN=16, BK=32, GROUP=2, ACTIVATION=activation, grid=lambda meta, m=m, n=n: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),))
                expected = a.astype(numpy.float32) @ b.astype(numpy.float32)
                self.close(c, numpy.where(expected >= 0, expected, 0.01 * expected) if activation else expected, 1e-3)

    def test_masked_matmul(self) -> None:
        """Moving pointers and shrinking bounds become offsets and extents, which tensor copies and warpgroups' products need."""
        for m, n, k in ((32, 32, 32), (50, 40, 70), (1, 17, 33)):
            a, b, c = floats(m, k, dtype=numpy.float16), floats(k, n, dtype=numpy.float16), numpy.zeros((m, n), numpy.float16)
            run(masked_matmul, a, b, c, m, n, k, k, 1, n, 1, n, 1, BM=32, BN=16, BK=32, grid=(triton.cdiv(m, 32), triton.cdiv(n, 16)))
            self.close(c, a.astype(numpy.float32) @ b.astype(numpy.float32), 1e-3)
        h = numpy.zeros((1024, 1024), numpy.float16)
        ptx = verify(text_of(masked_matmul, h, h, h, 1024, 1024, 1024, 1024, 1, 1024, 1, 1024, 1, BM=128, BN=128, BK=64, grid=(8, 8), num_warps=8, num_stages=4), ptx=True)
        self.assertIn("wgmma.mma_async", ptx)
        self.assertIn("cp.async.bulk.tensor", ptx)

    def test_layer_norm(self) -> None:
        rows, columns = 4, 100
        x, w, b, g = floats(rows, columns), floats(columns), floats(columns) + 1, floats(rows, columns) * 2
        y, mean, rstd = numpy.zeros_like(x), numpy.zeros(rows, numpy.float32), numpy.zeros(rows, numpy.float32)
        run(layer_norm, x, y, w, b, mean, rstd, columns, columns, 1e-5, BLOCK=32, grid=(rows,))
        hat = (x - x.mean(1, keepdims=True)) / numpy.sqrt(x.var(1, keepdims=True) + 1e-5)
        self.close(y, hat * w + b, 1e-6)
        dx, dw = numpy.zeros_like(x), numpy.zeros(columns, numpy.float32)
        run(layer_norm_backward, dx, g, dw, x, w, mean, rstd, columns, columns, BLOCK=128, grid=(rows,))
        scaled = g * w
        r = 1 / numpy.sqrt(x.var(1, keepdims=True) + 1e-5)
        self.close(dx, (scaled - hat * (hat * scaled).mean(1, keepdims=True) - scaled.mean(1, keepdims=True)) * r, 1e-5)
        self.close(dw, (g * hat).sum(0), 1e-5)

    def test_dropout(self) -> None:
        x, out, again = floats(1000), numpy.zeros(1000, numpy.float32), numpy.zeros(1000, numpy.float32)
        run(dropout, x, out, 1000, 0.25, 123, BLOCK=256, grid=(4,))
        run(dropout, x, again, 1000, 0.25, 123, BLOCK=256, grid=(4,))
        self.close(out, again, 0)
        self.close(numpy.array([(out != 0).mean()]), [0.75], 0.1)
        kept = out != 0
        self.close(out[kept], x[kept] / numpy.float32(0.75), 1e-6)

    def test_attention(self) -> None:
        for t, causal in ((64, False), (50, True)):
            q, k, v = (floats(2, t, 16, dtype=numpy.float16) for _ in range(3))
            out = numpy.zeros_like(q)
            run(attention, q, k, v, out, 0.25, t, D=16, BM=32, BN=16, CAUSAL=causal, grid=(triton.cdiv(t, 32), 2))
            s = q.astype(numpy.float32) @ k.astype(numpy.float32).transpose(0, 2, 1) * 0.25
            s = numpy.where(numpy.tril(numpy.ones((t, t), bool)), s, -numpy.inf) if causal else s
            self.close(out, softmax_of(s) @ v.astype(numpy.float32), 2e-3)

    def test_ptx(self) -> None:
        """The product and attention compile for sm_90a."""
        h = numpy.zeros((256, 256), numpy.float16)
        constants = {"BM": 64, "BN": 64, "BK": 32, "GROUP": 8, "ACTIVATION": ""}
        verify(text_of(matmul, h, h, h, 256, 256, 256, 256, 1, 256, 1, 256, 1, **constants, grid=(16,)), ptx=True)
        staged = text_of(matmul, h, h, h, 256, 256, 256, 256, 1, 256, 1, 256, 1, **constants, grid=(16,), num_stages=4, num_warps=8)
        self.assertIn("num_stages=4 carry", staged)
        self.assertIn("config(warps: 8)", staged)
        verify(staged, ptx=True)
        verify(text_of(attention, h, h, h, h, 0.1, 64, D=64, BM=64, BN=64, CAUSAL=True, grid=(4, 2)), ptx=True)


if __name__ == "__main__":
    unittest.main()
