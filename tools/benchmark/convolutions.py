"""Convolutions of images with channels last, with bias, ReLU and residual behind them, for --convolutions: layers of ResNet, DenseNet and diffusion models."""
from .case import Case

TO_FIRST, TO_LAST = {"perm": [0, 3, 1, 2]}, {"perm": [0, 2, 3, 1]}


def case(n, size, channels, results, kernel=3, stride=1, dilation=1, epilogue="relu", dtype="f16"):
    """A convolution of n images of size x size; the transposed views say in ONNX that images and weights lie with channels last."""
    pad = dilation * (kernel // 2)
    out = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    m = lambda *shape, data="normal": {"shape": list(shape), "dtype": dtype, "data": data}
    inputs = {"x": m(n, size, size, channels), "w": m(results, kernel, kernel, channels, data="small"), "b": m(results)}
    nodes = [["Transpose", ["x"], ["xf"], TO_FIRST], ["Transpose", ["w"], ["wf"], TO_FIRST],
             ["Conv", ["xf", "wf"], ["c"], {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2, "kernel_shape": [kernel] * 2}],
             ["Transpose", ["c"], ["l"], TO_LAST], ["Add", ["l", "b"], ["s"]]]
    if epilogue == "residual":
        inputs["r"] = m(n, out, out, results)
        nodes += [["Add", ["s", "r"], ["a"]], ["Relu", ["a"], ["y"]]]
    else: nodes.append([{"relu": "Relu", "silu": "Silu"}[epilogue], ["s"], ["y"]])
    form = f"{kernel}x{kernel}" + (f".stride{stride}" if stride > 1 else "") + (f".dilation{dilation}" if dilation > 1 else "")
    return Case(f"convolution.{n}x{size}x{size}x{channels}.{results}.{form}.{epilogue}.{dtype}", inputs, nodes, ["y"],
                2 * n * out * out * results * channels * kernel * kernel, f"convolution.{form}")


def points(wanted=lambda name: True):
    cases = [case(32, size, channels, channels, epilogue=e) for size, channels in ((56, 64), (28, 128), (14, 256), (7, 512)) for e in ("relu", "residual")]
    cases += [case(32, size, channels, channels, stride=2) for size, channels in ((56, 128), (28, 256), (14, 512))]
    cases += [case(32, size, channels, 2 * channels, kernel=1, stride=2) for size, channels in ((56, 256), (28, 512))]
    cases += [case(32, size, 128, 32) for size in (56, 28, 14)]
    cases += [case(2, size, channels, channels, epilogue="silu", dtype="bf16") for size, channels in ((64, 320), (32, 640), (16, 1280))]
    cases += [case(32, 28, 128, 128, dilation=2), case(8, 33, 48, 96, kernel=5), case(4, 512, 64, 64, epilogue="silu", dtype="bf16")]
    return [c for c in cases if wanted(c.name)]
