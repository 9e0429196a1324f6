// A handle by which another process gets at physical memory.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <variant>

#include "cuvmm/physical_memory.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/unique_descriptor.hpp"

namespace cuvmm::sharing {

// The content of a fabric handle: bytes that can be sent by any means, also to another machine (CUmemFabricHandle).
using FabricBytes = std::array<std::byte, 64>;

// What the importer of a handle has to be told, since handles do not carry it.
struct ImportedMemory {
  std::size_t bytes = 0;  // the size that the memory was created with
  // What it is like, where that is known; handle types and GPUDirect RDMA are taken as none, since the driver grants
  // neither to imported memory. Nothing: the driver is asked, which also tells which of *this* process's devices it is.
  std::optional<MemoryProperties> properties{};
};

// One shareable handle and what the operating system keeps for it: an open descriptor, or 64 bytes (guide 4.16.3.1,
// 4.16.3.2; cuMemExportToShareableHandle, cuMemImportFromShareableHandle). A descriptor keeps the memory alive, in
// whatever process or socket it is; fabric bytes keep nothing. Handles that other libraries made can be taken in, and
// handles given out to them.
//
// Different objects may be used from different threads, and one object's const functions from several. A moved-from
// one may only be assigned to or destroyed.
class ShareableHandle {
 public:
  // A new handle to the memory, which has to be created for that: the type stands in MemoryProperties::handle_types.
  // Throws InvalidUse, before the driver is asked, for memory that was not, or that was imported; NotSupported for
  // handles of Windows; NotPermitted for fabric handles without an IMEX channel; OutOfDescriptors; and Error as the
  // driver fails.
  [[nodiscard]] static ShareableHandle export_from(const PhysicalMemory& memory, HandleType type);
  [[nodiscard]] static Result<ShareableHandle> try_export_from(const PhysicalMemory& memory, HandleType type);

  // Takes over a descriptor that was exported here or received. Throws InvalidUse if there is none. The number 0 is
  // changed for another one, since drivers take it for a null pointer.
  [[nodiscard]] static ShareableHandle adopt(UniqueDescriptor descriptor);

  // The same memory by a descriptor of its own: the caller keeps his. Throws InvalidUse if it is not open,
  // OutOfDescriptors.
  [[nodiscard]] static ShareableHandle copy_of(int descriptor);

  // A fabric handle that came as bytes.
  [[nodiscard]] static ShareableHandle from_bytes(const FabricBytes& bytes) noexcept { return ShareableHandle(bytes); }

  ShareableHandle(ShareableHandle&&) noexcept = default;
  ShareableHandle& operator=(ShareableHandle&&) noexcept = default;
  ShareableHandle(const ShareableHandle&) = delete;
  ShareableHandle& operator=(const ShareableHandle&) = delete;
  ~ShareableHandle() = default;

  [[nodiscard]] HandleType type() const noexcept {
    return std::holds_alternative<FabricBytes>(content_) ? HandleType::fabric : HandleType::posix_file_descriptor;
  }

  // The descriptor, which stays this object's; -1 for a fabric handle.
  [[nodiscard]] int descriptor() const noexcept;
  // Gives the descriptor to the caller, who closes it. Throws InvalidUse for a fabric handle.
  [[nodiscard]] UniqueDescriptor give_out_descriptor();
  // The bytes of a fabric handle; throws InvalidUse for a descriptor.
  [[nodiscard]] const FabricBytes& fabric_bytes() const;

  // The memory behind the handle, with a reference of its own; the handle may be used again. A wrong size shows when
  // the memory is mapped. Throws InvalidUse for a size of 0 and for a handle that is none, saying what it is;
  // NotPermitted and NotSupported for fabric handles that this process, or this machine, cannot have; OutOfDescriptors;
  // and Error as the driver fails.
  [[nodiscard]] PhysicalMemory import_into(const Driver& driver, const ImportedMemory& memory) const;
  [[nodiscard]] Result<PhysicalMemory> try_import_into(const Driver& driver, const ImportedMemory& memory) const;

 private:
  explicit ShareableHandle(UniqueDescriptor descriptor) noexcept : content_(std::move(descriptor)) {}
  explicit ShareableHandle(const FabricBytes& bytes) noexcept : content_(bytes) {}

  std::variant<UniqueDescriptor, FabricBytes> content_;
};

}  // namespace cuvmm::sharing
