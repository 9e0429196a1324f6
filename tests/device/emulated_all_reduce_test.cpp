// All-reduce as it is launched on emulated devices: every way and type, against sums in higher precision.
#include <cmath>
#include <limits>
#include <type_traits>

#include "emulated_team.hpp"
#include "reduced_values.hpp"

namespace cuvmm::gpu {
namespace {

using namespace test;

constexpr std::uint8_t untouched = 0xA5;
constexpr CollectiveShape small_shape{3, 32};

template <class T>
double number(T value) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<double>(value);
  else
    return static_cast<double>(value.to_float());
}
// How far neighbours are apart, of 1.
template <class T>
constexpr double spacing = std::is_same_v<T, float>     ? 0x1p-23
                           : std::is_same_v<T, float16> ? 0x1p-10
                                                        : 0x1p-7;

// Whether it is the sum of the ranks' values: exactly, of integers; else rounded once to the type, after additions in
// single precision.
template <class T>
bool is_sum(T got, std::uint32_t ranks, std::size_t index) {
  if constexpr (std::is_integral_v<T>) {
    std::uint64_t sum = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) sum += static_cast<std::uint64_t>(value_at<T>(rank, index));
    return got == static_cast<T>(sum);
  } else {
    double sum = 0, sizes = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      sum += number(value_at<T>(rank, index));
      sizes += std::abs(number(value_at<T>(rank, index)));
    }
    return std::abs(number(got) - sum) <= spacing<T> / 2 * std::abs(sum) + ranks * 0x1p-23 * sizes;
  }
}

template <class T>
class EmulatedAllReduce : public testing::Test {
 protected:
  struct Case {
    std::size_t count;
    std::size_t skipped;  // values, from a multiple of 64 bytes on
    bool in_place;
  };

  static std::vector<T> values(std::uint32_t rank, std::size_t count) {
    std::vector<T> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = value_at<T>(rank, i);
    return all;
  }

  void expect_sums(const EmulatedTeam& on, AllReduceWay way, const Case& one) {
    const std::size_t offset = 64 + one.skipped * sizeof(T);
    const std::size_t bytes = one.count * sizeof(T);
    const TeamMemory& from = one.in_place ? *outputs_ : *inputs_;
    for (std::uint32_t rank = 0; rank < on.ranks(); ++rank) {
      on.write(rank, *outputs_, 0, std::vector<std::uint8_t>(offset + bytes + 64, untouched));
      on.write(rank, from, offset, values(rank, one.count));
    }
    on.sum<T>(way, from, offset, *outputs_, offset, one.count, small_shape);
    std::optional<std::vector<T>> first;
    for (std::uint32_t rank = 0; rank < on.ranks(); ++rank) {
      ASSERT_EQ(on.team->missing(rank), 0U);
      const auto got = on.read<T>(rank, *outputs_, offset, one.count);
      for (std::size_t i = 0; i < one.count; ++i) ASSERT_TRUE(is_sum(got[i], on.ranks(), i)) << "value " << i;
      if (!first) first = got;
      ASSERT_TRUE(are_same(got, *first)) << "rank " << rank << " has other bits than rank 0";
      for (const std::size_t around : {std::size_t{0}, offset + bytes})
        ASSERT_EQ(on.read<std::uint8_t>(rank, *outputs_, around, 64), std::vector<std::uint8_t>(64, untouched));
    }
  }

  NoSwitches no_switches_{};
  std::optional<TeamMemory> inputs_, outputs_;
};

using EmulatedTypes = testing::Types<float, float16, bfloat16, std::int32_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(EmulatedAllReduce, EmulatedTypes);

TYPED_TEST(EmulatedAllReduce, EveryWaySumsAtAnyLengthAndAlignment) {
  for (const std::uint32_t ranks : {2U, 4U, 8U}) {
    const EmulatedTeam on(ranks);
    ASSERT_EQ(on.team->has_multicast(), bool(CUVMM_RESOLVE_MULTICAST)) << on.team->why_no_multicast();
    this->inputs_ = on.team->allocate_for_all(8192);
    this->outputs_ = on.team->allocate_for_all(8192);
    constexpr std::size_t last = 16 / sizeof(TypeParam) - 1;
    const typename TestFixture::Case cases[] = {{1, 0, false}, {37, last, false}, {160, 0, true}, {203, 1, false}};
    for (const AllReduceWay way : all_ways)
      for (const auto& one : cases) {
        if (!on.team->has_multicast() && name_of(way).find("multimem") == 0) continue;
        SCOPED_TRACE(std::string(name_of(way)) + ", " + std::to_string(ranks) + " ranks, " + std::to_string(one.count) +
                     " values");
        auto mine = one;
        mine.in_place = one.in_place && may_be_in_place(way);
        this->expect_sums(on, way, mine);
        if (testing::Test::HasFatalFailure()) return;
      }
    this->inputs_.reset();
    this->outputs_.reset();
  }
}

// Staging buffers that are too small for one round, and every block of the team.
TEST(EmulatedCollectives, ContentOfSeveralRounds) {
  const NoSwitches no_switches{};
  auto options = small_options();
  options.staging_bytes = 256;
  const EmulatedTeam on(multicast_machine(4), options);
  constexpr std::size_t count = 1000;
  const auto memory = on.team->allocate_for_all(count * 4);
  for (std::uint32_t rank = 0; rank < 4; ++rank) on.write(rank, memory, 0, std::vector<std::uint32_t>(count, rank + 1));
  on.sum<std::uint32_t>(AllReduceWay::staged_two_shot, memory, 0, memory, 0, count, {4, 512});
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(on.team->missing(rank), 0U);
    EXPECT_EQ(on.read<std::uint32_t>(rank, memory, 0, count), std::vector<std::uint32_t>(count, 10));
  }
}

}  // namespace
}  // namespace cuvmm::gpu
