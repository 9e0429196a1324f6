#include "cuvmm/physical_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>

#include "backoff.hpp"
#include "charge.hpp"
#include "cuvmm/retire_queue.hpp"
#include "fabric_refusals.hpp"
#include "owner_states.hpp"
#include "refusal.hpp"
#include "report_exception.hpp"

namespace cuvmm {

void SharedPhysicalMemory::raise_empty() {
  raise(invalid_use("SharedPhysicalMemory::memory", {}, "It is empty: no memory is shared",
                    "Ask whether there is some first; MappedRange::memory_at() answers an empty one for a hole"));
}

namespace {

// One allocation in a list of its own, so that giving it back moves a node and cannot fail.
using Node = std::list<PhysicalMemory>;

}  // namespace

class PhysicalSource::Core : public std::enable_shared_from_this<PhysicalSource::Core> {
 public:
  Core(const Driver& driver, const PhysicalSourceOptions& options)
      : driver_(driver),
        ledger_(std::make_shared<Ledger>(options.budgets)),
        fabric_refusals_(FabricRefusals::of(driver.shared_interface())),
        pressure_wait_(options.pressure_wait),
        recycles_(options.recycle_limit != 0),
        recycle_limit_(options.recycle_limit) {}

  Result<SharedPhysicalMemory> acquire(const MemoryProperties& properties, std::size_t bytes);
  std::size_t trim(std::size_t keep_bytes) { return release_recyclable(keep_bytes, nullptr, SIZE_MAX); }
  // Nobody can ask any more: what comes back is released.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      recycle_limit_ = 0;
    }
    trim(0);
  }
  ReclaimRegistration add_reclaim_hook(ReclaimHook hook);
  void drain_under_pressure(const std::shared_ptr<RetireQueue>& queue);
  PhysicalSourceCounters counters() const;
  const Ledger& ledger() const noexcept { return *ledger_; }
  const FabricRefusals& fabric_refusals() const noexcept { return *fabric_refusals_; }
  const Driver& driver() const noexcept { return driver_; }

 private:
  enum class Relief : unsigned char { none, recyclable, queues, hooks };

  // Takes the memory back: for re-use, if nobody else has it mapped.
  void give_back(Node& node) noexcept;
  SharedPhysicalMemory share(Node node);

  Node take_recyclable(const MemoryProperties& properties, std::size_t bytes);
  Result<Node> create(const MemoryProperties& properties, std::size_t bytes);
  // Without fabric handles where they cannot be had and other handles will do.
  Result<PhysicalMemory> create_exportable(const MemoryProperties& properties, std::size_t bytes);
  Failure budget_refusal(const MemoryProperties& properties, std::size_t bytes) const;
  // Whether something was given back, so that asking again may help.
  bool relieve(Relief relief, const ReclaimRequest& request);
  bool call_hooks(const ReclaimRequest& request);
  bool drain_queues(const ReclaimRequest& request);
  // Until `keep_bytes` are left or `enough_bytes` are released; at one location, if one is given.
  std::size_t release_recyclable(std::size_t keep_bytes, const Location* location, std::size_t enough_bytes) noexcept;
  std::size_t recyclable_bytes(const Location* location = nullptr) const;  // there, or in all

  Driver driver_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<FabricRefusals> fabric_refusals_;
  std::chrono::milliseconds pressure_wait_;
  const bool recycles_;
  mutable std::mutex mutex_;  // guards the lists
  std::size_t recycle_limit_;
  Node recyclable_;  // oldest first
  std::size_t recyclable_bytes_ = 0;
  std::vector<std::weak_ptr<ReclaimHook>> hooks_;
  std::vector<std::weak_ptr<RetireQueue>> queues_;
  std::atomic<std::uint64_t> created_ = 0;
  std::atomic<std::uint64_t> recycled_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  std::atomic<std::uint64_t> reclaims_ = 0;
};

