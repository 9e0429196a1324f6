// multimem over replicas in ordinary memory: each form's arithmetic, and what it refuses.
#include "cuvmm/gpu/replicated_multicast.cuh"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <thread>

#include "cuvmm/gpu/host_memory.cuh"

namespace cuvmm::gpu {
namespace {

constexpr std::size_t replica_bytes = 64;

// Three replicas behind addresses that nobody may touch.
class ReplicatedMulticastTest : public testing::Test {
 protected:
  template <class T>
  void set(std::size_t rank, std::size_t index, T value) {
    std::memcpy(replicas_[rank].data() + index * sizeof(T), &value, sizeof(T));
  }
  template <class T>
  T get(std::size_t rank, std::size_t index) {
    T value;
    std::memcpy(&value, replicas_[rank].data() + index * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  T* at(std::size_t index) {
    return reinterpret_cast<T*>((std::uintptr_t{1} << 45) + index * sizeof(T));
  }
  template <Operation operation, class T>
  T combined(T a, T b, T c) {
    set(0, 0, a);
    set(1, 0, b);
    set(2, 0, c);
    return memory_.multimem_load_reduce<operation, Order::relaxed, Scope::system, Accumulation::own>(at<T>(0));
  }

  alignas(16) std::array<std::array<std::byte, replica_bytes>, 3> replicas_{};
  ReplicatedMulticast multicast_{
      at<std::byte>(0), replica_bytes, {replicas_[0].data(), replicas_[1].data(), replicas_[2].data()}};
  HostMemory memory_{&multicast_};
};

TEST_F(ReplicatedMulticastTest, CombinesIntegers) {
  EXPECT_EQ((combined<Operation::add>(0xFFFFFFFFU, 2U, 3U)), 4U);
  EXPECT_EQ((combined<Operation::add>(INT32_MAX, 1, 0)), INT32_MIN);
  EXPECT_EQ((combined<Operation::add>(~std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{3})), 4U);
  EXPECT_EQ((combined<Operation::min>(-5, 3, 7)), -5);
  EXPECT_EQ((combined<Operation::min>(0xFFFFFFFBU, 3U, 7U)), 3U);
  EXPECT_EQ((combined<Operation::max>(std::int64_t{-5}, std::int64_t{-3}, std::int64_t{-7})), -3);
  EXPECT_EQ((combined<Operation::max>(~std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{7})), ~std::uint64_t{0});
}

TEST_F(ReplicatedMulticastTest, CombinesBits) {
  EXPECT_EQ((combined<Operation::bit_and>(Bits32{0xF0F0}, Bits32{0xFF00}, Bits32{0xFFFF})).bits, 0xF000U);
  EXPECT_EQ((combined<Operation::bit_or>(Bits32{0xF0F0}, Bits32{0x0F00}, Bits32{1})).bits, 0xFFF1U);
  EXPECT_EQ((combined<Operation::bit_xor>(Bits64{std::uint64_t{3} << 40}, Bits64{1}, Bits64{3})).bits,
            (std::uint64_t{3} << 40) + 2);
}

TEST_F(ReplicatedMulticastTest, AddsFloatingPoint) {
  EXPECT_EQ((combined<Operation::add>(1.5F, 2.25F, -0.5F)), 3.25F);
  EXPECT_EQ((combined<Operation::add>(1.5, 1e-16, -1.5)), 1.5 + 1e-16 - 1.5);
}

TEST_F(ReplicatedMulticastTest, AddsHalvesInSinglePrecisionAndRoundsOnce) {
  // In their own precision 2048 + 1 is 2048 again, twice; in single precision 2050 results.
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const float16 value = float16::from(rank == 0 ? 2048.0F : 1.0F);
    for (std::size_t i = 0; i < 8; ++i) set(rank, i, value);
  }
  const auto sums = memory_.multimem_load_reduce<Operation::add, Order::acquire, Scope::device, Accumulation::single>(
      at<Vector<Float16Pair, 4>>(0));
  for (const Float16Pair& pair : sums.values) {
    EXPECT_EQ(pair.first.to_float(), 2050.0F);
    EXPECT_EQ(pair.second.to_float(), 2050.0F);
  }
  for (std::size_t rank = 0; rank < 3; ++rank)
    for (std::size_t i = 0; i < 8; ++i) set(rank, i, bfloat16::from(rank == 0 ? 256.0F : 1.0F));
  const auto more = memory_.multimem_load_reduce<Operation::add, Order::weak, Scope::none, Accumulation::single>(
      at<Vector<bfloat16, 8>>(0));
  for (const bfloat16 value : more.values) EXPECT_EQ(value.to_float(), 258.0F);
}

TEST_F(ReplicatedMulticastTest, ExtremaTakeNumbersBeforeNansAndTellZerosApart) {
  const float16 nan{0x7E00}, one = float16::from(1.0F), two = float16::from(2.0F), zero{0}, minus_zero{0x8000};
  using Two = Vector<float16, 2>;
  const auto extremum = [&](float16 a, float16 b, float16 c, bool smaller) {
    set(0, 0, Two{{a, a}});
    set(1, 0, Two{{b, b}});
    set(2, 0, Two{{c, c}});
    const auto got =
        smaller
            ? memory_.multimem_load_reduce<Operation::min, Order::relaxed, Scope::system, Accumulation::own>(at<Two>(0))
            : memory_.multimem_load_reduce<Operation::max, Order::relaxed, Scope::system, Accumulation::own>(
                  at<Two>(0));
    EXPECT_EQ(got.values[0].bits, got.values[1].bits);
    return got.values[0].bits;
  };
  EXPECT_EQ(extremum(nan, one, two, true), one.bits);
  EXPECT_EQ(extremum(one, nan, two, false), two.bits);
  EXPECT_EQ(extremum(nan, nan, nan, true), 0x7FFF);
  EXPECT_EQ(extremum(zero, minus_zero, zero, true), minus_zero.bits);
  EXPECT_EQ(extremum(minus_zero, zero, minus_zero, false), zero.bits);
}

TEST_F(ReplicatedMulticastTest, StoresToAllReplicasAndNowhereElse) {
  memory_.multimem_store<Order::release, Scope::system>(at<Vector<float, 4>>(1), Vector<float, 4>{{1, 2, 3, 4}});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (std::size_t i = 0; i < 12; ++i)
      EXPECT_EQ(get<float>(rank, i), i < 4 || i >= 8 ? 0.0F : static_cast<float>(i - 3)) << rank << ", " << i;
  }
}

TEST_F(ReplicatedMulticastTest, ReducesIntoAllReplicas) {
  for (std::size_t rank = 0; rank < 3; ++rank) set(rank, 2, static_cast<std::uint32_t>(rank * 10));
  memory_.multimem_reduce<Operation::add, Order::release, Scope::system>(at<std::uint32_t>(2), 5U);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(get<std::uint32_t>(rank, 2), rank * 10 + 5);
    EXPECT_EQ(get<std::uint32_t>(rank, 1), 0U);
    EXPECT_EQ(get<std::uint32_t>(rank, 3), 0U);
  }
  memory_.multimem_reduce<Operation::max, Order::relaxed, Scope::device>(
      at<Vector<BFloat16Pair, 2>>(0), Vector<BFloat16Pair, 2>{{{bfloat16::from(3.0F), bfloat16::from(-1.0F)}, {}}});
  EXPECT_EQ(get<bfloat16>(2, 0).to_float(), 3.0F);
  EXPECT_EQ(get<bfloat16>(2, 1).to_float(), 0.0F);
}

TEST_F(ReplicatedMulticastTest, ConcurrentReductionsAllCount) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        memory_.multimem_reduce<Operation::add, Order::relaxed, Scope::system>(
            at<Vector<float16, 2>>(0), Vector<float16, 2>{{float16::from(1.0F), float16::from(0.5F)}});
    });
  }
  for (std::thread& each : threads) each.join();
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(get<float16>(rank, 0).to_float(), 2000.0F);
    EXPECT_EQ(get<float16>(rank, 1).to_float(), 1000.0F);
  }
}

TEST_F(ReplicatedMulticastTest, RefusesWhatIsNotWithinOrNotAligned) {
  const auto load = [&](std::uint64_t* address) {
    return memory_.multimem_load_reduce<Operation::add, Order::relaxed, Scope::system, Accumulation::own>(address);
  };
  EXPECT_THROW(static_cast<void>(load(at<std::uint64_t>(replica_bytes / 8))), std::out_of_range);
  EXPECT_THROW(static_cast<void>(load(at<std::uint64_t>(0) - 1)), std::out_of_range);
  EXPECT_NO_THROW(static_cast<void>(load(at<std::uint64_t>(replica_bytes / 8 - 1))));
  auto* const between = reinterpret_cast<std::uint64_t*>(at<std::byte>(4));
  EXPECT_THROW(static_cast<void>(load(between)), std::invalid_argument);
}

}  // namespace
}  // namespace cuvmm::gpu
