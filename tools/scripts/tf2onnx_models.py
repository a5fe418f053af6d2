#!/usr/bin/env python3
"""Small Keras models and functions of TensorFlow as ONNX models of tf2onnx, in the layout of ONNX's backend tests: what ONNX Runtime
computes at two batches is expected, and TensorFlow's own results agree with it.

    tf2onnx_models.py FOLDER [NAME...]      then: tessera test FOLDER

Needs an environment with tensorflow-cpu, tf2onnx and onnxruntime, apart from that of the other tools; no test of ours runs it.
"""
import logging, os, shutil, subprocess, sys, tempfile

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import numpy as np
import onnx, onnxruntime
import tensorflow as tf
import tf2onnx
from onnx import numpy_helper

logging.disable(logging.CRITICAL)
K, L = tf.keras, tf.keras.layers
F, I = tf.float32, tf.int32


def functional(shape, build, dtype="float32"):
    x = L.Input(shape, dtype=dtype)
    model = K.Model(x, build(x))
    return lambda value: model(value, training=False)


def gelu(x): return tf.nn.gelu(x, approximate=True)


def mlp(x):
    x = L.Dense(32, activation="relu")(x)
    x = L.BatchNormalization()(L.Dense(16, activation="elu")(x))
    return L.Dense(5, activation="softmax")(L.Dropout(0.3)(x))


def cnn(x):
    x = L.MaxPooling2D(2)(L.Conv2D(8, 3, padding="same", activation="relu")(x))
    x = L.AveragePooling2D(2, padding="same")(L.Conv2D(12, 5, strides=2, padding="valid", dilation_rate=1)(x))
    return L.Dense(4)(L.Flatten()(L.LeakyReLU()(x)))


def mobile(x):
    def block(x, width, stride, expand):
        y = L.Conv2D(expand, 1, use_bias=False)(x)
        y = L.ReLU(6.0)(L.BatchNormalization()(y))
        y = L.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(y)
        y = L.Activation("swish")(L.BatchNormalization()(y))
        s = L.Conv2D(expand, 1, activation="hard_sigmoid")(L.Conv2D(4, 1, activation="relu")(L.GlobalAveragePooling2D(keepdims=True)(y)))
        y = L.BatchNormalization()(L.Conv2D(width, 1, use_bias=False)(L.Multiply()([y, s])))
        return L.Add()([x, y]) if stride == 1 and x.shape[-1] == width else y

    x = L.Conv2D(8, 3, strides=2, padding="same")(x)
    for width, stride in ((8, 1), (12, 2), (12, 1)): x = block(x, width, stride, 3 * width)
    return L.Dense(7)(L.GlobalAveragePooling2D()(x))


def unet(x):
    a = L.SeparableConv2D(6, 3, padding="same", activation="relu")(x)
    b = L.Conv2D(12, 3, strides=2, padding="same", activation=gelu)(a)
    up = L.Conv2DTranspose(6, 3, strides=2, padding="same")(b)
    near = L.UpSampling2D(2, interpolation="bilinear")(b)
    return L.Conv2D(2, 1, activation="sigmoid")(L.Concatenate()([a, up, near, L.ZeroPadding2D(1)(L.Cropping2D(1)(a))]))


def lstm(x):
    x = L.Bidirectional(L.LSTM(6, return_sequences=True))(L.Embedding(50, 8)(x))
    return L.Dense(3)(L.LSTM(5)(x))


def masked_lstm(x):
    return L.Dense(3)(L.LSTM(5, go_backwards=True)(L.Embedding(50, 8, mask_zero=True)(x)))


def gru(x):
    x = L.Bidirectional(L.GRU(6, return_sequences=True))(L.Embedding(50, 8)(x))
    return L.Dense(3)(L.GRU(5, reset_after=False)(x))


def simple_rnn(x): return L.Dense(3)(L.SimpleRNN(6, activation="tanh")(x))


def conv_lstm(x): return L.ConvLSTM2D(4, 3, padding="same")(x)


def attention(x):
    x = L.Embedding(50, 16)(x)
    y = L.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    x = L.LayerNormalization()(L.Add()([x, y]))
    y = L.Dense(16)(L.Dense(32, activation=gelu)(x))
    return L.Dense(4)(L.GlobalAveragePooling1D()(L.LayerNormalization()(L.Add()([x, y]))))


