// ImageDecoder of a file that a library decodes which is loaded at run time.
#include "samples_run.h"
#include <gtest/gtest.h>

namespace tessera::test {
namespace {

// A TIFF file of two gray pixels, not compressed.
Tensor gray_tiff(uint8_t first, uint8_t second) {
  std::vector<int64_t> bytes = {'I', 'I', 42, 0, 8, 0, 0, 0, 8, 0};
  const int entries[][2] = {{256, 2}, {257, 1}, {258, 8}, {259, 1}, {262, 1}, {273, 110}, {278, 1}, {279, 2}};
  for (const auto& [tag, value] : entries)
    for (int byte : {tag & 255, tag >> 8, 3, 0, 1, 0, 0, 0, value, 0, 0, 0}) bytes.push_back(byte); // 3: of 16 bits
  bytes.insert(bytes.end(), {0, 0, 0, 0, first, second}); // no other directory; the pixels, at 110
  return Tensor::of<int64_t>(DType::U8, {static_cast<int64_t>(bytes.size())}, bytes);
}

TEST(Image, TiffIsDecodedByTheSystemsLibrary) {
  const OpDef* op = OpTable::get().find("image_decoder");
  ASSERT_NE(op, nullptr);
  Sample sample;
  sample.operands = {gray_tiff(10, 200)};
  sample.opset = 20;
  auto g = build(*op, sample, Sizes::Static);
  ASSERT_TRUE(g.ok()) << g.error().str();
  auto image = evaluate_node(g->graph, g->get(), sample.operands, g->symbols);
  ASSERT_TRUE(image.ok()) << image.error().str();
  EXPECT_EQ(image->front().dims(), (Dims{1, 2, 3}));
  const auto pixels = image->front().as<uint8_t>();
  EXPECT_EQ(std::vector<int>(pixels.begin(), pixels.end()), (std::vector<int>{10, 10, 10, 200, 200, 200}));
}

} // namespace
} // namespace tessera::test
