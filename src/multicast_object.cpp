#include "cuvmm/multicast_object.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "clean_up.hpp"
#include "driver/call.hpp"
#include "driver/multicast_switch.hpp"
#include "pointer_query.hpp"
#include "refusal.hpp"
#include "windows_handles.hpp"

namespace cuvmm {

using driver::EntryPoint;
using driver::try_call;

namespace {

constexpr std::string_view creating = "MulticastObject::create";
constexpr std::string_view adopting = "MulticastObject::adopt";
constexpr std::string_view adding = "MulticastObject::add_device";
constexpr std::string_view binding = "MulticastObject::bind";
constexpr std::string_view unbinding = "MulticastObject::unbind";
constexpr std::string_view placing = "MulticastObject::map";
constexpr std::string_view closing = "MulticastObject::close";
constexpr std::string_view granting = "MulticastMapping::grant";
constexpr std::string_view what = "multicast object";

// Where multicast is turned off no driver is asked for anything.
std::optional<Failure> turned_off(std::string_view call) {
  std::string why = driver::why_multicast_is_off();
  if (why.empty()) return std::nullopt;
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.call = call;
  failure.feature = "multicast";
  failure.reason = std::move(why);
  failure.way_out = "Remove the switch where multicast is wanted, or go on without: only multicast algorithms need it";
  return failure;
}

std::string text_of(const MulticastProperties& properties) {
  return fmt::format("devices = {}, bytes = {}, handle_types = {}", properties.devices, properties.bytes,
                     to_string(properties.handle_types));
}

std::optional<Failure> flaw_in(std::string_view call, const MulticastProperties& properties) {
  if (auto off = turned_off(call)) return off;
  if (auto refused = windows_handles_refused(call, properties.handle_types)) return refused;
  if (properties.devices != 0 && properties.bytes != 0) return std::nullopt;
  return invalid_use(call, text_of(properties), "A multicast object is for one device at least, and has a size",
                     "Fill in MulticastProperties::devices and bytes", "MULTICAST-PROPERTIES");
}

abi::CUmulticastObjectProp to_abi(const MulticastProperties& properties) {
  abi::CUmulticastObjectProp converted{};
  converted.numDevices = properties.devices;
  converted.size = properties.bytes;
  converted.handleTypes = properties.handle_types.bits();
  return converted;
}

Result<std::size_t> ask_granularity(std::string_view call, const Driver& driver, const MulticastProperties& properties,
                                    Granularity which) {
  if (auto flaw = flaw_in(call, properties)) return std::move(*flaw);
  const abi::CUmulticastObjectProp converted = to_abi(properties);
  std::size_t granularity = 0;
  const auto asked = try_call<EntryPoint::cuMulticastGetGranularity>(
      driver.interface(), &granularity, &converted, static_cast<abi::CUmulticastGranularity_flags>(which));
  if (!asked) return asked.failure();
  if (granularity == 0) return nonsense("cuMulticastGetGranularity", "a granularity of 0");
  return granularity;
}

// The minimum, of which the size has to be a multiple.
Result<std::size_t> granularity_of_size(std::string_view call, const Driver& driver,
                                        const MulticastProperties& properties) {
  auto granularity = ask_granularity(call, driver, properties, Granularity::minimum);
  if (!granularity || is_aligned(properties.bytes, *granularity)) return granularity;
  return invalid_use(
      call, text_of(properties),
      fmt::format("The size must be a multiple of the minimum multicast granularity, {} bytes", *granularity),
      "Round it up: MulticastObject::fitted computes it", "MULTICAST-SIZE-GRANULARITY");
}

bool overlap(std::size_t one, std::size_t one_bytes, std::size_t other, std::size_t other_bytes) {
  return one < other + other_bytes && other < one + one_bytes;
}

}  // namespace

struct MulticastObject::State {
  // Part of an allocation behind part of the object.
  struct Binding {
    SharedPhysicalMemory memory;
    int device = 0;
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  State(Driver owning_driver, const MulticastProperties& its_properties, std::size_t minimum)
      : driver(std::move(owning_driver)), properties(its_properties), granularity(minimum) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (const Binding& each : bindings)
      clean_up<EntryPoint::cuMulticastUnbind>(driver.interface(), handle_value(), each.device, each.offset, each.bytes);
  }

