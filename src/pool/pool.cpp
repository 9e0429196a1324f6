#include "cuvmm/pool/pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backoff.hpp"
#include "peer_refusal.hpp"
#include "pool/device_pool.hpp"
#include "pool/home_process.hpp"
#include "refusal.hpp"

namespace cuvmm {

using pool::DevicePool;
using pool::owned_here;
using pool::refusal_here;

class Pool::Impl {
 public:
  explicit Impl(pool::PoolSetting setting) : setting_(std::move(setting)) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;

  Result<void> add(DeviceOrdinal device, std::shared_ptr<pool::Budget> budget,
                   const std::shared_ptr<DevicePool>& lender = {}) {
    auto made = DevicePool::create(setting_, device, std::move(budget), lender);
    if (!made) return made.failure();
    devices_.push_back(std::move(made).value());
    return {};
  }
  // Others who lack memory get what is free here.
  void offer_to_source() {
    std::vector<std::weak_ptr<DevicePool>> offered(devices_.begin(), devices_.end());
    registration_ = setting_.source->add_reclaim_hook([offered](const ReclaimRequest& request) {
      std::size_t given = 0;
      for (const auto& each : offered) {
        const auto device = each.lock();
        if (device && Location::device(device->device()) == request.location && given < request.bytes)
          given += device->trim(0, request.bytes - given);
      }
      return given;
    });
  }

  [[nodiscard]] DevicePool* at(DeviceOrdinal device) const noexcept {
    for (const auto& each : devices_)
      if (each->device() == device) return each.get();
    return nullptr;
  }
  [[nodiscard]] DevicePool* of(DeviceAddress address) const noexcept {
    for (const auto& each : devices_)
      if (each->holds(address)) return each.get();
    return nullptr;
  }
  [[nodiscard]] const std::vector<std::shared_ptr<DevicePool>>& devices() const noexcept { return devices_; }
  [[nodiscard]] const pool::PoolSetting& setting() const noexcept { return setting_; }
  [[nodiscard]] const pool::HomeProcess& home() const noexcept { return home_; }