SharedPhysicalMemory PhysicalSource::Core::share(Node node) {
  // The deleter owns the node: should the shared pointer not be made, the memory goes back all the same.
  struct GiveBack {
    std::shared_ptr<Core> core;
    std::shared_ptr<Node> node;
    void operator()(const PhysicalMemory*) const noexcept { core->give_back(*node); }
  };
  std::shared_ptr<Node> kept;
  try {
    kept = std::make_shared<Node>();
  } catch (...) {
    give_back(node);
    throw;
  }
  kept->splice(kept->end(), node);
  const PhysicalMemory* memory = &kept->front();
  return SharedPhysicalMemory(std::shared_ptr<const PhysicalMemory>(memory, GiveBack{shared_from_this(), kept}));
}

void PhysicalSource::Core::give_back(Node& node) noexcept {
  const PhysicalMemory& memory = node.front();
  const std::size_t bytes = memory.size();
  // Memory that can be exported may have descriptors that keep it alive and that nobody can see.
  const bool unknown_users =
      !memory.state_->recyclable.load() || memory.state_.use_count() != 1 || !memory.properties().handle_types.empty();
  Node released;  // by the driver, when the lock is given up
  {
    const std::lock_guard lock(mutex_);
    if (unknown_users || bytes > recycle_limit_) {
      released.splice(released.end(), node);  // with its last mapping
    } else {
      while (recyclable_bytes_ > recycle_limit_ - bytes) {
        recyclable_bytes_ -= recyclable_.front().size();
        released.splice(released.end(), recyclable_, recyclable_.begin());
      }
      recyclable_.splice(recyclable_.end(), node);
      recyclable_bytes_ += bytes;
    }
  }
}

Node PhysicalSource::Core::take_recyclable(const MemoryProperties& properties, std::size_t bytes) {
  Node taken;
  const std::lock_guard lock(mutex_);
  // The newest: what was used last is least likely to be given up by the driver's own caches.
  const auto found = std::find_if(recyclable_.rbegin(), recyclable_.rend(), [&](const PhysicalMemory& memory) {
    return memory.size() == bytes && memory.properties() == properties;
  });
  if (found == recyclable_.rend()) return taken;
  taken.splice(taken.end(), recyclable_, std::prev(found.base()));
  recyclable_bytes_ -= bytes;
  return taken;
}

Failure PhysicalSource::Core::budget_refusal(const MemoryProperties& properties, std::size_t bytes) const {
  Failure failure;
  failure.kind = properties.location.kind == LocationKind::device ? ErrorKind::out_of_device_memory
                                                                  : ErrorKind::out_of_host_memory;
  failure.call = "PhysicalSource::acquire";
  failure.arguments =
      fmt::format("location = {}, bytes = {} ({})", to_string(properties.location), bytes, format_bytes(bytes));
  failure.rule = fmt::format("The budget of this source there is {}",
                             format_bytes(ledger_->budget(properties.location).value_or(0)));
  failure.way_out = "Give memory back first, or make the source with a larger budget";
  failure.asked_bytes = bytes;
  return failure;
}

Result<PhysicalMemory> PhysicalSource::Core::create_exportable(const MemoryProperties& properties, std::size_t bytes) {
  MemoryProperties otherwise = properties;
  otherwise.handle_types = properties.handle_types.without(HandleType::fabric);
  if (otherwise == properties || otherwise.handle_types.empty())
    return PhysicalMemory::try_create(driver_, properties, bytes);
  if (fabric_refusals_->at(properties.location)) return PhysicalMemory::try_create(driver_, otherwise, bytes);
  auto memory = PhysicalMemory::try_create(driver_, properties, bytes);
  if (memory || !refuses_fabric_handles(memory.failure())) return memory;
  auto without = PhysicalMemory::try_create(driver_, otherwise, bytes);
  // What is not supported may be something else that was asked for, so only success proves that it was this.
  if (without || memory.failure().kind == ErrorKind::not_permitted)
    fabric_refusals_->remember(properties.location, memory.failure());
  return without;
}

