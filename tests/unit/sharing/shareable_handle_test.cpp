#include "cuvmm/sharing/shareable_handle.hpp"

#include <sys/socket.h>

#include <functional>
#include <map>
#include <utility>

#include "open_descriptors.hpp"
#include "range/range_machine.hpp"
#include "scripted_driver.hpp"

namespace cuvmm::sharing {
namespace {

using test::EntryPoint;
using test::RangeMachine;

constexpr HandleTypes descriptors = HandleType::posix_file_descriptor;
constexpr HandleTypes fabric = HandleType::fabric;
constexpr std::size_t one_chunk = 2_MiB;

emulator::Configuration with_imex_channel() {
  emulator::Configuration configuration = test::strict_machine();
  configuration.imex_channels = 1;
  return configuration;
}

PhysicalMemory memory_of(const RangeMachine& machine, HandleTypes types, std::size_t bytes = one_chunk) {
  return PhysicalMemory::create(machine.driver(), {.handle_types = types}, bytes);
}

// What a copy that goes through imported memory brings back.
std::string through_import(RangeMachine& machine, const ShareableHandle& handle, const PhysicalMemory& exported) {
  const CurrentContext context(machine.driver().device(DeviceOrdinal(0)));
  const std::string sent = "these bytes went through a handle";
  std::string received(sent.size(), ' ');
  auto one = Mapping::create(AddressReservation::create(machine.driver(), exported.size()), 0, exported);
  grant(one, Location::device(DeviceOrdinal(0)), AccessRights::read_write);
  copy_to_device(one, 0, sent);
  auto range = MappedRange::create(machine.driver(), {.capacity = 64_MiB});
  range.append(SharedPhysicalMemory(handle.import_into(machine.driver(), {.bytes = exported.size()})));
  copy_from_device(received, range, 0);
  return received;
}

template <class Exception>
Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.failure();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "another exception: " << other.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(ShareableHandle, CarriesMemoryAsADescriptor) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors, 4_MiB);
  const auto handle = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  EXPECT_EQ(handle.type(), HandleType::posix_file_descriptor);
  EXPECT_GT(handle.descriptor(), 2);
  EXPECT_NE(::fcntl(handle.descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(through_import(machine, handle, memory), "these bytes went through a handle");
  EXPECT_THROW(static_cast<void>(handle.fabric_bytes()), InvalidUse);
}

TEST(ShareableHandle, CarriesMemoryAsFabricBytes) {
  RangeMachine machine(with_imex_channel());
  const auto memory = memory_of(machine, fabric);
  auto handle = ShareableHandle::export_from(memory, HandleType::fabric);
  EXPECT_EQ(handle.type(), HandleType::fabric);
  EXPECT_EQ(handle.descriptor(), -1);
  EXPECT_THROW(static_cast<void>(handle.give_out_descriptor()), InvalidUse);
  const auto received = ShareableHandle::from_bytes(handle.fabric_bytes());
  EXPECT_EQ(through_import(machine, received, memory), "these bytes went through a handle");
}

TEST(ShareableHandle, ImportedMemoryIsAsTheDriverTellsIt) {
  RangeMachine machine;
  const auto memory =
      PhysicalMemory::create(machine.driver(), {.handle_types = descriptors, .gpu_direct_rdma = true}, 2_MiB);
  const auto handle = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  machine.calls();
  const auto asked = handle.import_into(machine.driver(), {.bytes = 2_MiB});
  EXPECT_EQ(machine.calls(), "cuMemGetAllocationPropertiesFromHandle 1, cuMemImportFromShareableHandle 1");
  const auto told = handle.import_into(machine.driver(), {.bytes = 2_MiB, .properties = memory.properties()});
  EXPECT_EQ(machine.calls(), "cuMemImportFromShareableHandle 1") << "what is told is not asked";
  EXPECT_EQ(asked.properties(), told.properties());
  EXPECT_TRUE(asked.properties().handle_types.empty());
  EXPECT_FALSE(asked.properties().gpu_direct_rdma);
  EXPECT_EQ(asked.size(), 2_MiB);
  EXPECT_THROW(static_cast<void>(handle.import_into(machine.driver(), {})), InvalidUse) << "without a size";
  EXPECT_EQ(machine.calls(), "");
}

TEST(ShareableHandle, C21_ExportingWhatWasNotCreatedForItNamesTheOptionWithoutADriverCall) {
  RangeMachine machine(with_imex_channel());
  const auto plain = memory_of(machine, {});
  const auto for_descriptors = memory_of(machine, descriptors);
  const auto for_both = memory_of(machine, descriptors | fabric);
  const auto handle = ShareableHandle::export_from(for_descriptors, HandleType::posix_file_descriptor);
  const auto imported = handle.import_into(machine.driver(), {.bytes = 2_MiB});
  machine.calls();
  const auto refused = [&](const PhysicalMemory& memory, HandleType type) {
    return failure_of<InvalidUse>([&] { static_cast<void>(ShareableHandle::export_from(memory, type)); }).message();
  };
  EXPECT_NE(refused(plain, HandleType::posix_file_descriptor).find("HandleType::posix_file_descriptor"),
            std::string::npos);
  EXPECT_NE(refused(plain, HandleType::fabric).find("HandleType::fabric"), std::string::npos);
  EXPECT_NE(refused(for_descriptors, HandleType::fabric).find("HandleType::fabric"), std::string::npos);
  EXPECT_NE(refused(imported, HandleType::posix_file_descriptor).find("pass on the handle"), std::string::npos);
  EXPECT_EQ(machine.calls(), "") << "found before the driver";
  EXPECT_NO_THROW(static_cast<void>(ShareableHandle::export_from(for_descriptors, HandleType::posix_file_descriptor)));
  EXPECT_NO_THROW(static_cast<void>(ShareableHandle::export_from(for_both, HandleType::posix_file_descriptor)));
  EXPECT_NO_THROW(static_cast<void>(ShareableHandle::export_from(for_both, HandleType::fabric)));
}

TEST(ShareableHandle, C21_SaysThatFabricHandlesWereRefusedWhenTheMemoryWasCreated) {
  RangeMachine machine;
  const auto memory = PhysicalSource::create(machine.driver())->acquire({.handle_types = descriptors | fabric}, 2_MiB);
  const Failure failure = failure_of<InvalidUse>(
      [&] { static_cast<void>(ShareableHandle::export_from(memory.memory(), HandleType::fabric)); });
  EXPECT_NE(failure.reason.find("IMEX"), std::string::npos) << failure.message();
  EXPECT_NO_THROW(static_cast<void>(ShareableHandle::export_from(memory.memory(), HandleType::posix_file_descriptor)));
}

TEST(ShareableHandle, HandlesOfWindowsAreRefusedWithTheReasonAndWithoutADriverCall) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors);
  machine.calls();
  for (const HandleType type : {HandleType::win32, HandleType::win32_kmt}) {
    const Failure exported =
        failure_of<NotSupported>([&] { static_cast<void>(ShareableHandle::export_from(memory, type)); });
    EXPECT_NE(exported.reason.find("Windows"), std::string::npos) << exported.message();
    EXPECT_EQ(failure_of<NotSupported>([&] { static_cast<void>(memory_of(machine, descriptors | type)); }).feature,
              to_string(type));
    const MappedRangeOptions options{.capacity = 64_MiB, .memory = {.handle_types = type}};
    failure_of<NotSupported>([&] { static_cast<void>(MappedRange::create(machine.driver(), options)); });
  }
  EXPECT_EQ(machine.calls(), "");
  EXPECT_NO_THROW(static_cast<void>(memory_of(machine, descriptors)));
}

