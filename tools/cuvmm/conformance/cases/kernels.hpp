// The kernels of the conformance cases, as PTX that every GPU since Volta can run.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "conformance/cases/environment.hpp"

namespace cuvmm::conformance {

[[nodiscard]] const char* kernel_image();

inline constexpr const char* store_kernel = "conformance_store";  // (address, value): *address = value
inline constexpr const char* load_kernel = "conformance_load";    // (source, destination): *destination = *source
// (flags, watched): sets flags[0], then reads *watched again and again until flags[1] is set or five seconds are over.
inline constexpr const char* spin_kernel = "conformance_spin";

// The kernels, loaded into the current context.
class Kernels {
 public:
  explicit Kernels(Environment& cuda);

  [[nodiscard]] CUmodule module() const noexcept { return module_; }
  [[nodiscard]] CUfunction function(std::string_view name) const;

  // One thread each.
  [[nodiscard]] CUresult store(CUdeviceptr address, unsigned value, CUstream stream = nullptr) const;
  [[nodiscard]] CUresult load(CUdeviceptr source, CUdeviceptr destination, CUstream stream = nullptr) const;
  // `flags` are two words of pinned host memory; behind them are two that a kernel may keep something in.
  [[nodiscard]] CUresult spin(const std::atomic<unsigned>* flags, CUdeviceptr watched, CUstream stream = nullptr) const;

 private:
  [[nodiscard]] CUresult launch(std::string_view name, CUstream stream, void** parameters) const;

  Environment& cuda_;
  CUmodule module_ = nullptr;
  std::map<std::string, CUfunction, std::less<>> functions_;
};

}  // namespace cuvmm::conformance
