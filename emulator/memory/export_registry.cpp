#include "emulator/memory/export_registry.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

namespace cuvmm::emulator::memory {

std::optional<ExportRegistry::Identity> ExportRegistry::identify(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    if (errno == EBADF) return std::nullopt;
    throw std::system_error(errno, std::generic_category(), "cannot look at a descriptor (fstat)");
  }
  if (!S_ISFIFO(status.st_mode)) return std::nullopt;
  return Identity{status.st_dev, status.st_ino};
}

std::optional<int> ExportRegistry::keep(Export made) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return std::nullopt;
  made.kept_end = FileDescriptor(ends[0]);
  FileDescriptor given(ends[1]);
  const auto identity = identify(given.get());
  if (!identity) return std::nullopt;
  exports_[*identity] = std::move(made);
  return given.release();
}

std::optional<int> ExportRegistry::add(std::vector<std::uint64_t> allocations, Use use) {
  return keep({std::move(allocations), use, {}, nullptr});
}

std::optional<int> ExportRegistry::add_pool(std::shared_ptr<SharedPool> pool) {
  return keep({{}, Use::pool, {}, std::move(pool)});
}

const ExportRegistry::Export* ExportRegistry::find(int descriptor, Use use) const {
  const auto identity = identify(descriptor);
  if (!identity) return nullptr;
  const auto found = exports_.find(*identity);
  // The kept end has the same inode; it is nobody's to import.
  if (found == exports_.end() || found->second.use != use || found->second.kept_end.get() == descriptor) return nullptr;
  return &found->second;
}

std::optional<std::uint64_t> ExportRegistry::find(int descriptor) const {
  const Export* const found = find(descriptor, Use::import);
  return found == nullptr ? std::nullopt : std::optional(found->allocations.front());
}

std::shared_ptr<SharedPool> ExportRegistry::find_pool(int descriptor) const {
  const Export* const found = find(descriptor, Use::pool);
  return found == nullptr ? nullptr : found->pool;
}

std::vector<std::uint64_t> ExportRegistry::take_closed() {
  std::vector<pollfd> kept_ends;
  kept_ends.reserve(exports_.size());
  std::size_t allocations = 0;
  for (const auto& [identity, exported] : exports_) {
    kept_ends.push_back({exported.kept_end.get(), 0, 0});
    allocations += exported.allocations.size();
  }
  std::vector<std::uint64_t> closed;
  closed.reserve(allocations);  // nothing may fail once exports are forgotten
  if (::poll(kept_ends.data(), kept_ends.size(), 0) <= 0) return closed;
  auto entry = exports_.begin();
  for (const pollfd& kept : kept_ends) {
    if ((kept.revents & POLLHUP) != 0) {
      closed.insert(closed.end(), entry->second.allocations.begin(), entry->second.allocations.end());
      entry = exports_.erase(entry);
    } else {
      ++entry;
    }
  }
  return closed;
}

}  // namespace cuvmm::emulator::memory