TEST(ShareableHandle, FromOutsideAndToOutside) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors);
  auto handle = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  const auto copy = ShareableHandle::copy_of(handle.descriptor());
  EXPECT_NE(copy.descriptor(), handle.descriptor());
  UniqueDescriptor given = handle.give_out_descriptor();
  EXPECT_EQ(handle.descriptor(), -1);
  EXPECT_THROW(static_cast<void>(handle.import_into(machine.driver(), {.bytes = 2_MiB})), InvalidUse);
  const auto adopted = ShareableHandle::adopt(std::move(given));
  for (const ShareableHandle* const each : {&copy, &adopted})
    EXPECT_EQ(through_import(machine, *each, memory), "these bytes went through a handle");
  EXPECT_THROW(static_cast<void>(ShareableHandle::adopt(UniqueDescriptor())), InvalidUse);
  EXPECT_THROW(static_cast<void>(ShareableHandle::copy_of(-1)), InvalidUse);
}

// As a process that was started without standard input has it: drivers take the number 0 for a null pointer.
TEST(ShareableHandle, IsNeverDescriptorZero) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors);
  const auto exported = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  const UniqueDescriptor input(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  ::close(0);
  const int zero = ::dup(exported.descriptor());
  EXPECT_EQ(zero, 0);
  const auto adopted = ShareableHandle::adopt(UniqueDescriptor(zero));
  EXPECT_LT(::fcntl(0, F_GETFD), 0) << "closed";
  if (input) ::dup2(input.get(), 0);
  EXPECT_GT(adopted.descriptor(), 2);
  EXPECT_EQ(through_import(machine, adopted, memory), "these bytes went through a handle");
}

