// The streams of a trace.
#pragma once

#include <cstdint>
#include <vector>

#include "cuvmm/driver.hpp"
#include "driver/call.hpp"

namespace cuvmm::replay {

// So many streams that wait for no other one, made by calls that are not counted. For one thread, which has a context.
class Streams {
 public:
  Streams(const Driver& driver, std::uint32_t count) : driver_(driver) {
    try {
      for (std::uint32_t i = 0; i < count; ++i) {
        abi::CUstream stream = nullptr;
        driver::call<driver::EntryPoint::cuStreamCreate>(driver_.interface(), &stream, abi::CU_STREAM_NON_BLOCKING);
        streams_.push_back(stream);
      }
    } catch (...) {
      destroy();
      throw;
    }
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  Streams(Streams&&) = delete;
  Streams& operator=(Streams&&) = delete;
  ~Streams() { destroy(); }

  [[nodiscard]] abi::CUstream operator[](std::uint32_t number) const { return streams_[number]; }
  [[nodiscard]] const std::vector<abi::CUstream>& all() const noexcept { return streams_; }

 private:
  void destroy() noexcept {
    for (const auto each : streams_) {
      driver_.interface().cuStreamSynchronize(each);
      driver_.interface().cuStreamDestroy(each);
    }
  }

  Driver driver_;
  std::vector<abi::CUstream> streams_;
};

}  // namespace cuvmm::replay
