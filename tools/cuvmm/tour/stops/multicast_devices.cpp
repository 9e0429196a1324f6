// 4.16.4.2: devices join a multicast object, all of them before anything is bound.
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cuvmm/physical_memory.hpp"
#include "tour/stops/multicast.hpp"

namespace cuvmm::tour {
namespace {

class DeviceTour {
 public:
  explicit DeviceTour(Visit& visit)
      : visit_(visit),
        driver_(visit.driver.interface()),
        devices_(visit),
        memory_(devices_,
                {.ranks = devices_.size(), .parts = 2, .part_bytes = half_of_multicast_window(visit, devices_)}),
        object_(MulticastObject::create(
            visit.driver, {.devices = static_cast<unsigned>(devices_.size()), .bytes = memory_.bytes()})) {}

  void refusals() {
    const unsigned long long memory = memory_.part(0, 0).memory_at(0).memory().handle();
    require_refused(visit_.checks, driver_.cuMulticastAddDevice(memory, ordinal(0)), {abi::CUDA_ERROR_INVALID_VALUE},
                    "adding a device to memory, which is no multicast object,");
    require_accepted(visit_.checks, "adding it to the object", [&] { object_.add_device(device(0)); });
    require_refused(visit_.checks, driver_.cuMulticastAddDevice(object_.handle(), ordinal(0)),
                    {abi::CUDA_ERROR_INVALID_VALUE}, "adding a device twice");
    const auto tried = object_.try_add_device(device(0));
    visit_.checks.require(!tried && tried.failure().rule_ids.find("MULTICAST-JOIN-ONCE") != std::string::npos,
                          "the library refuses it before the driver is asked, and names the rule",
                          tried ? "it passed it on" : tried.failure().message());
    for (std::size_t rank = 1; rank + 1 < devices_.size(); ++rank) object_.add_device(device(rank));
  }

  // The reason why all ranks of a team agree that each has added its device before one of them binds.
  void binding_waits() {
    constexpr auto statement = "binding waits inside the driver until the last device was added";
    const std::size_t last = devices_.size() - 1;
    if (!visit_.driver.is_emulated()) {
      visit_.checks.leave_out(statement, "a real driver is not made to wait for what cannot be cancelled");
      return object_.add_device(device(last));
    }
    const SharedPhysicalMemory memory = memory_.part(0, 0).memory_at(0);
    const std::size_t bytes = memory.size();
    std::atomic<bool> is_back{false};
    abi::CUresult bound = abi::CUDA_ERROR_UNKNOWN;
    std::thread rank([&] {
      bound = driver_.cuMulticastBindMem(object_.handle(), 0, memory.memory().handle(), 0, bytes, 0);
      is_back = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a bind that does not wait is back long before
    const bool waited = !is_back;
    const auto added = object_.try_add_device(device(last));
    rank.join();
    visit_.checks.require(waited, statement, "it came back before");
    added.value();
    require_accepted(visit_.checks, bound, "the bind that waited for it");
    require_accepted(visit_.checks, driver_.cuMulticastUnbind(object_.handle(), ordinal(0), 0, bytes), "its unbind");
    visit_.shown = fmt::format("{} devices joined, and binding waits for the last of them", devices_.size());
  }

  // An object is for as many devices as it was created for.
  void one_too_many() {
    constexpr std::size_t for_two = 2;
    if (devices_.size() == for_two) {
      visit_.checks.leave_out("a device more than the object is for", "no more devices take part");
      return;
    }
    auto object = MulticastObject::create(visit_.driver, {.devices = for_two, .bytes = memory_.bytes()});
    for (std::size_t rank = 0; rank < for_two; ++rank) object.add_device(device(rank));
    require_refused(visit_.checks, driver_.cuMulticastAddDevice(object.handle(), ordinal(for_two)),
                    {abi::CUDA_ERROR_INVALID_VALUE}, "adding a third device to an object for two");
  }

  void move_input() {
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) memory_.bind(object_, rank);
    memory_.map(object_);
    const std::string what = team_in_words(devices_.size());
    require_broadcast(visit_, memory_, devices_.size() - 1, what);
    broadcast_input(visit_, memory_, what);
    memory_.unmap();
  }

 private:
  [[nodiscard]] const Device& device(std::size_t rank) const { return devices_[rank].device(); }
  [[nodiscard]] abi::CUdevice ordinal(std::size_t rank) const { return device(rank).handle(); }

  Visit& visit_;
  driver::Interface& driver_;
  TeamDevices devices_;
  TeamMemory memory_;
  MulticastObject object_;
};

void visit_multicast_devices(Visit& visit) {
  DeviceTour tour(visit);
  tour.refusals();
  tour.binding_waits();
  tour.one_too_many();
  tour.move_input();
}

}  // namespace

Stop multicast_device_stop() {
  return {"4.16.4.2", "Devices", "devices that join a multicast object, and what waits for the last of them",
          visit_multicast_devices};
}

}  // namespace cuvmm::tour
