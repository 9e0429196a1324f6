#include "cuvmm/pool/synchronous_allocations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "clean_up.hpp"
#include "cuvmm/device.hpp"
#include "made_current.hpp"
#include "pool/home_process.hpp"
#include "pool/told_as.hpp"
#include "refusal.hpp"
#include "relaxed_capture_mode.hpp"
#include "report_exception.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;
using pool::owned_here;
using pool::telling_as;

namespace {

constexpr std::string_view creating = "SynchronousAllocations::create";

// A reference to the primary context of a device.
class PrimaryContext {
 public:
  explicit PrimaryContext(const Device& device) : device_(device) {
    call<EntryPoint::cuDevicePrimaryCtxRetain>(interface(), &context_, device.handle());
  }
  ~PrimaryContext() {
    if (!home_.left()) clean_up<EntryPoint::cuDevicePrimaryCtxRelease>(interface(), device_.handle());
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  PrimaryContext(PrimaryContext&&) = delete;
  PrimaryContext& operator=(PrimaryContext&&) = delete;

  [[nodiscard]] abi::CUcontext handle() const noexcept { return context_; }
  [[nodiscard]] driver::Interface& interface() const noexcept { return device_.driver().interface(); }
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const pool::HomeProcess& home() const noexcept { return home_; }

 private:
  const pool::HomeProcess home_;
  const Device device_;
  abi::CUcontext context_ = nullptr;
};

// What calls on behalf of nobody's stream need, as long as it lives: the context, and other streams' captures not
// minded.
class Within {
 public:
  explicit Within(const PrimaryContext& context)
      : current_(context.interface(), context.handle()), relaxed_(context.interface()) {
    if (current_.answer() != abi::CUDA_SUCCESS)
      raise(driver::describe_failure(context.interface(), EntryPoint::cuCtxPushCurrent, current_.answer(), "", {}));
  }

 private:
  MadeCurrent current_;
  RelaxedCaptureMode relaxed_;
};

}  // namespace

class SynchronousAllocations::Impl {
 public:
  Impl(Pool& pool, const Device& device) : pool_(pool), context_(device) {
    const Within within(context_);
    call<EntryPoint::cuStreamCreate>(context_.interface(), &stream_,
                                     static_cast<unsigned>(abi::CU_STREAM_NON_BLOCKING));
  }
  // While something is live, the pool needs the stream. In a forked child it is not its own.
  ~Impl() {
    if (home().left()) return;
    try {
      const Within within(context_);
      pool_.forget(stream_);
      clean_up<EntryPoint::cuStreamDestroy>(context_.interface(), stream_);
    } catch (...) {
      report_current_exception("SynchronousAllocations::~SynchronousAllocations");
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;

  DeviceAddress allocate(std::size_t bytes) {
    const Within within(context_);
    return telling_as("SynchronousAllocations::allocate", [&] { return pool_.allocate(bytes, stream_, device()); });
  }

  void free(DeviceAddress address) {
    if (!owns(address))
      raise(invalid_use("SynchronousAllocations::free", fmt::format("address = {:#x}", address.value),
                        "No allocation of these begins there: it was freed before, or never given out",
                        "Pass an address that allocate() returned"));
    const Within within(context_);
    call<EntryPoint::cuCtxSynchronize>(context_.interface());
    pool_.free(address, stream_);
  }

  [[nodiscard]] bool owns(DeviceAddress address) const {
    const auto found = pool_.describe(address);
    return found && found->offset == 0 && found->stream == stream_;
  }
  [[nodiscard]] Pool& pool() const noexcept { return pool_; }
  [[nodiscard]] DeviceOrdinal device() const noexcept { return context_.device().ordinal(); }
  [[nodiscard]] const pool::HomeProcess& home() const noexcept { return context_.home(); }

 private:
  Pool& pool_;
  const PrimaryContext context_;
  abi::CUstream stream_ = nullptr;
};

SynchronousAllocations::SynchronousAllocations(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SynchronousAllocations::SynchronousAllocations(SynchronousAllocations&&) noexcept = default;
SynchronousAllocations& SynchronousAllocations::operator=(SynchronousAllocations&&) noexcept = default;
SynchronousAllocations::~SynchronousAllocations() = default;

SynchronousAllocations SynchronousAllocations::create(Pool& pool) {
  return create(pool, telling_as(creating, [&] { return pool.options().devices.front(); }));
}

SynchronousAllocations SynchronousAllocations::create(Pool& pool, DeviceOrdinal device) {
  const auto& devices = telling_as(creating, [&]() -> const PoolOptions& { return pool.options(); }).devices;
  if (std::find(devices.begin(), devices.end(), device) == devices.end())
    raise(invalid_use(creating, fmt::format("device = {}", device.value), "The pool was not made for that device",
                      "Name it in PoolOptions::devices"));
  return SynchronousAllocations(std::make_unique<Impl>(pool, pool.driver().device(device)));
}

DeviceAddress SynchronousAllocations::allocate(std::size_t bytes) {
  return owned_here(impl_, "SynchronousAllocations::allocate", "allocations").allocate(bytes);
}

void SynchronousAllocations::free(DeviceAddress address) {
  owned_here(impl_, "SynchronousAllocations::free", "allocations").free(address);
}

bool SynchronousAllocations::owns(DeviceAddress address) const {
  return owned(impl_, "SynchronousAllocations::owns", "allocations").owns(address);
}

Pool& SynchronousAllocations::pool() const {
  return owned(impl_, "SynchronousAllocations::pool", "allocations").pool();
}

DeviceOrdinal SynchronousAllocations::device() const {
  return owned(impl_, "SynchronousAllocations::device", "allocations").device();
}

}  // namespace cuvmm
