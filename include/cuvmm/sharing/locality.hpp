// On which host a process runs, so that others can tell whether descriptors can reach it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuvmm/error.hpp"

namespace cuvmm::sharing {

// A value that processes tell each other, by whatever means they have: before descriptors are sent, which only reach
// processes of the same host. Names of hosts are for people; what decides is the kernel's boot id, and which shared
// memory (the file system at /dev/shm) a process has, which tells containers of one host apart.
struct Locality {
  std::string host;           // its name
  std::string boot_id;        // of the running kernel; empty where the system does not tell
  std::string shared_memory;  // "26:1": device and inode of /dev/shm; empty where there is none

  // Of this process. Makes no file, and never fails: what cannot be learnt is empty.
  [[nodiscard]] static Locality here();

  // For sending, and back; nothing for bytes that are no such value. Throws InvalidUse for a text of more than 2048
  // bytes.
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  [[nodiscard]] static std::optional<Locality> from_bytes(std::span<const std::byte> bytes);

  friend bool operator==(const Locality&, const Locality&) noexcept = default;
};

// Whether both run on the same kernel: then a connection between them carries descriptors.
[[nodiscard]] bool same_kernel(const Locality& one, const Locality& other) noexcept;

// Whether both are on the same kernel and in the same container, as far as that is known.
[[nodiscard]] bool same_host(const Locality& one, const Locality& other) noexcept;

// Throws NotSupported, which names two ranks and their hosts, unless all are on the same host. `ranks` is in the order
// of ranks.
void require_same_host(std::span<const Locality> ranks);

}  // namespace cuvmm::sharing