TEST(ShareableHandle, IsCloseOnExecWhateverTheDriverMakesOfIt) {
  const auto fake = test::scripted_driver();
  fake->on_cuMemExportToShareableHandle = [](void* handle, auto...) {
    *static_cast<int*>(handle) = ::open("/dev/null", O_RDONLY);
    return abi::CUDA_SUCCESS;
  };
  const auto memory = PhysicalMemory::create(Driver::wrap(fake), {.handle_types = descriptors}, 2_MiB);
  const auto handle = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  EXPECT_NE(::fcntl(handle.descriptor(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(ShareableHandle, DescriptorsThatAreNoHandlesAreTypedErrorsThatSayWhatTheyAre) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors);
  int pipe_ends[2], socket_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socket_ends), 0);
  const UniqueDescriptor read_end(pipe_ends[0]), write_end(pipe_ends[1]), one(socket_ends[0]), other(socket_ends[1]);
  const UniqueDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC)), file(::open("/proc/self/exe", O_RDONLY));
  const auto failure_for = [&](int descriptor) {
    const auto handle = ShareableHandle::copy_of(descriptor);
    return failure_of<InvalidUse>([&] { static_cast<void>(handle.import_into(machine.driver(), {.bytes = 2_MiB})); })
        .message();
  };
  const std::map<int, std::string> foreign{{null.get(), "a device file"},
                                           {one.get(), "a socket"},
                                           {read_end.get(), "a pipe"},
                                           {file.get(), "a regular file"}};
  for (const auto& [descriptor, what] : foreign)
    EXPECT_NE(failure_for(descriptor).find(what), std::string::npos) << failure_for(descriptor);
  const auto closed = ShareableHandle::copy_of(null.get());
  ::close(closed.descriptor());
  EXPECT_NE(failure_of<InvalidUse>([&] { static_cast<void>(closed.import_into(machine.driver(), {.bytes = 2_MiB})); })
                .message()
                .find("not open"),
            std::string::npos);
  ::fcntl(null.get(), F_DUPFD_CLOEXEC, closed.descriptor());  // so that it can be closed once more
  const auto right = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  EXPECT_NO_THROW(static_cast<void>(right.import_into(machine.driver(), {.bytes = 2_MiB})));
}

TEST(ShareableHandle, ASizeThatNoMemoryHasIsRefusedBeforeTheDriverIsAsked) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors);
  const auto handle = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  machine.calls();
  for (const std::size_t bytes : {std::size_t{0}, SIZE_MAX / 2 + 1, SIZE_MAX - 2_MiB + 1, SIZE_MAX}) {
    const auto imported = handle.try_import_into(machine.driver(), {.bytes = bytes});
    ASSERT_FALSE(imported) << bytes;
    EXPECT_EQ(imported.failure().kind, ErrorKind::invalid_use) << imported.failure().message();
  }
  EXPECT_EQ(machine.calls(), "");
  EXPECT_TRUE(handle.try_import_into(machine.driver(), {.bytes = 2_MiB}));
}

