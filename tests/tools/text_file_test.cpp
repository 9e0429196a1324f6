#include "command/text_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "command/input_error.hpp"
#include "temporary_directory.hpp"

namespace cuvmm::command {
namespace {

using tests::TemporaryDirectory;

std::string refusal_of(const std::string& path, std::uint64_t most_bytes = 100) {
  try {
    static_cast<void>(content_of_file(path, most_bytes));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(TextFile, ReadsARegularFileUpToItsLimit) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("file");
  std::ofstream(path) << std::string(100, 'x');
  EXPECT_EQ(content_of_file(path, 100), std::string(100, 'x'));
  EXPECT_EQ(refusal_of(path, 99), "'" + path + "' has 100 bytes; it may have 99 bytes at most.");
}

TEST(TextFile, RefusesWhatIsNoRegularFile) {
  const TemporaryDirectory directory;
  EXPECT_NE(refusal_of(directory.path(".")).find("is a directory"), std::string::npos);
  EXPECT_NE(refusal_of("/dev/zero").find("is no regular file"), std::string::npos);
  ASSERT_EQ(::mkfifo(directory.path("pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal_of(directory.path("pipe")).find("is no regular file"), std::string::npos);
  EXPECT_NE(refusal_of(directory.path("none")).find("cannot be read (No such file"), std::string::npos);
}

TEST(TextFile, TellsBeforehandWhetherItCanBeWritten) {
  const TemporaryDirectory directory;
  EXPECT_THROW(check_writable(directory.path("no/such/folder")), InputError);
  EXPECT_THROW(check_writable(directory.path(".")), InputError);
  std::ofstream(directory.path("file")) << "kept";
  EXPECT_NO_THROW(check_writable(directory.path("file")));
  EXPECT_EQ(content_of_file(directory.path("file"), 10), "kept");
  EXPECT_NO_THROW(check_writable(directory.path("new")));
}

TEST(TextFile, TellsWhereNotAllCouldBeWritten) {
  const TemporaryDirectory directory;
  EXPECT_THROW(write_file("/dev/full", "text"), InputError);
  EXPECT_NO_THROW(write_file("/dev/null", "text"));
  write_file(directory.path("file"), "longer");
  write_file(directory.path("file"), "text");
  EXPECT_EQ(content_of_file(directory.path("file"), 10), "text");
}

}  // namespace
}  // namespace cuvmm::command
