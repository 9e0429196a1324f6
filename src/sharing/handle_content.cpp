// What a handle holds, without a driver.
#include <fmt/format.h>

#include "cuvmm/sharing/shareable_handle.hpp"
#include "refusal.hpp"
#include "sharing/descriptor_facts.hpp"

namespace cuvmm::sharing {

namespace {

Failure is_a(std::string_view call, HandleType type, std::string_view wanted) {
  return invalid_use(call, fmt::format("type = {}", to_string(type)), fmt::format("The handle is no {}", wanted),
                     "Ask its type() first");
}

}  // namespace

ShareableHandle ShareableHandle::adopt(UniqueDescriptor descriptor) {
  if (!descriptor)
    raise(invalid_use("ShareableHandle::adopt", "descriptor = none", "There is no descriptor to take over",
                      "Pass one that is open", "IMPORT-DESCRIPTOR"));
  return ShareableHandle(made_safe(std::move(descriptor)).value());
}

ShareableHandle ShareableHandle::copy_of(int descriptor) {
  return ShareableHandle(duplicate(descriptor).value());
}

int ShareableHandle::descriptor() const noexcept {
  const auto* const descriptor = std::get_if<UniqueDescriptor>(&content_);
  return descriptor == nullptr ? -1 : descriptor->get();
}

UniqueDescriptor ShareableHandle::give_out_descriptor() {
  auto* const descriptor = std::get_if<UniqueDescriptor>(&content_);
  if (descriptor == nullptr) raise(is_a("ShareableHandle::give_out_descriptor", type(), "descriptor"));
  if (!*descriptor) raise(owns_nothing("ShareableHandle::give_out_descriptor", "handle"));
  return std::move(*descriptor);
}

const FabricBytes& ShareableHandle::fabric_bytes() const {
  const auto* const bytes = std::get_if<FabricBytes>(&content_);
  if (bytes == nullptr) raise(is_a("ShareableHandle::fabric_bytes", type(), "fabric handle"));
  return *bytes;
}

}  // namespace cuvmm::sharing
