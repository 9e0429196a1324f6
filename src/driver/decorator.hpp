// A driver around another driver: the base of counting, fault injection, recording and lying.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "driver/interface.hpp"

namespace cuvmm::driver {

// Sends every entry point of the list through one hook of the derived class,
//   template <EntryPoint entry, class... Arguments> CUresult around(Arguments... arguments);
// which makes the call with forward<entry>(arguments...), or does not. A class that cares for few entry points
// overrides those as virtual functions and leaves the hook alone.
//
// Thread-safety: that of the next driver; derived classes guard what they add.
template <class Derived>
class Decorator : public Interface {
 public:
  // `next` is not null.
  explicit Decorator(std::shared_ptr<Interface> next) noexcept : next_(std::move(next)) {}

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments)               \
  CUresult name parameters override {                                                \
    return static_cast<Derived&>(*this).template around<EntryPoint::name> arguments; \
  }
#include "driver/entry_points.def"

  [[nodiscard]] std::string description() const override {
    return next_->description();
  }
  [[nodiscard]] bool emulated() const noexcept override {
    return next_->emulated();
  }
  [[nodiscard]] std::optional<EmulatedPlace> emulated_place() const override {
    return next_->emulated_place();
  }
  [[nodiscard]] std::string explanation() const override {
    return next_->explanation();
  }
  [[nodiscard]] bool has(EntryPoint entry) const noexcept override {
    return next_->has(entry);
  }

  template <EntryPoint entry, class... Arguments>
  CUresult around(Arguments... arguments) {
    return forward<entry>(arguments...);
  }

 protected:
  template <EntryPoint entry, class... Arguments>
  CUresult forward(Arguments... arguments) {
    return (next_.get()->*Traits<entry>::method)(arguments...);
  }

  [[nodiscard]] Interface& next() const noexcept {
    return *next_;
  }

 private:
  std::shared_ptr<Interface> next_;
};

}  // namespace cuvmm::driver
