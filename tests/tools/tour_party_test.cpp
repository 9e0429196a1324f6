// Other processes of a stop, and what becomes of one that ends, or stops, or cannot begin.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "cuvmm/cuvmm.hpp"
#include "temporary_directory.hpp"
#include "tour/content_checksum.hpp"
#include "tour/gpu.hpp"
#include "tour/party.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

constexpr std::size_t bytes = std::size_t{4} << 20;

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class TourParty : public ::testing::Test {
 protected:
  TourParty() {
    place_.driver = command::DriverChoice::emulated;
    place_.machine = directory_.path("machine");
    place_.nodes = 2;
    std::ofstream(file_) << "the file's bytes";
    ContentChecksum checksum;
    checksum.add(sample_of_input(InputFile(file_), bytes));
    expected_ = checksum.value();
  }

  // What the work fails with.
  template <class Work>
  static std::string failure_of(Work&& work) {
    try {
      work();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  }

  tests::TemporaryDirectory directory_;
  std::string file_ = directory_.path("file");
  command::DriverPlace place_;
  std::uint64_t expected_ = 0;
};

TEST_F(TourParty, HandsMemoryFromProcessToProcess) {
  const std::size_t open = open_descriptors();
  {
    Party exporter(place_, "the exporter", {});
    Party importer(place_, "the importer", {});
    exporter.make(file_, bytes, HandleType::posix_file_descriptor);
    importer.take(exporter.give());
    EXPECT_EQ(exporter.checksum(0, bytes, 0), expected_);
    EXPECT_EQ(importer.checksum(0, bytes, 0), expected_);
    importer.store(0, file_, 4, 5);
    EXPECT_NE(exporter.checksum(0, bytes, 0), expected_) << "it is one memory";
    exporter.drop();
    exporter.end();
    importer.drop();
    importer.end();
  }
  EXPECT_EQ(open_descriptors(), open);
}

TEST_F(TourParty, AFailureThereIsOneHere) {
  Party party(place_, "the party", {.node = 1});
  EXPECT_THROW(static_cast<void>(party.checksum(0, bytes, 0)), Error) << "it has nothing";
  EXPECT_THROW(party.make(directory_.path("missing"), bytes, HandleType::posix_file_descriptor), Error);
  EXPECT_EQ(party.import_number(400), abi::CUDA_ERROR_UNKNOWN);
  party.make(file_, bytes, HandleType::posix_file_descriptor);
  EXPECT_EQ(party.checksum(0, bytes, 0), expected_) << "and it goes on";
  party.end();
}

TEST_F(TourParty, OneThatCannotBeginSaysWhy) {
  Party first(place_, "the first", {});
  command::DriverPlace other = place_;
  other.devices = 9;
  const std::string why = failure_of([&] { const Party party(other, "the other", {}); });
  EXPECT_NE(why.find("devices is 9, but the machine"), std::string::npos) << why;
  EXPECT_NE(failure_of([&] { const Party party(place_, "the other", {.device = 8}); }).find("ordinal = 8"),
            std::string::npos);
  first.end();
}

TEST_F(TourParty, OneThatIsKilledIsNamedWithItsEnd) {
  Party party(place_, "the importer", {});
  const std::string process = std::to_string(party.process());
  ::kill(party.process(), SIGKILL);
  EXPECT_EQ(failure_of([&] { party.drop(); }),
            "the importer, process " + process + ", was ended by signal 9 when it was to drop");
}

TEST_F(TourParty, OneThatIsStoppedIsNotWaitedForForEver) {
  pid_t process = 0;
  {
    Party party(place_, "the importer", {.patience = std::chrono::seconds(2)});
    process = party.process();
    ::kill(process, SIGSTOP);
    EXPECT_EQ(failure_of([&] { party.drop(); }),
              "the importer, process " + std::to_string(process) + ", gave no answer in time when it was to drop");
  }
  EXPECT_EQ(::kill(process, 0), -1) << "it is gone";
}

}  // namespace
}  // namespace cuvmm::tour

int main(int count, char** words) {
  if (count > 1 && std::string(words[1]) == cuvmm::tour::party_command) {
    CLI::App application;
    cuvmm::tour::PartyCommand party;
    cuvmm::tour::add_party_command(application, party);
    CLI11_PARSE(application, count, words);
    return cuvmm::tour::run_party(party);
  }
  ::testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
