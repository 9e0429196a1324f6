// On which host a process runs, and on which machine its driver's memory is, so that others can tell which handles of
// memory mean something to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuvmm/driver.hpp"
#include "cuvmm/error.hpp"

namespace cuvmm::sharing {

// A value that processes tell each other, by whatever means they have: before descriptors are sent, which only reach
// processes of the same host. Names of hosts are for people; what decides is the kernel's boot id, and which shared
// memory (the file system at /dev/shm) a process has, which tells containers of one host apart. A real driver's memory
// is the host's; an emulated one's is on a node of a machine of its own, and two processes of one host may be on two
// nodes.
struct Locality {
  std::string host;           // its name
  std::string boot_id;        // of the running kernel; empty where the system does not tell
  std::string shared_memory;  // "26:1": device and inode of /dev/shm; empty where there is none
  // What tells the machine apart that the driver's memory is on: of an emulated driver, its machine; "real" of any
  // other one. Empty where it is not known which driver the process has.
  std::string machine{};
  std::uint32_t node = 0;  // of that machine; a real one is its host's only one

  // Of this process, whatever driver it has. Makes no file, and never fails: what cannot be learnt is empty.
  [[nodiscard]] static Locality here();
  // Of this process with that driver.
  [[nodiscard]] static Locality of(const Driver& driver);

  // For sending, and back; nothing for bytes that are no such value. Throws InvalidUse for a text of more than 2048
  // bytes.
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  [[nodiscard]] static std::optional<Locality> from_bytes(std::span<const std::byte> bytes);

  friend bool operator==(const Locality&, const Locality&) noexcept = default;
};

// Whether both run on the same kernel: then a connection between them carries descriptors.
[[nodiscard]] bool same_kernel(const Locality& one, const Locality& other) noexcept;

// Whether both have their memory on the same machine, as far as that is known: on one that is emulated, or each on a
// real one. Handles of another machine are foreign, of whatever type.
[[nodiscard]] bool same_machine(const Locality& one, const Locality& other) noexcept;

// Whether a descriptor of the one's memory means the same to the other: both are on the same kernel and, where that is
// known, on the same node of the same machine. Between nodes fabric handles do.
[[nodiscard]] bool same_node(const Locality& one, const Locality& other) noexcept;

// Whether both are on the same node and in the same container, as far as that is known.
[[nodiscard]] bool same_host(const Locality& one, const Locality& other) noexcept;

// Throws NotSupported, which names two ranks and their hosts, unless all are on the same host. `ranks` is in the order
// of ranks. Localities of a driver (of()) tell emulated nodes apart, too.
void require_same_host(std::span<const Locality> ranks);

}  // namespace cuvmm::sharing
