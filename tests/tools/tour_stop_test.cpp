#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "command/driver_choice.hpp"
#include "command/input_error.hpp"
#include "temporary_directory.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stop.hpp"
#include "tour/tour.hpp"

namespace cuvmm::tour {
namespace {

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;
constexpr std::uint64_t plenty = std::uint64_t{100} << 30;

TEST(TourWindow, HoldsASmallInputInWholeGranules) {
  EXPECT_EQ(window_bytes(5 * mebi, 2 * mebi, plenty), 6 * mebi);
  EXPECT_EQ(window_bytes(6 * mebi, 2 * mebi, plenty), 6 * mebi);
}

TEST(TourWindow, HasAtLeastTwoGranules) {
  EXPECT_EQ(window_bytes(0, 2 * mebi, plenty), 4 * mebi);
  EXPECT_EQ(window_bytes(1, 2 * mebi, plenty), 4 * mebi);
}

TEST(TourWindow, IsBoundedForALargeInput) {
  EXPECT_EQ(window_bytes(1000 * mebi, 2 * mebi, plenty), 64 * mebi);
}

TEST(TourWindow, LeavesADeviceWithLittleMemoryMostOfIt) {
  EXPECT_EQ(window_bytes(1000 * mebi, 2 * mebi, 32 * mebi), 8 * mebi);
}

TEST(TourPieces, AreTheWholeInputInOrder) {
  const tests::TemporaryDirectory directory;
  const std::string path = directory.path("file");
  std::ofstream(path) << "0123456789abcdefghi";
  const InputFile input(path);
  Checks checks;
  command::Progress progress;
  Visit visit{Driver::wrap(nullptr), {}, input, 0, command::DriverChoice::emulated, progress, checks, "", 0};

  std::string together;
  std::vector<std::uint64_t> offsets;
  for_each_piece(visit, 8, [&](std::uint64_t offset, std::span<std::byte> piece) {
    offsets.push_back(offset);
    for (const std::byte byte : piece) together += static_cast<char>(byte);
    std::fill(piece.begin(), piece.end(), std::byte{0});
  });
  EXPECT_EQ(together, "0123456789abcdefghi");
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{0, 8, 16}));
  EXPECT_EQ(visit.bytes, 19U);
}

TEST(TourPieces, OfAnEmptyInputAreNone) {
  const tests::TemporaryDirectory directory;
  std::ofstream(directory.path("file")) << "";
  const InputFile input(directory.path("file"));
  Checks checks;
  command::Progress progress;
  Visit visit{Driver::wrap(nullptr), {}, input, 0, command::DriverChoice::emulated, progress, checks, "", 0};
  for_each_piece(visit, 8, [](std::uint64_t, std::span<std::byte>) { FAIL() << "a piece of nothing"; });
  EXPECT_EQ(visit.bytes, 0U);
}

TEST(TourSample, IsTheInputsBeginningOrAllOfItAndMore) {
  const tests::TemporaryDirectory directory;
  const std::string path = directory.path("file");
  std::ofstream(path) << "0123456789";
  const InputFile input(path);
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(text(sample_of_input(input, 4)), "0123");
  EXPECT_EQ(text(sample_of_input(input, 10)), "0123456789");
  const std::vector<std::byte> more = sample_of_input(input, 4096);
  EXPECT_EQ(text(std::span(more).first(10)), "0123456789");
  EXPECT_NE(text(std::span(more).subspan(1024, 64)), text(std::span(more).subspan(2048, 64)));
  EXPECT_TRUE(sample_of_input(input, 0).empty());
}

TEST(TourViolations, PassIfTheyAreRefusedAndAreNamed) {
  Checks checks;
  require_refused(checks, abi::CUDA_ERROR_NOT_SUPPORTED, {abi::CUDA_ERROR_INVALID_VALUE, abi::CUDA_ERROR_NOT_SUPPORTED},
                  "mapping a part");
  ASSERT_EQ(checks.made().size(), 1U);
  EXPECT_EQ(checks.made()[0].statement, "mapping a part is refused with CUDA_ERROR_NOT_SUPPORTED");
}

TEST(TourViolations, FailIfTheyAreAcceptedOrRefusedForAnotherReason) {
  const auto failure = [](abi::CUresult result) -> std::string {
    Checks checks;
    try {
      require_refused(checks, result, {abi::CUDA_ERROR_INVALID_VALUE, abi::CUDA_ERROR_NOT_SUPPORTED}, "mapping a part");
    } catch (const CheckFailed& failed) {
      return failed.what();
    }
    return "none";
  };
  const std::string rule =
      "mapping a part is refused with CUDA_ERROR_INVALID_VALUE or CUDA_ERROR_NOT_SUPPORTED: the driver ";
  EXPECT_EQ(failure(abi::CUDA_SUCCESS), rule + "accepted it");
  EXPECT_EQ(failure(abi::CUDA_ERROR_OUT_OF_MEMORY), rule + "answered CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(failure(abi::CUDA_ERROR_INVALID_VALUE), "none");
}

TEST(TourViolations, AreAcceptedOnceMended) {
  Checks checks;
  require_accepted(checks, abi::CUDA_SUCCESS, "mapping the whole");
  EXPECT_TRUE(checks.made()[0].passed);
  try {
    require_accepted(checks, abi::CUDA_ERROR_INVALID_VALUE, "mapping the whole");
    FAIL();
  } catch (const CheckFailed& failed) {
    EXPECT_STREQ(failed.what(), "mapping the whole is accepted: the driver answered CUDA_ERROR_INVALID_VALUE");
  }
}

TEST(TourStops, HaveIdsOfTheirOwnInOrder) {
  std::vector<std::string> ids;
  for (const Stop& stop : all_stops()) ids.push_back(stop.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"4.16.1.2", "4.16.2", "4.16.3.1", "4.16.3.2", "4.16.3.3", "4.16.3.4",
                                           "4.16.3.5", "4.16.4.1", "4.16.4.2", "4.16.4.3", "4.16.4.4", "4.16.5.1",
                                           "4.16.5.2", "4.16.5.3", "4.16.5.4", "vector", "ring", "stitched", "sleep"}));
}

TEST(TourStops, AreChosenByIdAndStayInOrder) {
  EXPECT_EQ(choose_stops({}).size(), all_stops().size());
  const std::vector<Stop> chosen = choose_stops({"4.16.3.4", "4.16.1.2", "4.16.3.4"});
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0].id, "4.16.1.2");
  EXPECT_EQ(chosen[1].id, "4.16.3.4");
  EXPECT_THROW(static_cast<void>(choose_stops({"4.16.1.2", "4.16"})), command::InputError);
}

}  // namespace
}  // namespace cuvmm::tour