 private:
  const pool::HomeProcess home_;
  const pool::PoolSetting setting_;
  std::vector<std::shared_ptr<DevicePool>> devices_;
  ReclaimRegistration registration_;
};

namespace {

Failure foreign(std::string_view call, DeviceAddress address) {
  return invalid_use(call, fmt::format("address = {:#x}", address.value), "The pool has not given that address out",
                     "Pass an address that allocate() of this pool returned");
}

Failure no_such_device(std::string_view call, DeviceOrdinal device) {
  return invalid_use(call, fmt::format("device = {}", device.value), "The pool was not made for that device",
                     "Name it in PoolOptions::devices");
}

std::optional<Failure> refusal_of_grants(const Driver& driver, const PoolOptions& options) {
  const int devices = driver.device_count();
  std::vector<Location> seen, places;
  for (const DeviceOrdinal device : options.devices) places.push_back(Location::device(device));
  for (const AccessGrant& each : options.grants) {
    const auto refuse = [&](std::string rule, std::string way_out) {
      return invalid_use("Pool::create",
                         fmt::format("grants: {}, {}", to_string(each.location), to_string(each.rights)),
                         std::move(rule), std::move(way_out));
    };
    if (each.location.kind != LocationKind::device)
      return refuse("Device memory cannot be granted to the host", "Name devices only");
    if (each.location.id < 0 || each.location.id >= devices)
      return refuse(fmt::format("There are {} device(s)", devices), "Name one of them");
    if (std::find(seen.begin(), seen.end(), each.location) != seen.end())
      return refuse("A device is named once among the grants", "Leave the second out");
    if (each.rights != AccessRights::read_write && places == std::vector{each.location})
      return refuse("The device of the memory may always read and write it", "Leave it out");
    seen.push_back(each.location);
  }
  return unreachable_in(driver, "Pool::create", options.grants, places);
}

std::optional<Failure> refusal_of(const Driver& driver, const PoolOptions& options) {
  const auto refuse = [](std::string argument, std::string rule, std::string way_out) {
    return invalid_use("Pool::create", std::move(argument), std::move(rule), std::move(way_out));
  };
  if (options.devices.empty()) return refuse("devices = {}", "A pool has memory of one device at least", "Name one");
  for (std::size_t i = 0; i < options.devices.size(); ++i)
    if (std::find(options.devices.begin(), options.devices.begin() + static_cast<std::ptrdiff_t>(i),
                  options.devices[i]) != options.devices.begin() + static_cast<std::ptrdiff_t>(i))
      return refuse(fmt::format("devices: {} twice", options.devices[i].value), "A device is named once",
                    "Leave the second out");
  if (options.reuse_wait.count() < 0 || options.pressure_wait.count() < 0)
    return refuse(fmt::format("reuse_wait = {} us, pressure_wait = {} ms", options.reuse_wait.count(),
                              options.pressure_wait.count()),
                  "No wait is less than nothing", "Use 0 to wait never");
  if (options.source && options.source->driver() != driver)
    return refuse("source", "The source must be of the pool's driver", "Create both with one Driver");
  if (auto refused = refusal_of_grants(driver, options)) return refused;
  for (const DeviceOrdinal device : options.devices)
    if (options.source && options.budget != 0)
      if (const auto limit = options.source->budget(Location::device(device)); limit && *limit < options.budget)
        return refuse(fmt::format("budget = {}, the source's = {}", options.budget, *limit),
                      "The budget of the pool is more than its source has", "Lower the one or raise the other");
  return std::nullopt;
}

}  // namespace

// What is live, or in use, stays mapped for ever: nothing is unmapped under work. In a forked child nothing is its own.
Pool::Impl::~Impl() {
  if (home_.left()) {
    for (std::shared_ptr<DevicePool>& each : devices_) DevicePool::keep_for_ever(std::move(each));
    return;
  }
  const auto deadline = deadline_after(setting_.options.pressure_wait);
  for (std::shared_ptr<DevicePool>& each : devices_) {
    try {
      if (each->drain(deadline)) {
        each->give_back_to_lender();
        continue;
      }
      const PoolStatistics left = each->statistics();
      report_cleanup_failure(invalid_use(
          "Pool::~Pool", fmt::format("device = {}", each->device().value),
          fmt::format("{} allocation(s) of {} are live, and {} wait for the device: their pool stays for ever",
                      left.live_allocations, format_bytes(left.live_bytes), format_bytes(left.pending_bytes)),
          "Free all and let the work end before the pool goes"));
    } catch (const std::exception&) {
      report_cleanup_failure(Failure{});
    }
    DevicePool::keep_for_ever(std::move(each));
  }
}

Pool::Pool(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Pool::Pool(Pool&&) noexcept = default;
Pool& Pool::operator=(Pool&&) noexcept = default;
Pool::~Pool() = default;

Result<Pool> Pool::try_create(const Driver& driver, const PoolOptions& options) {
  if (auto refused = refusal_of(driver, options)) return std::move(*refused);
  auto source = options.source ? options.source : PhysicalSource::create(driver);
  auto impl = std::make_unique<Impl>(pool::PoolSetting{driver, options, std::move(source), false});
  for (const DeviceOrdinal device : options.devices)
    if (auto added = impl->add(device, std::make_shared<pool::Budget>(options.budget)); !added) return added.failure();
  impl->offer_to_source();
  return Pool(std::move(impl));
}

Pool Pool::create(const Driver& driver, const PoolOptions& options) {
  return try_create(driver, options).value();
}

Pool Pool::make_private() const {
  const Impl& here = owned_here(impl_, "Pool::make_private", "pool");
  pool::PoolSetting setting = here.setting();
  setting.for_capture = true;
  auto impl = std::make_unique<Impl>(std::move(setting));
  for (const auto& each : here.devices()) impl->add(each->device(), each->budget(), each).value();
  impl->offer_to_source();
  return Pool(std::move(impl));
}

Result<DeviceAddress> Pool::try_allocate(std::size_t bytes, CUstream_st* stream, DeviceOrdinal device) {
  if (auto refused = refusal_here(impl_, "Pool::allocate", "pool")) return std::move(*refused);
  DevicePool* const there = impl_->at(device);
  return there != nullptr ? there->allocate(bytes, stream) : no_such_device("Pool::allocate", device);
}

Result<DeviceAddress> Pool::try_allocate(std::size_t bytes, CUstream_st* stream) {
  if (auto refused = refusal_here(impl_, "Pool::allocate", "pool")) return std::move(*refused);
  return impl_->devices().front()->allocate(bytes, stream);
}

DeviceAddress Pool::allocate(std::size_t bytes, CUstream_st* stream) {
  return try_allocate(bytes, stream).value();
}

DeviceAddress Pool::allocate(std::size_t bytes, CUstream_st* stream, DeviceOrdinal device) {
  return try_allocate(bytes, stream, device).value();
}

void Pool::used_on(DeviceAddress address, CUstream_st* stream) {
  DevicePool* const there = owned_here(impl_, "Pool::used_on", "pool").of(address);
  if (there == nullptr) raise(foreign("Pool::used_on", address));
  there->used_on(address, stream).value();
}

Result<void> Pool::try_free(DeviceAddress address, CUstream_st* stream) {
  if (auto refused = refusal_here(impl_, "Pool::free", "pool")) return std::move(*refused);
  DevicePool* const there = impl_->of(address);
  return there != nullptr ? there->free(address, stream) : foreign("Pool::free", address);
}

void Pool::free(DeviceAddress address, CUstream_st* stream) {
  try_free(address, stream).value();
}

void Pool::forget(CUstream_st* stream) {
  for (const auto& each : owned_here(impl_, "Pool::forget", "pool").devices()) each->forget(stream).value();
}

std::size_t Pool::trim(std::size_t keep_bytes, std::size_t step_bytes) {
  std::size_t given = 0;
  for (const auto& each : owned_here(impl_, "Pool::trim", "pool").devices())
    if (given < step_bytes) given += each->trim(keep_bytes, step_bytes - given);
  return given;
}

std::optional<PoolAllocation> Pool::describe(DeviceAddress address) const {
  const DevicePool* const there = owned_here(impl_, "Pool::describe", "pool").of(address);
  return there != nullptr ? there->describe(address) : std::nullopt;
}

PoolStatistics Pool::statistics() const {
  PoolStatistics sum;
  for (const auto& each : owned_here(impl_, "Pool::statistics", "pool").devices()) sum += each->statistics();
  return sum;
}

PoolStatistics Pool::statistics(DeviceOrdinal device) const {
  const DevicePool* const there = owned_here(impl_, "Pool::statistics", "pool").at(device);
  if (there == nullptr) raise(no_such_device("Pool::statistics", device));
  return there->statistics();
}

const PoolOptions& Pool::options() const {
  return owned(impl_, "Pool::options", "pool").setting().options;
}

const Driver& Pool::driver() const {
  return owned(impl_, "Pool::driver", "pool").setting().driver;
}

const std::shared_ptr<PhysicalSource>& Pool::source() const {
  return owned(impl_, "Pool::source", "pool").setting().source;
}

}  // namespace cuvmm
