#include "cuvmm/chunk_policy.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "cuvmm/error.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {
namespace {

using Sizes = std::vector<std::size_t>;

TEST(ChunkPolicy, ExactTakesWhatIsNeeded) {
  EXPECT_EQ(ChunkPolicy::exact().plan({100_MiB, 5_MiB, 1_GiB, 2_MiB}), Sizes{6_MiB});
  EXPECT_EQ(ChunkPolicy::exact().plan({0, 1, 2_MiB, 2_MiB}), Sizes{2_MiB});
}

TEST(ChunkPolicy, FixedCutsIntoChunksOfOneSize) {
  const ChunkPolicy policy = ChunkPolicy::fixed(4_MiB);
  EXPECT_EQ(policy.plan({0, 9_MiB, 1_GiB, 2_MiB}), (Sizes{4_MiB, 4_MiB, 4_MiB}));
  EXPECT_EQ(policy.plan({0, 8_MiB, 1_GiB, 2_MiB}), (Sizes{4_MiB, 4_MiB}));
  EXPECT_EQ(policy.plan({0, 9_MiB, 10_MiB, 2_MiB}), (Sizes{4_MiB, 4_MiB, 2_MiB})) << "no more than allowed";
  EXPECT_EQ(ChunkPolicy::fixed(1).plan({0, 4_MiB, 1_GiB, 2_MiB}), (Sizes{2_MiB, 2_MiB})) << "rounded up";
}

TEST(ChunkPolicy, GeometricDoublesUpToItsLargestChunk) {
  const ChunkPolicy policy = ChunkPolicy::geometric(64_MiB);
  std::size_t mapped = 0;
  Sizes seen;
  while (mapped < 256_MiB) {
    seen.push_back(policy.plan({mapped, 2_MiB, 1_TiB, 2_MiB}).front());
    mapped += seen.back();
  }
  EXPECT_EQ(seen, (Sizes{2_MiB, 2_MiB, 4_MiB, 8_MiB, 16_MiB, 32_MiB, 64_MiB, 64_MiB, 64_MiB}));
  EXPECT_EQ(policy.plan({64_MiB, 100_MiB, 1_TiB, 2_MiB}), Sizes{100_MiB}) << "more where more is needed";
  EXPECT_EQ(policy.plan({64_MiB, 2_MiB, 6_MiB, 2_MiB}), Sizes{6_MiB}) << "no more than allowed";
}

TEST(ChunkPolicy, BoundedKeepsTheUnusedShareBelowItsBound) {
  const ChunkPolicy policy = ChunkPolicy::bounded(0.02);
  std::size_t content = 0;
  std::size_t mapped = 0;
  std::size_t chunks = 0;
  while (content < 64_GiB) {
    content += 64_MiB;
    if (content > mapped) {
      const std::size_t needed = content - mapped;
      const Sizes sizes = policy.plan({mapped, needed, 1_TiB, 2_MiB});
      chunks += sizes.size();
      mapped += std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    }
    ASSERT_LE(static_cast<double>(mapped - content), 0.02 * static_cast<double>(mapped) + 2.0 * 1024 * 1024) << content;
  }
  EXPECT_LT(chunks, 256u) << "fewer than one an append";
  EXPECT_EQ(ChunkPolicy::bounded(0.5).plan({0, 4_MiB, 6_MiB, 2_MiB}), Sizes{6_MiB}) << "no more than allowed";
  EXPECT_EQ(ChunkPolicy::bounded(0).plan({1_GiB, 4_MiB, 1_TiB, 2_MiB}), Sizes{4_MiB});
}

TEST(ChunkPolicy, RefusesNumbersThatMakeNoPolicy) {
  EXPECT_THROW(static_cast<void>(ChunkPolicy::fixed(0)), InvalidUse);
  EXPECT_THROW(static_cast<void>(ChunkPolicy::geometric(0)), InvalidUse);
  EXPECT_THROW(static_cast<void>(ChunkPolicy::bounded(-0.01)), InvalidUse);
  EXPECT_THROW(static_cast<void>(ChunkPolicy::bounded(1)), InvalidUse);
  EXPECT_THROW(static_cast<void>(ChunkPolicy::bounded(std::numeric_limits<double>::quiet_NaN())), InvalidUse);
  EXPECT_NO_THROW(static_cast<void>(ChunkPolicy::fixed(1)));
  EXPECT_NO_THROW(static_cast<void>(ChunkPolicy::geometric(1)));
  EXPECT_NO_THROW(static_cast<void>(ChunkPolicy::bounded(0.99)));
}

TEST(ChunkPolicy, SaysWhatItIs) {
  EXPECT_EQ(ChunkPolicy::exact().to_string(), "exact");
  EXPECT_EQ(ChunkPolicy::fixed(20_MiB).to_string(), "fixed, 20 MiB");
  EXPECT_EQ(ChunkPolicy::bounded(0.02).to_string(), "bounded, at most 2 % unused");
  EXPECT_EQ(ChunkPolicy::geometric().to_string(), "geometric, at most 256 MiB");
}

}  // namespace
}  // namespace cuvmm
