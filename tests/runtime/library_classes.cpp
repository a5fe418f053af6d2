// Library calls that differ in their buffers only, and what a shape plan shares.
#include "build_executable.h"
#include "runtime/variant.h"

namespace tessera {
namespace {
using namespace test;

// x -> h -> ... by products with weights of their own.
struct Layers : Builder {
  SymExpr rows = symbol("rows"), width{8};
  BufferId at = input("x", {rows, width});
  MatmulCall next(BufferId to) {
    auto w = input("w" + std::to_string(exe->steps.size()), {width, width});
    MatmulCall call{dense(at), dense(w), dense(to), std::nullopt};
    at = to;
    return call;
  }
  BufferId hidden() { return buffer("h" + std::to_string(exe->steps.size()), {rows, width}); }
  void add(MatmulCall call) {
    exe->steps.emplace_back(LibraryStep{"layer " + std::to_string(exe->steps.size()), std::move(call)});
  }
  std::vector<int> classes() {
    auto variant = Variant::create(done());
    EXPECT_TRUE(variant.ok()) << variant.error().str();
    std::vector<int> out;
    for (const auto& step : (*variant)->steps) out.push_back(step.library_class);
    EXPECT_EQ((*variant)->library_classes, static_cast<size_t>(*std::max_element(out.begin(), out.end())) + 1);
    return out;
  }
};

TEST(LibraryClasses, LayersAreOneClassWhateverTheirBuffers) {
  Layers l;
  l.add(l.next(l.hidden()));
  l.add(l.next(l.hidden()));
  l.add(l.next(l.output("y", {l.rows, l.width})));
  EXPECT_EQ(l.classes(), (std::vector<int>{0, 0, 0}));
}

TEST(LibraryClasses, EachDifferenceMakesAClass) {
  Layers l;
  l.exe->target = "cuda sm_90";
  l.add(l.next(l.hidden()));
  auto scaled = l.next(l.hidden());
  scaled.scale = 0.5;
  l.add(scaled);
  auto rounded = l.next(l.hidden());
  rounded.tf32 = true;
  l.add(rounded);
  auto turned = l.next(l.hidden());
  turned.b.strides = {SymExpr(1), SymExpr(8)};
  l.add(turned);
  auto relu = l.next(l.hidden());
  relu.fused.emplace().activation = LibraryEpilogue::Activation::Relu;
  l.add(relu);
  auto residual = l.next(l.hidden());
  residual.fused = relu.fused;
  residual.fused->residual = l.dense(l.input("r", {l.rows, l.width}));
  l.add(residual);
  auto constant = l.next(l.hidden());
  constant.b = l.dense(l.constant("w", Tensor::create(DType::F32, {8, 8}).value()));
  l.add(constant);
  l.add(l.next(l.output("y", {l.rows, l.width})));
  EXPECT_EQ(l.classes(), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 0}));
}

// Sizes that are equal in a call are of two classes if another call may make them differ.
TEST(LibraryClasses, SizesAreComparedAsExpressions) {
  Layers l;
  l.add(l.next(l.hidden()));
  const SymExpr others = l.symbol("others");
  l.at = l.input("z", {others, l.width});
  l.add(l.next(l.output("y", {others, l.width})));
  EXPECT_EQ(l.classes(), (std::vector<int>{0, 1}));
}

TEST(LibraryClasses, BuffersOfOneShapeShareItsSizes) {
  Layers l;
  l.add(l.next(l.hidden()));
  l.add(l.next(l.output("y", {l.rows, l.width})));
  auto variant = Variant::create(l.done());
  ASSERT_TRUE(variant.ok()) << variant.error().str();
  EXPECT_EQ((*variant)->shapes.size(), 2u); // [rows, 8] and [8, 8]
  for (size_t a = 0; a < l.exe->buffers.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      EXPECT_EQ(l.exe->buffers[a].shape == l.exe->buffers[b].shape,
                (*variant)->buffer_shape[a] == (*variant)->buffer_shape[b]);
}

// Calls of one class do not share their memory.
TEST(LibraryClasses, EachCallOfAClassTakesItsOwnBuffers) {
  Layers l;
  l.add(l.next(l.hidden()));
  l.add(l.next(l.hidden()));
  l.add(l.next(l.output("y", {l.rows, l.width})));
  auto executor = Executor::create({l.done()}, {});
  ASSERT_TRUE(executor.ok()) << executor.error().str();
  auto diagonal = [](float d) {
    Tensor t = Tensor::create(DType::F32, {8, 8}).value();
    for (int i = 0; i < 64; ++i) t.mutable_as<float>()[static_cast<size_t>(i)] = i % 9 == 0 ? d : 0;
    return t;
  };
  for (int64_t rows : {1, 3, 5}) {
    const Tensor x = random_tensor({rows, 8}, 7);
    auto y = (*executor)->run({{"x", x}, {"w0", diagonal(2)}, {"w1", diagonal(3)}, {"w2", diagonal(5)}});
    ASSERT_TRUE(y.ok()) << y.error().str();
    for (int64_t i = 0; i < rows * 8; ++i)
      EXPECT_FLOAT_EQ(static_cast<float>((*y)[0].get_f64(i)), 30 * static_cast<float>(x.get_f64(i)));
  }
}

} // namespace
} // namespace tessera
