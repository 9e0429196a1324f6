// 4.16.4.1: multicast objects: their granularity, what they are created with, and their handles.
#include <fmt/core.h>

#include <algorithm>

#include "command/words.hpp"
#include "cuvmm/sharing/shareable_handle.hpp"
#include "driver/call.hpp"
#include "tour/fabric.hpp"
#include "tour/stops/multicast.hpp"

namespace cuvmm::tour {
namespace {

using sharing::ShareableHandle;

class ObjectTour {
 public:
  explicit ObjectTour(Visit& visit)
      : visit_(visit),
        driver_(visit.driver.interface()),
        devices_(visit),
        half_(half_of_multicast_window(visit, devices_)) {}

  void require_descriptors() const {
    if (devices_.root().device().supports_handle_type(HandleType::posix_file_descriptor)) return;
    throw Unavailable(fmt::format("device {} has no descriptors", devices_.root().gpu().ordinal()));
  }

  // The unit of sizes and offsets; it depends on the size that is asked for.
  void granularity() {
    const auto minimum = asked(half_, Granularity::minimum);
    const auto recommended = asked(half_, Granularity::recommended);
    const auto of_large = asked(most_bytes, Granularity::recommended);
    visit_.checks.require(minimum > 0 && recommended % minimum == 0 && of_large % minimum == 0,
                          "the recommended granularity is a multiple of the minimum",
                          fmt::format("{}, of a large object {}, and {}", recommended, of_large, minimum));
    visit_.checks.require(of_large >= recommended, "and grows with the object",
                          fmt::format("{} and then {}", recommended, of_large));
    std::size_t none = 0;
    const abi::CUmulticastObjectProp nothing = properties(0);
    require_refused(visit_.checks,
                    driver_.cuMulticastGetGranularity(&none, &nothing, abi::CU_MULTICAST_GRANULARITY_MINIMUM),
                    {abi::CUDA_ERROR_INVALID_VALUE}, "asking for the granularity before the size is filled in");
    visit_.shown = fmt::format("granularity {}, recommended {} for {} and more", command::with_separators(minimum),
                               command::with_separators(of_large), command::with_separators(most_bytes));
  }

  // What an object is created with; each time one thing is wrong.
  void refusals() {
    abi::CUmulticastObjectProp wrong = properties(half_);
    wrong.numDevices = 0;
    refuse_creation(wrong, "an object for no device");
    wrong = properties(half_);
    wrong.size = half_ + 1;
    refuse_creation(wrong, "an object of a size that is no multiple of the minimum granularity");
    wrong = properties(half_);
    wrong.flags = 1;
    refuse_creation(wrong, "an object with flags");
    const auto tried = MulticastObject::try_create(visit_.driver, {.devices = 2, .bytes = half_ + 1});
    visit_.checks.require(!tried && tried.failure().rule_ids.find("MULTICAST-SIZE-GRANULARITY") != std::string::npos,
                          "the library names the rule, and the way out",
                          tried ? "it created it" : tried.failure().message());
  }

