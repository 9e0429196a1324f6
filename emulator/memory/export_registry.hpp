// Exported descriptors, and which of them somebody still holds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/memory/file_descriptor.hpp"
#include "emulator/memory/shared_pool.hpp"

namespace cuvmm::emulator::memory {

// A descriptor given out is one end of a pipe whose other end stays here: its inode says which export it is, and the
// hang-up of the kept end says that every copy of it, in any process or on the way to one, was closed. Not thread-safe.
class ExportRegistry {
 public:
  enum class Use {
    import,     // find() knows it: it can be imported
    hold_only,  // it keeps memory, as a dma-buf does, but cannot be imported
    pool,       // it stands for a pool, of which find_pool() tells
  };

  // A new close-on-exec descriptor for the export of these allocations, one at least; the caller's to close. Nothing,
  // with errno set, if the operating system has none left.
  [[nodiscard]] std::optional<int> add(std::vector<std::uint64_t> allocations, Use use = Use::import);

  // Which allocation's export this open descriptor is (the first one's), if any of ours that can be imported.
  [[nodiscard]] std::optional<std::uint64_t> find(int descriptor) const;

  // The same for a pool that is shared, and which one it is.
  [[nodiscard]] std::optional<int> add_pool(std::shared_ptr<SharedPool> pool);
  [[nodiscard]] std::shared_ptr<SharedPool> find_pool(int descriptor) const;

  // Forgets the exports whose descriptors are all closed, and answers the allocations of each.
  [[nodiscard]] std::vector<std::uint64_t> take_closed();

  [[nodiscard]] std::size_t size() const noexcept { return exports_.size(); }

 private:
  struct Export {
    std::vector<std::uint64_t> allocations;
    Use use = Use::import;
    FileDescriptor kept_end;
    std::shared_ptr<SharedPool> pool;
  };
  using Identity = std::pair<std::uint64_t, std::uint64_t>;  // device and inode of the pipe

  [[nodiscard]] static std::optional<Identity> identify(int descriptor);
  [[nodiscard]] std::optional<int> keep(Export made);
  // The export that this open descriptor is, of that use; or null.
  [[nodiscard]] const Export* find(int descriptor, Use use) const;

  std::map<Identity, Export> exports_;
};

}  // namespace cuvmm::emulator::memory