Result<Node> PhysicalSource::Core::create(const MemoryProperties& properties, std::size_t bytes) {
  auto charge = Charge::make(ledger_, properties.location, bytes);
  if (!charge) return budget_refusal(properties, bytes);
  auto memory = create_exportable(properties, bytes);
  if (!memory) return memory.failure();
  charge->confirm();
  auto& state = *memory->state_;
  state.charge = std::move(charge);
  // Who retains it, or exports it as a dma-buf, has to find it.
  if (recycles_ && properties.handle_types.empty()) {
    RecyclableMemory::all().add(state.handle, state.recyclable);
    state.listed = true;
  }
  Node node;
  node.push_back(std::move(memory).value());
  return node;
}

std::size_t PhysicalSource::Core::release_recyclable(std::size_t keep_bytes, const Location* location,
                                                     std::size_t enough_bytes) noexcept {
  Node released;  // by the driver, when the lock is given up
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = recyclable_.begin(); each != recyclable_.end();) {
      if (recyclable_bytes_ <= keep_bytes || bytes >= enough_bytes) break;
      const auto next = std::next(each);
      if (location == nullptr || each->properties().location == *location) {
        bytes += each->size();
        recyclable_bytes_ -= each->size();
        released.splice(released.end(), recyclable_, each);
      }
      each = next;
    }
  }
  return bytes;
}

void PhysicalSource::Core::drain_under_pressure(const std::shared_ptr<RetireQueue>& queue) {
  const std::weak_ptr<RetireQueue> wanted = queue;
  const std::lock_guard lock(mutex_);
  // Compared without locking them: the last owner of a queue destroys it, which gives memory back here.
  std::erase_if(queues_, [&](const auto& each) {
    return each.expired() || (!each.owner_before(wanted) && !wanted.owner_before(each));
  });
  queues_.push_back(wanted);
}

bool PhysicalSource::Core::drain_queues(const ReclaimRequest& request) {
  std::vector<std::shared_ptr<RetireQueue>> queues;
  {
    const std::lock_guard lock(mutex_);
    queues.reserve(queues_.size());
    for (const auto& each : queues_) queues.push_back(each.lock());  // given up after the lock
  }
  std::erase_if(queues, [](const auto& each) { return !each || each->pending() == 0; });
  if (queues.empty()) return false;
  reclaims_.fetch_add(1, std::memory_order_relaxed);
  const auto deadline = deadline_after(pressure_wait_);
  std::size_t given = 0;
  for (const auto& queue : queues)
    if (given < request.bytes) given += queue->reclaim(request.bytes - given, deadline);
  return given > 0;
}

namespace {

// The sources whose hooks this thread is calling: what they ask of these does not call them again. Several, since hooks
// may ask other sources, whose hooks may ask the first.
class InHooks {
 public:
  explicit InHooks(const void* source) noexcept : source_(source), outer_(std::exchange(innermost_, this)) {}
  ~InHooks() { innermost_ = outer_; }
  InHooks(const InHooks&) = delete;
  InHooks& operator=(const InHooks&) = delete;
  InHooks(InHooks&&) = delete;
  InHooks& operator=(InHooks&&) = delete;

  [[nodiscard]] static bool of(const void* source) noexcept {
    for (const InHooks* each = innermost_; each != nullptr; each = each->outer_)
      if (each->source_ == source) return true;
    return false;
  }

 private:
  static thread_local const InHooks* innermost_;

  const void* source_;
  const InHooks* outer_;
};

thread_local const InHooks* InHooks::innermost_ = nullptr;

}  // namespace

