#include "event_pool.hpp"

#include <new>
#include <utility>

#include "clean_up.hpp"
#include "made_current.hpp"
#include "relaxed_capture_mode.hpp"
#include "work_answer.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

namespace {

void report_unless_gone(driver::Interface& interface, EntryPoint entry, abi::CUresult result) noexcept {
  if (result == abi::CUDA_SUCCESS || went_with_its_context(entry, result)) return;
  try {
    report_cleanup_failure(driver::describe_failure(interface, entry, result, "", {}));
  } catch (const std::exception&) {
    report_cleanup_failure(Failure{});
  }
}

}  // namespace

ContextEvents::ContextEvents(std::shared_ptr<driver::Interface> interface, abi::CUcontext context)
    : interface_(std::move(interface)), context_(context), primary_of_(retain_if_primary()) {}

ContextEvents::~ContextEvents() {
  for (const abi::CUevent event : idle_) destroy(event);
  if (witness_ != nullptr) destroy(witness_);
  if (primary_of_)
    report_unless_gone(*interface_, EntryPoint::cuDevicePrimaryCtxRelease,
                       interface_->cuDevicePrimaryCtxRelease(*primary_of_));
}

std::optional<abi::CUdevice> ContextEvents::retain_if_primary() {
  const RelaxedCaptureMode relaxed(*interface_);
  const MadeCurrent current(*interface_, context_);
  abi::CUdevice device = 0;
  call<EntryPoint::cuCtxGetDevice>(*interface_, &device);
  // A device whose primary context is not active would be given one by retaining it.
  unsigned flags = 0;
  int active = 0;
  call<EntryPoint::cuDevicePrimaryCtxGetState>(*interface_, device, &flags, &active);
  if (active != 0) {
    abi::CUcontext primary = nullptr;
    call<EntryPoint::cuDevicePrimaryCtxRetain>(*interface_, &primary, device);
    if (primary == context_) return device;
    clean_up<EntryPoint::cuDevicePrimaryCtxRelease>(*interface_, device);
  }
  call<EntryPoint::cuEventCreate>(*interface_, &witness_, abi::CU_EVENT_DISABLE_TIMING);
  return std::nullopt;
}

bool ContextEvents::gone() const noexcept {
  if (witness_ == nullptr) return false;
  const RelaxedCaptureMode relaxed(*interface_);
  const abi::CUresult answer = interface_->cuEventQuery(witness_);
  return answer == abi::CUDA_ERROR_CONTEXT_IS_DESTROYED || answer == abi::CUDA_ERROR_INVALID_HANDLE ||
         driver_is_gone(answer);
}

abi::CUevent ContextEvents::take() noexcept {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return nullptr;
  const abi::CUevent event = idle_.back();
  idle_.pop_back();
  return event;
}

abi::CUresult ContextEvents::create(abi::CUevent* event) noexcept {
  return interface_->cuEventCreate(event, abi::CU_EVENT_DISABLE_TIMING);
}

void ContextEvents::give_back(abi::CUevent event) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    idle_.push_back(event);
  } catch (const std::bad_alloc&) {
    destroy(event);
  }
}

void ContextEvents::destroy(abi::CUevent event) noexcept {
  report_unless_gone(*interface_, EntryPoint::cuEventDestroy, interface_->cuEventDestroy(event));
}

void ContextEvents::report_once(const Failure& failure) noexcept {
  if (!failure_reported_.exchange(true)) report_cleanup_failure(failure);
}

namespace {

struct Pools {
  std::mutex mutex;
  std::map<const driver::Interface*, std::weak_ptr<EventPool>> of;
};

// A part of the process's drivers, so to say. Never destroyed: owners with static storage may need it late.
Pools& pools() {
  static Pools& all = *new Pools;
  return all;
}

}  // namespace

std::shared_ptr<EventPool> EventPool::of(const std::shared_ptr<driver::Interface>& interface) {
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.of, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<EventPool>& known = all.of[interface.get()];
  std::shared_ptr<EventPool> pool = known.lock();
  if (!pool) {
    pool = std::make_shared<EventPool>(interface);
    known = pool;
  }
  return pool;
}

std::shared_ptr<ContextEvents> EventPool::find(abi::CUcontext handle) {
  const std::lock_guard lock(mutex_);
  const auto known = contexts_.find(handle);
  return known == contexts_.end() ? nullptr : known->second.events.lock();
}

std::shared_ptr<ContextEvents> EventPool::context(abi::CUcontext handle) {
  if (auto known = find(handle)) return known;
  auto made = std::make_shared<ContextEvents>(interface_, handle);  // calls the driver: no lock is held
  const std::lock_guard lock(mutex_);
  std::erase_if(contexts_, [](const auto& known) { return known.second.events.expired(); });
  Known& known = contexts_[handle];
  if (auto faster = known.events.lock()) return faster;
  known = {made, made->primary() ? made : nullptr};
  return made;
}

void EventPool::trim() noexcept {
  std::map<abi::CUcontext, Known> unused;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  for (auto known = contexts_.begin(); known != contexts_.end();) {
    const auto next = std::next(known);
    if (known->second.kept.use_count() <= 1 && (known->second.kept || known->second.events.expired()))
      unused.insert(contexts_.extract(known));
    known = next;
  }
}

}  // namespace cuvmm