def conv1d(x): return L.GlobalMaxPooling1D()(L.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="softplus")(L.GroupNormalization(2)(L.Dense(8)(x))))


def conv3d(x): return L.Dense(2)(L.Flatten()(L.MaxPooling3D(2)(L.Conv3D(4, 3, padding="same", activation="selu")(x))))


def while_loop(x):
    step = lambda i, y: (i + 1, tf.tanh(y @ tf.ones((6, 6)) * 0.1) + x)
    return tf.while_loop(lambda i, y: i < tf.shape(x)[0] + 2, step, (0, x))[1]


def while_by_value(x): return tf.while_loop(lambda y: tf.reduce_max(tf.abs(y)) > 0.1, lambda y: (y / 2,), (x,))[0]


def cond(x): return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sort(x, axis=-1), lambda: tf.cond(tf.shape(x)[0] > 2, lambda: tf.exp(x), lambda: -x))


def scan(x): return tf.transpose(tf.scan(lambda s, row: s * 0.5 + row, tf.transpose(x), initializer=tf.zeros(tf.shape(x)[:1])))


def indexing(x):
    top = tf.math.top_k(x, 3)
    picked = tf.gather_nd(x, tf.stack([tf.range(tf.shape(x)[0]), tf.argmax(x, 1, output_type=I)], 1))
    scattered = tf.tensor_scatter_nd_update(x, [[0, 1], [1, 2]], [5.0, 6.0])
    parts = tf.split(x, [2, 1, 3], 1)
    return top.values, top.indices, picked, scattered, tf.concat([parts[2], parts[0]], 1), x[::-1, 1:-1:2, None], tf.one_hot(top.indices, 6), tf.where(x > 0, x, 0.0), tf.boolean_mask(x, x > 0), tf.cumsum(x, 1, exclusive=True, reverse=True)


def maths(x):
    y = tf.einsum("bi,ji->bj", x, tf.ones((4, 6)))
    norm = tf.linalg.l2_normalize(x, 1)
    return y, norm, tf.math.floormod(x, 0.7), tf.math.erf(x), tf.reduce_logsumexp(x, 1), tf.math.cumsum(x, 0), tf.clip_by_value(x, -1.0, 0.5), tf.math.squared_difference(x, 1.0), tf.pad(x, [[1, 0], [0, 2]], "REFLECT"), tf.cast(tf.abs(x) * 3, I) // 2, tf.math.segment_sum(tf.transpose(x), [0, 0, 1, 1, 1, 2])


def image_ops(x):
    return tf.image.resize(x, (11, 9)), tf.image.resize(x, (7, 20), method="nearest"), tf.nn.depth_to_space(x[..., :4], 2), tf.nn.space_to_depth(x, 4), tf.image.adjust_contrast(x[..., :3], 0.7), tf.nn.local_response_normalization(x)


def detection(x):
    corner = tf.abs(x[:, :2]) * 5
    boxes = tf.concat([corner, corner + tf.abs(x[:, 2:4]) * 5 + 0.5], 1)
    kept = tf.image.non_max_suppression(boxes, x[:, 5], 4, iou_threshold=0.3)
    return tf.gather(boxes, kept), tf.image.crop_and_resize(tf.ones((1, 8, 8, 2)) * tf.reshape(tf.range(8.0), (1, 8, 1, 1)), boxes / 10, tf.zeros(tf.shape(x)[:1], I), (3, 3))


WORDS = ["apple", "pear", "fig", "grün"]


class Table(tf.Module):
    """Words to rows of an embedding. tf2onnx converts tables of saved models alone."""

    def __init__(self):
        values = tf.constant([3, 1, 4, 1], tf.int64)
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(WORDS), values), tf.constant(-1, tf.int64))
        self.rows = tf.Variable(tf.reshape(tf.range(30.0), (6, 5)))

    def __call__(self, x):
        number = self.table.lookup(x)
        return {"number": number, "rows": tf.gather(self.rows, number + 1)}


