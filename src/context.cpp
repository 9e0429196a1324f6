#include "cuvmm/context.hpp"

#include "clean_up.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

namespace {

void report_misuse(std::string_view rule) noexcept {
  try {
    report_cleanup_failure(
        invalid_use("~CurrentContext", "", std::string(rule), "Create and destroy CurrentContext as a local variable"));
  } catch (const std::exception&) {
    report_cleanup_failure(Failure{});
  }
}

}  // namespace

CurrentContext::CurrentContext(const Device& device) : device_(device) {
  driver::Interface& interface = device_.driver().interface();
  call<EntryPoint::cuDevicePrimaryCtxRetain>(interface, &context_, device_.handle());
  const Result<void> pushed = driver::try_call<EntryPoint::cuCtxPushCurrent>(interface, context_);
  if (pushed) return;
  clean_up<EntryPoint::cuDevicePrimaryCtxRelease>(interface, device_.handle());
  raise(pushed.failure());
}

CurrentContext::~CurrentContext() {
  driver::Interface& interface = device_.driver().interface();
  if (thread_ == std::this_thread::get_id()) {
    CUctx_st* popped = context_;
    clean_up<EntryPoint::cuCtxPopCurrent>(interface, &popped);
    if (popped != context_) report_misuse("Another context was current when this one should have been");
  } else {
    report_misuse("A CurrentContext must be destroyed by the thread that created it");
  }
  clean_up<EntryPoint::cuDevicePrimaryCtxRelease>(interface, device_.handle());
}

void CurrentContext::synchronize() const {
  call<EntryPoint::cuCtxSynchronize>(device_.driver().interface());
}

}  // namespace cuvmm
