// Where the content of sleeping ranges is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cuvmm/device.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/sleepable_memory.hpp"

namespace cuvmm::sleep {

// A place for a number of bytes. Several threads may write and read different bytes of it at once.
class Backup {
 public:
  Backup(SleepingContent kind, std::size_t bytes) noexcept : kind_(kind), bytes_(bytes) {}
  Backup(const Backup&) = delete;
  Backup& operator=(const Backup&) = delete;
  Backup(Backup&&) = delete;
  Backup& operator=(Backup&&) = delete;
  virtual ~Backup() = default;

  [[nodiscard]] virtual Result<void> write(std::uint64_t at, std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual Result<void> read(std::uint64_t at, std::span<std::byte> bytes) const = 0;
  // The byte there, where devices copy from and to it by themselves; else null.
  [[nodiscard]] virtual std::byte* pinned(std::uint64_t at) noexcept = 0;

  [[nodiscard]] SleepingContent kind() const noexcept { return kind_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  SleepingContent kind_;
  std::size_t bytes_;
};

// A place of the kind that the policy asks for. The device is one whose context pinned memory is allocated in.
[[nodiscard]] Result<std::shared_ptr<Backup>> make_backup(const Device& device, const SleepPolicy& policy,
                                                          std::size_t bytes);

}  // namespace cuvmm::sleep