bool PhysicalSource::Core::call_hooks(const ReclaimRequest& request) {
  if (InHooks::of(this)) return false;
  const InHooks here(this);
  std::vector<std::shared_ptr<ReclaimHook>> hooks;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(hooks_, [](const auto& hook) { return hook.expired(); });
    for (const auto& each : hooks_)
      if (auto hook = each.lock()) hooks.push_back(std::move(hook));
  }
  if (hooks.empty()) return false;
  reclaims_.fetch_add(1, std::memory_order_relaxed);
  std::size_t given = 0;
  for (const auto& hook : hooks) {
    if (given >= request.bytes) break;
    try {
      given += std::min((*hook)({request.location, request.bytes - given}), request.bytes - given);
    } catch (...) {
      report_exception_of_callback("ReclaimHook", [&] {
        return fmt::format("{}, bytes = {}", to_string(request.location), request.bytes - given);
      });
    }
  }
  return given > 0;
}

bool PhysicalSource::Core::relieve(Relief relief, const ReclaimRequest& request) {
  if (relief == Relief::recyclable) return release_recyclable(0, &request.location, request.bytes) > 0;
  if (relief == Relief::queues || relief == Relief::hooks) {
    const bool given = relief == Relief::queues ? drain_queues(request) : call_hooks(request);
    // What was given may have come to wait for re-use here, in other sizes.
    return release_recyclable(0, &request.location, request.bytes) > 0 || given;
  }
  return true;
}

Result<SharedPhysicalMemory> PhysicalSource::Core::acquire(const MemoryProperties& properties, std::size_t bytes) {
  std::optional<Failure> failure;
  for (const Relief relief : {Relief::none, Relief::recyclable, Relief::queues, Relief::hooks}) {
    // Twice at most for what waits for re-use: one round may release less than the driver can make whole again.
    while (relieve(relief, {properties.location, bytes})) {
      if (Node taken = take_recyclable(properties, bytes); !taken.empty()) {
        recycled_.fetch_add(1, std::memory_order_relaxed);
        return share(std::move(taken));
      }
      Result<Node> created = create(properties, bytes);
      if (created) {
        created_.fetch_add(1, std::memory_order_relaxed);
        return share(std::move(created).value());
      }
      if (!is_shortage(created.failure())) return created.failure();
      failure = created.failure();
      if (relief != Relief::recyclable) break;
    }
  }
  if (failure->code == 0) refused_.fetch_add(1, std::memory_order_relaxed);
  const std::size_t existing = ledger_->existing(properties.location);
  const std::size_t recyclable = std::min(existing, recyclable_bytes(&properties.location));
  failure->live_bytes = existing - recyclable;
  failure->recyclable_bytes = recyclable;
  if (!failure->rounded_bytes) failure->rounded_bytes = bytes;
  return std::move(*failure);
}

std::size_t PhysicalSource::Core::recyclable_bytes(const Location* location) const {
  const std::lock_guard lock(mutex_);
  if (location == nullptr) return recyclable_bytes_;
  std::size_t bytes = 0;
  for (const PhysicalMemory& each : recyclable_)
    if (each.properties().location == *location) bytes += each.size();
  return bytes;
}

ReclaimRegistration PhysicalSource::Core::add_reclaim_hook(ReclaimHook hook) {
  if (!hook)
    raise(invalid_use("PhysicalSource::add_reclaim_hook", {}, "The hook is empty: there is nothing to call",
                      "Pass a function that gives memory back"));
  auto kept = std::make_shared<ReclaimHook>(std::move(hook));
  const std::lock_guard lock(mutex_);
  std::erase_if(hooks_, [](const auto& each) { return each.expired(); });
  hooks_.push_back(kept);
  return ReclaimRegistration(std::move(kept));
}

PhysicalSourceCounters PhysicalSource::Core::counters() const {
  PhysicalSourceCounters counters;
  counters.recyclable_bytes = recyclable_bytes();
  counters.live_bytes = ledger_->existing() - std::min(ledger_->existing(), counters.recyclable_bytes);
  counters.peak_bytes = ledger_->peak();
  counters.created = created_.load(std::memory_order_relaxed);
  counters.recycled = recycled_.load(std::memory_order_relaxed);
  counters.refused = refused_.load(std::memory_order_relaxed);
  counters.reclaims = reclaims_.load(std::memory_order_relaxed);
  return counters;
}

