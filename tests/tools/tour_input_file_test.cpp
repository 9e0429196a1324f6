#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

#include "command/input_error.hpp"
#include "temporary_directory.hpp"
#include "tour/input_file.hpp"

namespace cuvmm::tour {
namespace {

class TourInputFile : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) {
    std::string path = directory_.path(name);
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  // The sentence with which opening that path is refused.
  static std::string refusal(const std::string& path) {
    try {
      const InputFile file(path);
      return "accepted";
    } catch (const command::InputError& error) {
      return error.what();
    }
  }

  tests::TemporaryDirectory directory_;
};

TEST_F(TourInputFile, ReadsAnyPartOfAnOrdinaryFile) {
  const InputFile file(write("file", "0123456789"));
  EXPECT_EQ(file.size(), 10U);
  std::array<std::byte, 3> part{};
  file.read(4, part);
  EXPECT_EQ(std::memcmp(part.data(), "456", 3), 0);
}

TEST_F(TourInputFile, AcceptsAnEmptyFileAndOneByte) {
  EXPECT_EQ(InputFile(write("empty", "")).size(), 0U);
  EXPECT_EQ(InputFile(write("one", "x")).size(), 1U);
}

TEST_F(TourInputFile, FollowsALink) {
  const std::string link = directory_.path("link");
  ASSERT_EQ(::symlink(write("file", "abc").c_str(), link.c_str()), 0);
  EXPECT_EQ(InputFile(link).size(), 3U);
}

TEST_F(TourInputFile, RefusesAMissingFile) {
  const std::string path = directory_.path("missing");
  EXPECT_EQ(refusal(path), "'" + path + "' does not exist.");
  write("missing", "x");
  EXPECT_EQ(refusal(path), "accepted");
}

TEST_F(TourInputFile, RefusesADirectory) {
  EXPECT_EQ(refusal(directory_.path("")), "'" + directory_.path("") + "' is a directory: name one of the files in it.");
}

TEST_F(TourInputFile, RefusesAPipeWithoutWaitingForItsWriter) {
  const std::string path = directory_.path("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(refusal(path).find("is a pipe"), std::string::npos);
}

TEST_F(TourInputFile, RefusesADevice) {
  EXPECT_NE(refusal("/dev/zero").find("is a device"), std::string::npos);
  EXPECT_NE(refusal("/dev/null").find("is a device"), std::string::npos);
}

TEST_F(TourInputFile, RefusesASocket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = directory_.path("socket");
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_NE(refusal(path).find("is a socket"), std::string::npos);
  ::close(descriptor);
}

TEST_F(TourInputFile, RefusesAFileThatTellsNoSize) {
  EXPECT_NE(refusal("/proc/self/status").find("tells no size"), std::string::npos);
}

TEST_F(TourInputFile, NoticesThatTheFileBecameShorter) {
  const std::string path = write("file", "0123456789");
  const InputFile file(path);
  ASSERT_EQ(::truncate(path.c_str(), 5), 0);
  std::array<std::byte, 5> part{};
  EXPECT_NO_THROW(file.read(0, part));
  EXPECT_THROW(file.read(1, part), command::InputError);
}

TEST_F(TourInputFile, NoticesThatTheFileWasWrittenTo) {
  const std::string path = write("file", "0123456789");
  const InputFile file(path);
  EXPECT_NO_THROW(file.require_unchanged());
  std::ofstream(path, std::ios::app) << "more";
  EXPECT_THROW(file.require_unchanged(), command::InputError);
}

}  // namespace
}  // namespace cuvmm::tour
