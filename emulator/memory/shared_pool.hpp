// A memory pool whose memory processes share.
#pragma once

#include <cstdint>

#include "emulator/model/place.hpp"

namespace cuvmm::emulator::memory {

// As each process that has it knows it.
struct SharedPool {
  std::uint64_t id = 0;  // 0: it was not shared yet
  model::Place place;
};

}  // namespace cuvmm::emulator::memory