def strings(x): return tf.concat([x, x[::-1]], 0), tf.gather(tf.constant(WORDS), tf.range(tf.shape(x)[0]) % 4), tf.transpose(tf.reshape(tf.concat([x, x], 1), (-1, 2, 3)), [1, 0, 2])


# Shape of one input without the batch, integers below the third item, or of these words, where it is given.
MODELS = {
    "mlp": (functional((12,), mlp), (12,)), "cnn": (functional((28, 28, 3), cnn), (28, 28, 3)), "mobile": (functional((32, 32, 3), mobile), (32, 32, 3)),
    "unet": (functional((16, 16, 3), unet), (16, 16, 3)), "lstm": (functional((7,), lstm, "int32"), (7,), 50), "masked_lstm": (functional((7,), masked_lstm, "int32"), (7,), 50),
    "gru": (functional((7,), gru, "int32"), (7,), 50), "simple_rnn": (functional((7, 4), simple_rnn), (7, 4)), "conv_lstm": (functional((3, 8, 8, 2), conv_lstm), (3, 8, 8, 2)),
    "attention": (functional((7,), attention, "int32"), (7,), 50), "conv1d": (functional((9, 4), conv1d), (9, 4)), "conv3d": (functional((6, 6, 6, 2), conv3d), (6, 6, 6, 2)),
    **{f.__name__: (f, (6,)) for f in (while_loop, while_by_value, cond, scan, indexing, maths, detection)}, "image_ops": (image_ops, (16, 16, 8)),
    "table": (Table(), (3,), [*WORDS, "plum"]), "strings": (strings, (3,), [*WORDS, "", "plum"]),
}  # fmt: skip


def write(folder, name, opset):
    call, shape, below = (*MODELS[name], None)[:3]
    dtype = F if below is None else I if isinstance(below, int) else tf.string
    signature = [tf.TensorSpec((None, *shape), dtype, name="x")]
    tf.random.set_seed(1)
    function = tf.function(lambda x: call(x), input_signature=signature)
    os.makedirs(folder, exist_ok=True)
    if isinstance(call, tf.Module):
        call.function = function
        with tempfile.TemporaryDirectory() as saved:
            tf.saved_model.save(call, saved, signatures={"serving_default": function})
            subprocess.run([sys.executable, "-m", "tf2onnx.convert", "--saved-model", saved, "--output", f"{folder}/model.onnx", "--opset", str(opset)], check=True, capture_output=True)
    else:
        model, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=opset)
        onnx.save(model, f"{folder}/model.onnx")
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(3)
    for k, batch in enumerate((2, 5)):
        x = rng.standard_normal((batch, *shape)).astype(np.float32) if below is None else rng.integers(0, below if isinstance(below, int) else len(below), (batch, *shape)).astype(np.int32)
        x = np.array(below, object)[x] if dtype == tf.string else x
        want = [np.asarray(t) for t in tf.nest.flatten(function(tf.constant(x)))]
        got = session.run(None, {session.get_inputs()[0].name: x})
        for a, b in zip(got, want):
            if a.dtype == object: assert [t.encode() for t in a.ravel()] == b.ravel().tolist(), "ONNX Runtime against TensorFlow"
            else: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3, err_msg="ONNX Runtime against TensorFlow")
        data = f"{folder}/test_data_set_{k}"
        os.makedirs(data, exist_ok=True)
        open(f"{data}/input_0.pb", "wb").write(numpy_helper.from_array(x, session.get_inputs()[0].name).SerializeToString())
        for i, (a, o) in enumerate(zip(got, session.get_outputs())): open(f"{data}/output_{i}.pb", "wb").write(numpy_helper.from_array(a, o.name).SerializeToString())


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(MODELS)
    done, left = 0, 0
    for name in names:
        for opset in (9, 11, 13, 15, 17, 18):
            try:
                write(f"{folder}/{name}_{opset}", name, opset)
                done += 1
            except Exception as e:  # what tf2onnx cannot convert to an opset
                left += 1
                print(f"{name} opset {opset}: {type(e).__name__}: {' '.join(str(e).split())[:200]}", flush=True)
                shutil.rmtree(f"{folder}/{name}_{opset}", ignore_errors=True)
    print(f"{done} models, {left} not made")


if __name__ == "__main__": main()
