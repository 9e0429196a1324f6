// A driver without devices, memory or rules: it answers success, or what a test tells it to, and remembers its calls.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "driver/interface.hpp"

namespace cuvmm::test {

using namespace driver;

class FakeDriver : public Interface {
 public:
#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) std::function<CUresult parameters> on_##name;
#include "driver/entry_points.def"

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments)                 \
  CUresult name parameters override {                                                  \
    calls.push_back(EntryPoint::name);                                                 \
    explained_ = false;                                                                \
    CUresult answered = CUDA_SUCCESS;                                                  \
    if (on_##name) answered = on_##name arguments;                                     \
    if (const auto found = answers_.find(EntryPoint::name); found != answers_.end()) { \
      answered = found->second.first;                                                  \
      explained_ = true;                                                               \
      current_explanation_ = found->second.second;                                     \
    }                                                                                  \
    return answered;                                                                   \
  }
#include "driver/entry_points.def"

  [[nodiscard]] std::string description() const override {
    return "fake driver";
  }
  [[nodiscard]] bool emulated() const noexcept override {
    return false;
  }
  [[nodiscard]] std::string explanation() const override {
    return explained_ ? current_explanation_ : std::string();
  }
  [[nodiscard]] bool has(EntryPoint entry) const noexcept override {
    return std::find(missing.begin(), missing.end(), entry) == missing.end();
  }

  // Makes each further call of `entry` answer `result`, with that explanation.
  void answer(EntryPoint entry, CUresult result, std::string explanation = {}) {
    answers_[entry] = {result, std::move(explanation)};
  }
  [[nodiscard]] std::size_t count(EntryPoint entry) const {
    return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), entry));
  }

  std::vector<EntryPoint> calls;  // in order
  std::vector<EntryPoint> missing;

 private:
  std::map<EntryPoint, std::pair<CUresult, std::string>> answers_;
  bool explained_ = false;
  std::string current_explanation_;
};

}  // namespace cuvmm::test
