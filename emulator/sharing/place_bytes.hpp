// A place's file, as the broker sent it.
#pragma once

#include "emulator/memory/mapped_file.hpp"

namespace cuvmm::emulator::sharing {

// Forked children have no mapping of it: its bytes can come to belong to another process while a child lives.
class PlaceBytes final : public memory::MappedFile {
 public:
  explicit PlaceBytes(memory::FileDescriptor file) : MappedFile(std::move(file), Children::have_none) {}
};

}  // namespace cuvmm::emulator::sharing
