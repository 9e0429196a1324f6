#include "sleep/backup.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cuvmm/unique_descriptor.hpp"
#include "cuvmm/units.hpp"
#include "sleep/pinned_memory.hpp"
#include "sleep/streaming_copy.hpp"
#include "system_failure.hpp"

namespace cuvmm::sleep {

namespace {

class PinnedBackup final : public Backup {
 public:
  explicit PinnedBackup(PinnedMemory memory) noexcept
      : Backup(SleepingContent::pinned, memory.size()), memory_(std::move(memory)) {}

  Result<void> write(std::uint64_t at, std::span<const std::byte> bytes) override {
    std::memcpy(memory_.data() + at, bytes.data(), bytes.size());
    return {};
  }
  Result<void> read(std::uint64_t at, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), memory_.data() + at, bytes.size());
    return {};
  }
  std::byte* pinned(std::uint64_t at) noexcept override { return memory_.data() + at; }

 private:
  PinnedMemory memory_;
};

// Mapped by itself, so that all of it goes back to the system at once.
class PageableBackup final : public Backup {
 public:
  PageableBackup(std::byte* data, std::size_t bytes) noexcept : Backup(SleepingContent::pageable, bytes), data_(data) {}
  PageableBackup(const PageableBackup&) = delete;
  PageableBackup& operator=(const PageableBackup&) = delete;
  PageableBackup(PageableBackup&&) = delete;
  PageableBackup& operator=(PageableBackup&&) = delete;
  ~PageableBackup() override {
    if (::munmap(data_, size()) != 0)
      report_cleanup_failure(system_failure("munmap", fmt::format("bytes = {}", size()), errno));
  }

  Result<void> write(std::uint64_t at, std::span<const std::byte> bytes) override {
    copy_past_caches(data_ + at, bytes.data(), bytes.size());
    return {};
  }
  Result<void> read(std::uint64_t at, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), data_ + at, bytes.size());
    return {};
  }
  std::byte* pinned(std::uint64_t) noexcept override { return nullptr; }

 private:
  std::byte* data_;
};

class FileBackup final : public Backup {
 public:
  FileBackup(UniqueDescriptor file, std::size_t bytes) noexcept
      : Backup(SleepingContent::file, bytes), file_(std::move(file)) {}

  Result<void> write(std::uint64_t at, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return failure("pwrite", at, bytes.size(), count < 0 ? errno : ENOSPC);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      at += static_cast<std::uint64_t>(count);
    }
    return {};
  }
  Result<void> read(std::uint64_t at, std::span<std::byte> bytes) const override {
    while (!bytes.empty()) {
      const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return failure("pread", at, bytes.size(), count < 0 ? errno : EIO);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      at += static_cast<std::uint64_t>(count);
    }
    return {};
  }
  std::byte* pinned(std::uint64_t) noexcept override { return nullptr; }

 private:
  static Failure failure(std::string_view call, std::uint64_t at, std::size_t bytes, int error) {
    return system_failure(call, fmt::format("offset = {}, bytes = {}", at, bytes), error);
  }

  UniqueDescriptor file_;
};

Result<std::shared_ptr<Backup>> make_pageable(std::size_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    Failure failure = system_failure("mmap", fmt::format("bytes = {} ({})", bytes, format_bytes(bytes)), errno);
    failure.asked_bytes = bytes;
    failure.way_out = "Keep the content in a file, or discard it";
    return failure;
  }
  (void)::madvise(data, bytes, MADV_HUGEPAGE);  // fewer faults; not everywhere, and no matter where not
  auto* const begin = static_cast<std::byte*>(data);
  try {
    return std::shared_ptr<Backup>(std::make_shared<PageableBackup>(begin, bytes));
  } catch (...) {
    ::munmap(data, bytes);
    throw;
  }
}

// Without a name from the beginning where the file system can do that, else from the moment on that it is open.
UniqueDescriptor open_without_a_name(const std::string& directory) {
  UniqueDescriptor file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = directory + "/cuvmm-sleep-" + std::string(6, 'X');  // as mkostemp wants it
  UniqueDescriptor named(::mkostemp(path.data(), O_CLOEXEC));
  if (named) ::unlink(path.c_str());
  return named;
}

Result<std::shared_ptr<Backup>> make_file(const std::string& asked, std::size_t bytes) {
  const char* const temporary = std::getenv("TMPDIR");
  const std::string directory = !asked.empty()                               ? asked
                                : temporary != nullptr && *temporary != '\0' ? temporary
                                                                             : "/tmp";
  const auto failed = [&](std::string_view call) {
    const int error = errno;
    Failure failure = system_failure(call, fmt::format("directory = {}, bytes = {}", directory, bytes), error);
    if (error == ENOENT || error == ENOTDIR) {
      failure.kind = ErrorKind::invalid_use;
      failure.rule = "What is named for the content of ranges that sleep must be a directory that is there";
    } else if (error == EACCES || error == EPERM || error == EROFS) {
      failure.kind = ErrorKind::not_permitted;
      failure.feature = "a file in that directory";
    }
    if (failure.way_out.empty())
      failure.way_out =
          "Name a directory with room for the content, which this process may write to, in "
          "SleepPolicy::directory";
    return failure;
  };
  UniqueDescriptor file = open_without_a_name(directory);
  if (!file) return failed("open");
  int result = 0;
  do {
    result = ::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EOPNOTSUPP) result = ::ftruncate(file.get(), static_cast<off_t>(bytes));
  if (result != 0) return failed("fallocate");
  return std::shared_ptr<Backup>(std::make_shared<FileBackup>(std::move(file), bytes));
}

}  // namespace

Result<std::shared_ptr<Backup>> make_backup(const Device& device, const SleepPolicy& policy, std::size_t bytes) {
  if (policy.content == SleepingContent::pageable) return make_pageable(bytes);
  if (policy.content == SleepingContent::file) return make_file(policy.directory, bytes);
  auto memory = PinnedMemory::allocate(device, bytes);
  if (!memory) return memory.failure();
  return std::shared_ptr<Backup>(std::make_shared<PinnedBackup>(std::move(memory).value()));
}

}  // namespace cuvmm::sleep
