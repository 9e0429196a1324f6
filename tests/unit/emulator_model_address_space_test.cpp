#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

#include "emulator/model/address_space.hpp"

namespace cuvmm::emulator::model {
namespace {

constexpr CUdeviceptr base = 0x10000;
constexpr std::uint64_t size = 0x1000;

TEST(AddressSpace, TakesTheLowestPieceThatFits) {
  AddressSpace space(base, size);
  EXPECT_EQ(space.take(0x100, 1), base);
  EXPECT_EQ(space.take(0x100, 1), base + 0x100);
  space.give_back(base, 0x100);
  EXPECT_EQ(space.take(0x200, 1), base + 0x200);
  EXPECT_EQ(space.take(0x80, 1), base);
}

TEST(AddressSpace, HeedsAlignment) {
  AddressSpace space(base + 0x10, size);
  EXPECT_EQ(space.take(0x10, 0x100), base + 0x100);
  EXPECT_EQ(space.take(0x10, 1), base + 0x10);
  EXPECT_EQ(space.take(0x10, std::uint64_t{1} << 63), std::nullopt);
}

TEST(AddressSpace, HonoursAHintWhereItIsFreeAndElseTakesAnotherPiece) {
  AddressSpace space(base, size);
  EXPECT_EQ(space.take(0x100, 0x100, base + 0x500), base + 0x500);
  EXPECT_EQ(space.take(0x100, 0x100, base + 0x500), base) << "taken";
  EXPECT_EQ(space.take(0x200, 0x100, base + 0x400), base + 0x100) << "does not fit there";
  EXPECT_EQ(space.take(0x100, 0x100, base + 0x680), base + 0x300) << "not aligned";
  EXPECT_EQ(space.take(0x100, 0x100, base + size), base + 0x400) << "outside";
  EXPECT_EQ(space.take(0x100, 0x100, base - 0x100), base + 0x600) << "outside";
}

TEST(AddressSpace, RefusesWhatDoesNotFitAndTakesWhatJustFits) {
  AddressSpace space(base, size);
  EXPECT_EQ(space.take(size + 1, 1), std::nullopt);
  EXPECT_EQ(space.take(~std::uint64_t{0}, 1), std::nullopt);
  EXPECT_EQ(space.largest_free_piece(), size);
  EXPECT_EQ(space.take(size, 1), base);
  EXPECT_EQ(space.largest_free_piece(), 0U);
  EXPECT_EQ(space.take(1, 1), std::nullopt);
  space.give_back(base, size);
  EXPECT_EQ(space.take(size, 1), base);
}

TEST(AddressSpace, TakesAPieceWhereItIsAskedFor) {
  AddressSpace space(base, size);
  EXPECT_TRUE(space.take_at(base + 0x100, 0x200));
  EXPECT_FALSE(space.take_at(base + 0x100, 0x100)) << "taken";
  EXPECT_FALSE(space.take_at(base, 0x101)) << "taken in part";
  EXPECT_FALSE(space.take_at(base + size - 0x10, 0x11)) << "past the end";
  EXPECT_FALSE(space.take_at(base - 0x10, 0x10)) << "outside";
  EXPECT_TRUE(space.take_at(base, 0x100));
  EXPECT_TRUE(space.take_at(base + 0x300, size - 0x300));
  EXPECT_EQ(space.largest_free_piece(), 0U);
  space.give_back(base + 0x100, 0x200);
  EXPECT_TRUE(space.take_at(base + 0x200, 0x80));
}

TEST(AddressSpace, JoinsPiecesGivenBackInAnyOrder) {
  for (const auto& order : {std::vector{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    AddressSpace space(base, 0x300);
    for (int piece = 0; piece < 3; ++piece) ASSERT_TRUE(space.take(0x100, 1));
    for (const int piece : order) space.give_back(base + static_cast<CUdeviceptr>(piece) * 0x100, 0x100);
    EXPECT_EQ(space.largest_free_piece(), 0x300U);
  }
}

TEST(AddressSpace, KnowsWhichAddressesAreIts) {
  const AddressSpace space(base, size);
  EXPECT_FALSE(space.contains(base - 1));
  EXPECT_TRUE(space.contains(base));
  EXPECT_TRUE(space.contains(base + size - 1));
  EXPECT_FALSE(space.contains(base + size));
}

TEST(AddressSpace, TellsWhatIsFreeAtItsEnds) {
  AddressSpace space(base, size);
  EXPECT_EQ(space.free_at_begin(), size);
  EXPECT_EQ(space.free_at_end(), size);
  ASSERT_TRUE(space.take_at(base + 64, 64));
  EXPECT_EQ(space.free_at_begin(), 64U);
  EXPECT_EQ(space.free_at_end(), size - 128);
  ASSERT_TRUE(space.take_at(base, 64));
  EXPECT_EQ(space.free_at_begin(), 0U);
  ASSERT_TRUE(space.take_at(base + 128, size - 128));
  EXPECT_EQ(space.free_at_end(), 0U);
  EXPECT_EQ(space.free_at_begin(), 0U);
}

TEST(AddressSpace, TakesADividedPieceBackInParts) {
  AddressSpace space(base, size);
  ASSERT_TRUE(space.take_at(base, size));
  space.divide();
  space.divide();
  space.give_back(base, 64);
  space.give_back(base + 128, size - 128);
  space.give_back(base + 64, 64);
  EXPECT_EQ(space.largest_free_piece(), size);
}

// Whatever is taken and given back: pieces never overlap, are aligned and inside, the first that fits is taken, and in
// the end all is one free piece again.
RC_GTEST_PROP(AddressSpaceProperty, ConservesAddresses, ()) {
  constexpr std::uint64_t unit = 16;
  AddressSpace space(base, size);
  std::map<CUdeviceptr, std::uint64_t> taken;
  const auto free_at = [&](CUdeviceptr address, std::uint64_t bytes) {
    if (address < base || address + bytes > base + size) return false;
    for (const auto& [begin, length] : taken)
      if (begin < address + bytes && address < begin + length) return false;
    return true;
  };
  const auto steps = *rc::gen::inRange(0, 200);
  for (int step = 0; step < steps; ++step) {
    if (!taken.empty() && *rc::gen::inRange(0, 5) < 2) {
      auto piece = taken.begin();
      std::advance(piece, *rc::gen::inRange<std::size_t>(0, taken.size()));
      space.give_back(piece->first, piece->second);
      taken.erase(piece);
      continue;
    }
    const std::uint64_t bytes = unit * *rc::gen::inRange<std::uint64_t>(1, 40);
    const std::uint64_t alignment = std::uint64_t{1} << *rc::gen::inRange(0, 9);
    const CUdeviceptr hint = *rc::gen::element<CUdeviceptr>(0, base + unit * *rc::gen::inRange<std::uint64_t>(0, 300));
    CUdeviceptr expected = hint != 0 && hint % alignment == 0 && free_at(hint, bytes) ? hint : 0;
    for (CUdeviceptr address = base; expected == 0 && address < base + size; address += unit)
      if (address % alignment == 0 && free_at(address, bytes)) expected = address;
    const auto found = space.take(bytes, alignment, hint);
    RC_ASSERT(found.value_or(0) == expected);
    if (found) taken[*found] = bytes;
  }
  for (const auto& [address, bytes] : taken) space.give_back(address, bytes);
  RC_ASSERT(space.largest_free_piece() == size);
  RC_ASSERT(space.take(size, 1) == base);
}

}  // namespace
}  // namespace cuvmm::emulator::model