  // It is a claim on the switch between the devices: the memory behind it comes later, with the binds.
  void takes_no_memory() {
    const Gpu& gpu = devices_.root().gpu();
    const std::uint64_t before = gpu.free_memory();
    const auto object = require_accepted(visit_.checks, "creating an object for two devices", [&] {
      return MulticastObject::create(visit_.driver, {.devices = 2, .bytes = 2 * half_});
    });
    const std::uint64_t after = gpu.free_memory();
    visit_.checks.require(after + half_ > before, "it takes none of the devices' memory",
                          fmt::format("{} bytes were free before, {} after", before, after));
    int descriptor = -1;
    require_refused(visit_.checks,
                    driver_.cuMemExportToShareableHandle(&descriptor, object.handle(),
                                                         abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                    {abi::CUDA_ERROR_INVALID_VALUE}, "exporting an object that was made without handle types");
  }

  // Each process of a team has a handle of its own; here one process plays two. The first device joins by the one, the
  // second by the other, and what is stored through the one is in what was bound by the other.
  void two_handles() {
    const auto types = HandleTypes(HandleType::posix_file_descriptor);
    TeamMemory memory(devices_, {.parts = 2, .part_bytes = half_, .handle_types = types});
    const MulticastProperties properties{.devices = 2, .bytes = 2 * half_, .handle_types = types};
    auto root = MulticastObject::create(visit_.driver, properties);
    auto imported = require_accepted(visit_.checks, "importing an object from its descriptor",
                                     [&] { return imported_from(root, HandleType::posix_file_descriptor); });
    require_one_object(root, imported, "a descriptor");
    imported.add_device(memory.device(1).device());
    memory.bind(root, 0);
    memory.bind(imported, 1);
    memory.map(imported);
    constexpr auto what = "an object behind two handles";
    require_broadcast(visit_, memory, 1, what);
    broadcast_input(visit_, memory, what);
    memory.unmap();
    visit_.shown += "; one object behind two handles, by a descriptor";
  }

  void fabric() {
    constexpr auto statement = "an object on another node, by a fabric handle";
    const Gpu& gpu = devices_.root().gpu();
    if (const std::string why = why_no_fabric_handles(gpu.device(), gpu.location()); !why.empty()) {
      visit_.checks.leave_out(statement, why);
      visit_.shown += "; fabric handles unavailable: " + why;
      return;
    }
    auto root =
        MulticastObject::create(visit_.driver, {.devices = 2, .bytes = half_, .handle_types = HandleType::fabric});
    auto imported = require_accepted(visit_.checks, "importing an object from its fabric handle",
                                     [&] { return imported_from(root, HandleType::fabric); });
    require_one_object(root, imported, "a fabric handle");
    visit_.shown += " and a fabric handle";
  }

 private:
  static constexpr std::size_t most_bytes = std::size_t{1} << 30;

  [[nodiscard]] std::size_t asked(std::size_t bytes, Granularity which) const {
    return MulticastObject::granularity(visit_.driver, {.devices = 2, .bytes = bytes}, which);
  }

  static abi::CUmulticastObjectProp properties(std::size_t bytes) {
    abi::CUmulticastObjectProp of_two{};
    of_two.numDevices = 2;
    of_two.size = bytes;
    return of_two;
  }

  void refuse_creation(const abi::CUmulticastObjectProp& wrong, const std::string& what) {
    abi::CUmemGenericAllocationHandle handle = 0;
    const abi::CUresult created = driver_.cuMulticastCreate(&handle, &wrong);
    if (created == abi::CUDA_SUCCESS) static_cast<void>(driver_.cuMemRelease(handle));
    require_refused(visit_.checks, created, {abi::CUDA_ERROR_INVALID_VALUE}, "creating " + what);
  }

  [[nodiscard]] MulticastObject imported_from(const MulticastObject& object, HandleType type) const {
    const auto handle = ShareableHandle::export_from(object.shareable().memory(), type);
    const std::size_t bytes = object.properties().bytes;
    return MulticastObject::adopt(handle.import_into(visit_.driver, {.bytes = bytes, .properties = MemoryProperties{}}),
                                  object.properties());
  }

  // A device joins an object once, by whatever handle. Adds the first one.
  void require_one_object(MulticastObject& one, MulticastObject& other, const std::string& by) {
    const Device& device = devices_.root().device();
    one.add_device(device);
    require_refused(visit_.checks, driver_.cuMulticastAddDevice(other.handle(), device.handle()),
                    {abi::CUDA_ERROR_INVALID_VALUE},
                    fmt::format("adding a device once more by what {} stands for, the same object,", by));
  }

  Visit& visit_;
  driver::Interface& driver_;
  TeamDevices devices_;
  std::size_t half_;
};

void visit_multicast_objects(Visit& visit) {
  ObjectTour tour(visit);
  tour.require_descriptors();
  tour.granularity();
  tour.refusals();
  tour.takes_no_memory();
  tour.two_handles();
  tour.fabric();
}

}  // namespace

Stop multicast_object_stop() {
  return {"4.16.4.1", "Objects", "multicast objects: granularity, creation and handles", visit_multicast_objects};
}

}  // namespace cuvmm::tour