  [[nodiscard]] unsigned long long handle_value() const { return handle ? handle.memory().handle() : 0; }
  [[nodiscard]] std::string text() const {
    return fmt::format("object = {:#x}, {}", handle_value(), text_of(properties));
  }

  [[nodiscard]] Result<void> unbind(const Binding& one) const {
    return try_call<EntryPoint::cuMulticastUnbind>(driver.interface(), handle_value(), one.device, one.offset,
                                                   one.bytes);
  }

  Driver driver;
  MulticastProperties properties;
  std::size_t granularity;
  bool imported = false;
  std::size_t mappings = 0;
  std::vector<int> devices;       // that this owner has added
  std::vector<Binding> bindings;  // their memory is given back after the object
  SharedPhysicalMemory handle;
};

namespace {

// Of a bind of `bytes` bytes, from `memory_offset` on, of memory that is as given.
struct Bind {
  std::size_t offset = 0;
  std::size_t memory_offset = 0;
  std::size_t memory_size = 0;
  std::size_t bytes = 0;
};

std::string text_of(const Bind& bind) {
  return fmt::format("offset = {}, memory of {} from {} on, bytes = {}", bind.offset, format_bytes(bind.memory_size),
                     bind.memory_offset, bind.bytes);
}

std::optional<Failure> flaw_in_range(const Bind& bind, const MulticastProperties& object, std::size_t granularity) {
  const auto refuse = [&](std::string rule, std::string way_out) {
    return invalid_use(binding, text_of(bind), std::move(rule), std::move(way_out), "MULTICAST-BIND-RANGE");
  };
  if (bind.bytes == 0) return refuse("Something is to be bound", "Pass how many bytes");
  for (const std::size_t number : {bind.offset, bind.memory_offset, bind.bytes})
    if (!is_aligned(number, granularity))
      return refuse(fmt::format("Size and both offsets must be multiples of the minimum granularity, {} bytes; {} is "
                                "not",
                                granularity, number),
                    "Round them up: MulticastObject::fitted tells the unit");
  if (bind.memory_offset > bind.memory_size || bind.bytes > bind.memory_size - bind.memory_offset)
    return refuse("What is bound must lie within the memory", "Bind less, or create more memory");
  if (bind.offset > object.bytes || bind.bytes > object.bytes - bind.offset)
    return refuse(fmt::format("What is bound must lie within the object, which has {}", format_bytes(object.bytes)),
                  "Bind less, or create a larger object");
  return std::nullopt;
}

std::optional<Failure> flaw_in_memory(const Bind& bind, const MemoryProperties& memory, bool object_is_shared) {
  if (memory.location.kind != LocationKind::device)
    return invalid_use(binding, text_of(bind) + ", memory on " + to_string(memory.location),
                       "What is bound is memory of a device that was added to the object",
                       "Create it at Location::device", "MULTICAST-BIND-MEMORY");
  if (object_is_shared && memory.handle_types.empty())
    return invalid_use(binding, text_of(bind),
                       "To an object that can be exported, or was imported, only memory is bound that can be exported",
                       "Create the memory with MemoryProperties::handle_types", "MULTICAST-BIND-SHAREABLE");
  return std::nullopt;
}

}  // namespace

MulticastObject::MulticastObject(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

Result<MulticastObject> MulticastObject::try_create(const Driver& driver, const MulticastProperties& properties) {
  const auto granularity = granularity_of_size(creating, driver, properties);
  if (!granularity) return granularity.failure();
  auto state = std::make_shared<State>(driver, properties, *granularity);
  const abi::CUmulticastObjectProp converted = to_abi(properties);
  unsigned long long handle = 0;
  const auto created = try_call<EntryPoint::cuMulticastCreate>(driver.interface(), &handle, &converted);
  if (!created) {
    Failure failure = created.failure();
    if (failure.kind == ErrorKind::not_permitted && properties.handle_types.contains(HandleType::fabric))
      failure.feature = "fabric handles";
    return failure;
  }
  try {
    state->handle = SharedPhysicalMemory(
        PhysicalMemory::adopt(driver, handle, {.handle_types = properties.handle_types}, properties.bytes));
  } catch (const Error& error) {  // larger than memory can be
    clean_up<EntryPoint::cuMemRelease>(driver.interface(), handle);
    Failure failure = error.failure();
    failure.call = creating;
    failure.arguments = text_of(properties);
    return failure;
  } catch (...) {
    clean_up<EntryPoint::cuMemRelease>(driver.interface(), handle);
    throw;
  }
  return MulticastObject(std::move(state));
}

Result<MulticastObject> MulticastObject::try_adopt(PhysicalMemory handle, const MulticastProperties& properties) {
  if (handle.size() == 0) return owns_nothing(adopting, "handle");
  if (handle.size() != properties.bytes)
    return invalid_use(adopting, fmt::format("handle of {} bytes, {}", handle.size(), text_of(properties)),
                       "The handle and the properties must be of one object",
                       "Have whoever created the object send its MulticastProperties with the handle",
                       "MULTICAST-PROPERTIES");
  const auto granularity = granularity_of_size(adopting, handle.driver(), properties);
  if (!granularity) return granularity.failure();
  auto state = std::make_shared<State>(handle.driver(), properties, *granularity);
  state->imported = true;
  state->handle = SharedPhysicalMemory(std::move(handle));
  return MulticastObject(std::move(state));
}

std::size_t MulticastObject::granularity(const Driver& driver, const MulticastProperties& properties,
                                         Granularity which) {
  return ask_granularity("MulticastObject::granularity", driver, properties, which).value();
}

GranularFit MulticastObject::fitted(const Driver& driver, const MulticastProperties& properties,
                                    const MemoryProperties& memory, Granularity which) {
  MulticastProperties filled = properties;
  filled.bytes = std::max<std::size_t>(filled.bytes, 1);
  const std::size_t minimum = granularity(driver, filled);
  std::size_t units[] = {minimum, PhysicalMemory::granularity(driver, memory), minimum};
  GranularFit fit = cuvmm::fitted(filled.bytes, units);
  if (which == Granularity::minimum) return fit;
  filled.bytes = fit.bytes;  // on which the recommended one depends
  units[2] = granularity(driver, filled, which);
  return cuvmm::fitted(filled.bytes, units);
}

Result<void> MulticastObject::try_add_device(const Device& device) {
  if (!state_) return owns_nothing(adding, what);
  if (auto off = turned_off(adding)) return std::move(*off);
  const auto refuse = [&](std::string rule, std::string way_out, std::string_view rule_id) {
    return invalid_use(adding, fmt::format("device = {}, {}", device.ordinal().value, state_->text()), std::move(rule),
                       std::move(way_out), rule_id);
  };
  if (device.driver() != state_->driver)
    return refuse("Object and device must come from the same driver", "Use one Driver", {});
  auto& added = state_->devices;
  if (std::find(added.begin(), added.end(), device.handle()) != added.end())
    return refuse("A device joins a multicast object once", "Add each device of the team once", "MULTICAST-JOIN-ONCE");
  if (added.size() == state_->properties.devices)
    return refuse("No more devices join than the object was created for", "Create it for as many as the team has",
                  "MULTICAST-JOIN-ONCE");
  added.reserve(added.size() + 1);
  auto joined =
      try_call<EntryPoint::cuMulticastAddDevice>(state_->driver.interface(), state_->handle_value(), device.handle());
  if (joined) added.push_back(device.handle());
  return joined;
}

namespace {

// What is certain to be wrong with a bind, of what one owner knows.
template <class State>
std::optional<Failure> flaw_in_bind(const State& state, const Bind& bind, const MemoryProperties& memory) {
  if (auto flaw = flaw_in_range(bind, state.properties, state.granularity)) return flaw;
  if (auto flaw = flaw_in_memory(bind, memory, state.imported || !state.properties.handle_types.empty())) return flaw;
  for (const auto& each : state.bindings)
    if (each.device == memory.location.id && overlap(each.offset, each.bytes, bind.offset, bind.bytes))
      return invalid_use(
          binding, text_of(bind),
          fmt::format("Device {} has {} bound at {} of the object", each.device, format_bytes(each.bytes), each.offset),
          "Unbind them first, or bind at another offset", "MULTICAST-BIND-ONCE");
  return std::nullopt;
}

}  // namespace

Result<void> MulticastObject::check_bind(std::size_t offset, const SharedPhysicalMemory& memory,
                                         std::size_t memory_offset, std::size_t bytes) const {
  if (!state_ || !memory) return owns_nothing(binding, state_ ? "memory" : what);
  if (auto off = turned_off(binding)) return std::move(*off);
  const Bind bind{offset, memory_offset, memory.size(), bytes};
  if (memory.memory().driver() != state_->driver)
    return invalid_use(binding, text_of(bind), "Object and memory must come from the same driver", "Use one Driver");
  if (auto flaw = flaw_in_bind(*state_, bind, memory.properties())) return std::move(*flaw);
  return {};
}

Result<void> MulticastObject::try_bind(std::size_t offset, const SharedPhysicalMemory& memory,
                                       std::size_t memory_offset, std::size_t bytes) {
  if (auto fine = check_bind(offset, memory, memory_offset, bytes); !fine) return fine;
  driver::Interface& interface = state_->driver.interface();
  const int device = memory.properties().location.id;
  const unsigned long long object = state_->handle_value();
  const unsigned long long handle = memory.memory().handle();
  state_->bindings.push_back({memory, device, offset, bytes});  // before the call: nothing may fail after it
  auto bound =
      interface.has(EntryPoint::cuMulticastBindMem_v2)
          ? try_call<EntryPoint::cuMulticastBindMem_v2>(interface, object, device, offset, handle, memory_offset, bytes,
                                                        0ULL)
          : try_call<EntryPoint::cuMulticastBindMem>(interface, object, offset, handle, memory_offset, bytes, 0ULL);
  if (!bound) state_->bindings.pop_back();
  return bound;
}

Result<void> MulticastObject::try_bind_address(std::size_t offset, DeviceAddress address, std::size_t bytes) {
  if (!state_) return owns_nothing(binding, what);
  if (auto off = turned_off(binding)) return std::move(*off);
  auto retained = PhysicalMemory::try_retain(state_->driver, address);
  if (!retained) return retained.failure();
  const auto facts = query_pointer(state_->driver, address);
  if (!facts) return facts.failure();
  const SharedPhysicalMemory memory(std::move(retained).value());
  const Bind bind{offset, static_cast<std::size_t>(address.value - facts->base.value), memory.size(), bytes};
  if (auto flaw = flaw_in_bind(*state_, bind, memory.properties())) return std::move(*flaw);
  driver::Interface& interface = state_->driver.interface();
  const int device = memory.properties().location.id;
  const unsigned long long object = state_->handle_value();
  state_->bindings.push_back({memory, device, offset, bytes});
  auto bound =
      interface.has(EntryPoint::cuMulticastBindAddr_v2)
          ? try_call<EntryPoint::cuMulticastBindAddr_v2>(interface, object, device, offset, address.value, bytes, 0ULL)
          : try_call<EntryPoint::cuMulticastBindAddr>(interface, object, offset, address.value, bytes, 0ULL);
  if (!bound) state_->bindings.pop_back();
  return bound;
}

Result<void> MulticastObject::try_unbind(const Device& device, std::size_t offset, std::size_t bytes) {
  if (!state_) return owns_nothing(unbinding, what);
  const auto refuse = [&](std::string rule, std::string way_out, std::string_view rule_id) {
    return invalid_use(
        unbinding,
        fmt::format("device = {}, offset = {}, bytes = {}, {}", device.ordinal().value, offset, bytes, state_->text()),
        std::move(rule), std::move(way_out), rule_id);
  };
  if (state_->mappings > 0)
    return refuse("An object is unmapped before memory is unbound from it", "Destroy its MulticastMapping first",
                  "MULTICAST-UNBIND-AFTER-UNMAP");
  const auto found = std::find_if(state_->bindings.begin(), state_->bindings.end(), [&](const auto& each) {
    return each.device == device.handle() && each.offset == offset && each.bytes == bytes;
  });
  if (found == state_->bindings.end())
    return refuse("What is unbound is exactly what this owner has bound: device, offset and size",
                  "Unbind each bind with its own numbers, once", "MULTICAST-UNBIND-EXACT");
  auto unbound = state_->unbind(*found);
  if (unbound) state_->bindings.erase(found);
  return unbound;
}

Result<MulticastMapping> MulticastObject::try_map(const AddressReservation& reservation, std::size_t offset) {
  if (!state_) return owns_nothing(placing, what);
  if (auto off = turned_off(placing)) return std::move(*off);
  auto mapped = Mapping::try_create(reservation, offset, state_->handle.memory());
  if (!mapped) return mapped.failure();
  return MulticastMapping(state_, std::move(mapped).value());
}

MulticastMapping MulticastObject::map(const AddressReservation& reservation, std::size_t offset) {
  return try_map(reservation, offset).value();
}

Result<void> MulticastObject::try_close() {
  if (!state_) return owns_nothing(closing, what);
  if (state_->mappings > 0)
    return invalid_use(closing, state_->text(), "An object is unmapped before memory is unbound from it",
                       "Destroy its MulticastMapping first", "MULTICAST-UNBIND-AFTER-UNMAP");
  Result<void> closed;
  std::erase_if(state_->bindings, [&](const State::Binding& each) {
    auto unbound = state_->unbind(each);
    if (!unbound && closed) closed = unbound;
    return unbound.has_value();
  });
  if (closed) state_.reset();
  return closed;
}

const MulticastProperties& MulticastObject::properties() const {
  return owned(state_, "MulticastObject::properties", what).properties;
}
const Driver& MulticastObject::driver() const {
  return owned(state_, "MulticastObject::driver", what).driver;
}
std::size_t MulticastObject::granularity() const {
  return owned(state_, "MulticastObject::granularity", what).granularity;
}
std::size_t MulticastObject::bindings() const {
  return owned(state_, "MulticastObject::bindings", what).bindings.size();
}
bool MulticastObject::is_mapped() const {
  return owned(state_, "MulticastObject::is_mapped", what).mappings > 0;
}
unsigned long long MulticastObject::handle() const {
  return owned(state_, "MulticastObject::handle", what).handle_value();
}
SharedPhysicalMemory MulticastObject::shareable() const {
  return owned(state_, "MulticastObject::shareable", what).handle;
}

MulticastMapping::MulticastMapping(std::shared_ptr<MulticastObject::State> object, Mapping mapping) noexcept
    : object_(std::move(object)), mapping_(std::move(mapping)) {
  ++object_->mappings;
}

void MulticastMapping::forget() noexcept {
  if (object_) --object_->mappings;
  object_.reset();
}

MulticastMapping::MulticastMapping(MulticastMapping&&) noexcept = default;

MulticastMapping& MulticastMapping::operator=(MulticastMapping&& other) noexcept {
  if (this == &other) return *this;
  const MulticastMapping previous(std::move(*this));  // unmapped at the end of this function
  object_ = std::move(other.object_);
  mapping_ = std::move(other.mapping_);
  return *this;
}

// The mapping goes first; the count only says whether this owner may unbind.
MulticastMapping::~MulticastMapping() {
  if (object_) --object_->mappings;
}

Result<void> MulticastMapping::try_grant(std::span<const AccessGrant> grants) {
  if (!object_) return owns_nothing(granting, "mapping");
  for (const AccessGrant& each : grants)
    if (each.location.kind != LocationKind::device)
      return invalid_use(granting, fmt::format("mapping at {:#x}, {}", address().value, to_string(each.location)),
                         "Multicast addresses are granted to devices of the team alone",
                         "Name the devices that were added", "MULTICAST-GRANT-TEAM");
  return cuvmm::try_grant(mapping_, grants);
}

void MulticastMapping::unmap() {
  if (!object_) raise(owns_nothing("MulticastMapping::unmap", "mapping"));
  mapping_.unmap();
  forget();
}

}  // namespace cuvmm