TEST(ShareableHandle, FabricBytesThatAreNoHandleAreATypedError) {
  RangeMachine machine(with_imex_channel());
  FabricBytes bytes{};
  bytes.fill(std::byte{0x5a});
  const auto import = [&](const FabricBytes& these) {
    static_cast<void>(ShareableHandle::from_bytes(these).import_into(machine.driver(), {.bytes = 2_MiB}));
  };
  EXPECT_NE(failure_of<InvalidUse>([&] { import(bytes); }).rule.find("fabric handle"), std::string::npos);
  const auto memory = memory_of(machine, fabric);
  EXPECT_NO_THROW(import(ShareableHandle::export_from(memory, HandleType::fabric).fabric_bytes()));
}

TEST(ShareableHandle, C28_FabricWithoutAnImexChannelIsNeverALackOfMemory) {
  RangeMachine machine;
  const auto alone = PhysicalMemory::try_create(machine.driver(), {.handle_types = fabric}, 2_MiB);
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.failure().kind, ErrorKind::not_permitted);
  const auto imported = ShareableHandle::from_bytes({}).try_import_into(machine.driver(), {.bytes = 2_MiB});
  ASSERT_FALSE(imported);
  EXPECT_EQ(imported.failure().kind, ErrorKind::not_supported) << imported.failure().message();
  EXPECT_EQ(imported.failure().feature, "fabric handles");
  RangeMachine with_channel(with_imex_channel());
  EXPECT_TRUE(PhysicalMemory::try_create(with_channel.driver(), {.handle_types = fabric}, 2_MiB));
}

TEST(ShareableHandle, ALackOfDescriptorsIsReportedAsThat) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors);
  const auto handle = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  {
    const test::DescriptorLimit none(0);
    const auto exported = ShareableHandle::try_export_from(memory, HandleType::posix_file_descriptor);
    ASSERT_FALSE(exported);
    EXPECT_EQ(exported.failure().kind, ErrorKind::out_of_descriptors) << exported.failure().message();
    EXPECT_THROW(static_cast<void>(ShareableHandle::copy_of(handle.descriptor())), OutOfDescriptors);
  }
  EXPECT_TRUE(ShareableHandle::try_export_from(memory, HandleType::posix_file_descriptor));
}

// Whatever the driver answers, it is no lack of device memory, and nothing is left.
TEST(ShareableHandle, FailuresOfTheDriverLeaveNothing) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors);
  const auto handle = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  const auto alive = machine.alive();
  const std::size_t open = test::open_descriptors();
  for (const EntryPoint entry : {EntryPoint::cuMemExportToShareableHandle, EntryPoint::cuMemImportFromShareableHandle,
                                 EntryPoint::cuMemGetAllocationPropertiesFromHandle})
    for (const auto code : {abi::CUDA_ERROR_OUT_OF_MEMORY, abi::CUDA_ERROR_UNKNOWN, abi::CUDA_ERROR_NOT_PERMITTED}) {
      machine.fail(entry, 1, code);
      const auto exported = ShareableHandle::try_export_from(memory, HandleType::posix_file_descriptor);
      const auto imported = handle.try_import_into(machine.driver(), {.bytes = 2_MiB});
      EXPECT_NE(exported.has_value(), imported.has_value()) << driver::name(entry);
      const Failure& failure = exported ? imported.failure() : exported.failure();
      if (entry != EntryPoint::cuMemGetAllocationPropertiesFromHandle) {
        EXPECT_NE(failure.kind, ErrorKind::out_of_device_memory) << failure.message();
      }
      machine.faults().clear();
    }
  EXPECT_EQ(machine.alive(), alive);
  EXPECT_LE(test::open_descriptors(), open + 1) << "the emulated driver keeps one until the next export";
}

TEST(ShareableHandle, KeepsNoDescriptorsOverTenThousandRounds) {
  RangeMachine machine;
  const auto memory = memory_of(machine, descriptors);
  const std::size_t open = test::open_descriptors();
  const auto alive = machine.alive();
  for (int round = 0; round < 10'000; ++round) {
    const auto handle = ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
    const auto imported = handle.import_into(machine.driver(), {.bytes = 2_MiB});
  }
  static_cast<void>(
      ShareableHandle::export_from(memory, HandleType::posix_file_descriptor));  // notices what was closed
  EXPECT_LE(test::open_descriptors(), open + 1);
  EXPECT_EQ(machine.alive(), alive);
}

}  // namespace
}  // namespace cuvmm::sharing
