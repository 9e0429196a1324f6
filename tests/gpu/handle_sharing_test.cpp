// Handles between processes on a real driver. Only the children open it: a process that has cannot be forked.
#include <fcntl.h>
#include <sys/socket.h>

#include "../processes/child_process.hpp"
#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;
using tests::ChildProcess;

constexpr std::string_view content = "bytes of another process";
constexpr HandleType descriptors = HandleType::posix_file_descriptor;

Deadline soon() {
  return Deadline::in(200s);
}

TEST(HandlesOnGpu, CarryBytesAndOutliveAKilledExporter) {
  auto [one, other] = DescriptorSocket::pair();
  ChildProcess exporter([&, &socket = one]() -> int {
    const Driver driver = Driver::cuda();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    auto range = MappedRange::create(driver, {.capacity = 64_MiB, .memory = {.handle_types = descriptors}});
    range.append(2_MiB);
    copy_to_device(range, 0, content);
    std::vector<HandleOfMemory> handles;
    handles.push_back({ShareableHandle::export_from(range.memory_at(0).memory(), descriptors), 2_MiB});
    send_handles(socket, handles, soon());
    return ::raise(SIGKILL);
  });
  EXPECT_EQ(exporter.wait(), -1);
  ChildProcess importer([&, &socket = other] {
    const auto handles = receive_handles(socket, soon());
    const Driver driver = Driver::cuda();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    auto range = MappedRange::create(driver, {.capacity = 64_MiB});
    const auto imported = handles.front().handle.import_into(driver, {.bytes = handles.front().bytes});
    if (!imported.properties().handle_types.empty() || imported.properties().gpu_direct_rdma) return 2;
    if (ShareableHandle::try_export_from(imported, descriptors)) return 3;
    range.append(SharedPhysicalMemory(handles.front().handle.import_into(driver, {.bytes = handles.front().bytes})));
    std::string received(content.size(), ' ');
    copy_from_device(received, range, 0);
    return received == content ? 0 : 1;
  });
  EXPECT_EQ(importer.wait(), 0);
}

TEST(HandlesOnGpu, DescriptorsThatAreNoHandlesAreTypedErrors) {
  ChildProcess child([] {
    const Driver driver = Driver::cuda();
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) return 9;
    int failures = 0;
    for (const int descriptor : {::open("/dev/null", O_RDWR), ::open("/proc/self/exe", O_RDONLY), sockets[0]}) {
      const auto imported =
          ShareableHandle::adopt(UniqueDescriptor(descriptor)).try_import_into(driver, {.bytes = 2_MiB});
      if (imported || imported.failure().kind != ErrorKind::invalid_use) ++failures;
    }
    return failures;
  });
  EXPECT_EQ(child.wait(), 0);
}

// Either the machine has fabric handles and gives them, or it does without, and says why.
TEST(HandlesOnGpu, C28_FabricHandlesAreGotOrTheReasonIsKept) {
  ChildProcess child([] {
    const Driver driver = Driver::cuda();
    const auto source = PhysicalSource::create(driver);
    const auto memory = source->acquire({.handle_types = HandleType::fabric | descriptors}, 2_MiB);
    const auto refusal = source->fabric_refusal(Location::device(DeviceOrdinal(0)));
    if (refusal) std::printf("fabric handles: %s\n", refusal->message().c_str());
    std::fflush(stdout);
    return memory.properties().handle_types.contains(HandleType::fabric) != refusal.has_value() ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace cuvmm::sharing