namespace {

constexpr std::chrono::hours longest_wait(24 * 365 * 100);  // fits into nanoseconds

void require_sound(const PhysicalSourceOptions& options) {
  const auto refuse = [](std::string arguments, std::string rule, std::string way_out) {
    raise(invalid_use("PhysicalSource::create", std::move(arguments), std::move(rule), std::move(way_out)));
  };
  // The host at large has no number.
  const auto same = [](const Location& a, const Location& b) {
    return a == b || (a.kind == LocationKind::host && b.kind == LocationKind::host);
  };
  for (std::size_t i = 0; i < options.budgets.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (same(options.budgets[j].location, options.budgets[i].location))
        refuse(fmt::format("budgets[{}] and budgets[{}]: {}", j, i, to_string(options.budgets[i].location)),
               "A location has one budget", "Name each location once");
  if (options.pressure_wait < std::chrono::milliseconds::zero())
    refuse(fmt::format("pressure_wait = {} ms", options.pressure_wait.count()), "A wait is not negative",
           "0 releases what is done and does not wait");
}

}  // namespace

PhysicalSource::PhysicalSource(std::shared_ptr<Core> core) noexcept : core_(std::move(core)) {}

PhysicalSource::~PhysicalSource() {
  core_->close();  // memory in use keeps the core, which would keep what waits for re-use
}

std::shared_ptr<PhysicalSource> PhysicalSource::create(const Driver& driver, const PhysicalSourceOptions& options) {
  require_sound(options);
  PhysicalSourceOptions sound = options;
  sound.pressure_wait = std::min<std::chrono::milliseconds>(sound.pressure_wait, longest_wait);
  return std::shared_ptr<PhysicalSource>(new PhysicalSource(std::make_shared<Core>(driver, sound)));
}

Result<SharedPhysicalMemory> PhysicalSource::try_acquire(const MemoryProperties& properties, std::size_t bytes) {
  return core_->acquire(properties, bytes);
}

SharedPhysicalMemory PhysicalSource::acquire(const MemoryProperties& properties, std::size_t bytes) {
  return core_->acquire(properties, bytes).value();
}

Result<std::vector<SharedPhysicalMemory>> PhysicalSource::try_acquire_all(const MemoryProperties& properties,
                                                                          std::span<const std::size_t> sizes) {
  std::vector<SharedPhysicalMemory> all;
  all.reserve(sizes.size());
  for (const std::size_t bytes : sizes) {
    auto one = core_->acquire(properties, bytes);
    if (!one) return one.failure();  // what was acquired goes back
    all.push_back(std::move(one).value());
  }
  return all;
}

std::size_t PhysicalSource::trim(std::size_t keep_bytes) {
  return core_->trim(keep_bytes);
}

ReclaimRegistration PhysicalSource::add_reclaim_hook(ReclaimHook hook) {
  return core_->add_reclaim_hook(std::move(hook));
}

void PhysicalSource::drain_under_pressure(const std::shared_ptr<RetireQueue>& queue) {
  core_->drain_under_pressure(queue);
}

PhysicalSourceCounters PhysicalSource::counters() const {
  return core_->counters();
}

std::size_t PhysicalSource::existing_bytes(const Location& location) const {
  return core_->ledger().existing(location);
}

std::optional<std::size_t> PhysicalSource::budget(const Location& location) const {
  return core_->ledger().budget(location);
}

std::optional<Failure> PhysicalSource::fabric_refusal(const Location& location) const {
  return core_->fabric_refusals().at(location);
}

const Driver& PhysicalSource::driver() const noexcept {
  return core_->driver();
}

}  // namespace cuvmm
