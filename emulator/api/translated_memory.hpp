// A running launch's accesses to device addresses, one by one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/api/alias_tracker.hpp"
#include "emulator/api/machine.hpp"
#include "emulator/execution/fiber.hpp"
#include "emulator/host_kernel.hpp"

namespace cuvmm::emulator::api {

// Finds the bytes behind each address with the rights of the launch's device, remembers what it has found, and tells
// the tracker of every access. What was found is looked at again, and forgotten, whenever the launch gives way: what
// was unmapped under a running launch is noticed as with views. Used by one thread at a time.
class TranslatedMemory final : public DeviceMemory {
 public:
  TranslatedMemory(Machine& machine, AliasTracker::Launch launch, model::Accessor who)
      : machine_(machine), launch_(launch), who_(who) {}

  // Throw multimem::Fault.
  const std::byte* read(std::uint64_t address, std::size_t bytes) override;
  std::byte* write(std::uint64_t address, std::size_t bytes) override;
  MulticastWindow read_multicast(std::uint64_t address, std::size_t bytes) override;
  MulticastWindow write_multicast(std::uint64_t address, std::size_t bytes) override;
  void alias_fence() override;
  void give_way() override { fiber_->give_way(); }

  // Which block's fiber the next accesses are made by.
  void use(execution::Fiber& fiber) noexcept { fiber_ = &fiber; }
  // Forgets what was found, and answers whether all of it still is as it was.
  [[nodiscard]] bool forget();
  // Whether something was written since this was last asked.
  [[nodiscard]] bool take_wrote() noexcept { return std::exchange(wrote_, false); }
  // Why the last access that was no access was refused.
  [[nodiscard]] const Answer& refusal() const noexcept { return refusal_; }
  // The first read that lacked a fence.
  [[nodiscard]] const std::optional<std::string>& finding() const noexcept { return finding_; }

 private:
  struct Kind {
    bool multicast = false;
    bool write = false;
    friend auto operator<=>(const Kind&, const Kind&) = default;
  };
  struct Found {
    AddressRange range;
    Access access;
    std::vector<std::byte*> places;  // of the first byte: one, or one for each device of a multicast object
  };

  const Found& touch(std::uint64_t address, std::size_t bytes, Kind kind);
  const Found& find(std::uint64_t address, std::size_t bytes, Kind kind);
  Answer find_exactly(const AddressRange& range, Kind kind, Found& found);
  [[nodiscard]] AddressRange around(std::uint64_t address, std::size_t bytes, Kind kind);
  MulticastWindow window(std::uint64_t address, std::size_t bytes, bool write);
  void tell_of_last_write();

  Machine& machine_;
  const AliasTracker::Launch launch_;
  const model::Accessor who_;
  execution::Fiber* fiber_ = nullptr;
  std::map<Kind, std::map<std::uint64_t, Found>> found_;  // by their beginnings
  std::vector<std::byte*> replicas_;                      // of the last window
  std::optional<AliasTracker::Access> last_write_;        // of which the tracker was not told yet
  bool wrote_ = false;
  Answer refusal_;
  std::optional<std::string> finding_;
};

}  // namespace cuvmm::emulator::api
