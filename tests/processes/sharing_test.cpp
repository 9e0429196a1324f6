// Memory that passes from one process of a machine to another.
#include <fcntl.h>

#include <memory>
#include <vector>

#include "machine.hpp"

namespace cuvmm::tests {
namespace {

TEST(SharedMachine, CarriesBytesBothWays) {
  const Machine machine;
  Actor one(machine), other(machine);
  one.init();
  other.init();
  const auto handle = one.create(descriptors);
  const auto here = one.map(handle);
  one.write(here, 7);
  const auto there = other.map(other.import(one.export_descriptor(handle)));
  EXPECT_EQ(other.read(there + chunk - 1), 7);
  other.write(there, 9);
  EXPECT_EQ(one.read(here), 9);
}

TEST(SharedMachine, CarriesHostMemoryThatTheProcessesTouchThemselves) {
  const Machine machine;
  Actor one(machine), other(machine);
  one.init();
  other.init();
  const auto handle = one.done("create 2097152 1 3").number();
  const auto here = one.map(handle);
  const auto there = other.map(other.import(one.export_descriptor(handle)));
  (void)one.done("touch " + std::to_string(here) + " 5");
  EXPECT_EQ(other.read(there), 5);
  (void)other.done("touch " + std::to_string(there) + " 6");
  EXPECT_EQ(one.read(here), 6);
}

TEST(SharedMachine, CountsTheMemoryOfAllProcessesPools) {
  constexpr std::uint64_t reserved = std::uint64_t{32} << 20;
  const Machine machine("memory=2GiB");
  Actor one(machine), other(machine);
  one.init();
  other.init();
  const std::uint64_t all = one.free_bytes();
  const auto small = one.done("alloc-pooled 1000").number();
  EXPECT_EQ(other.free_bytes(), all - reserved);
  one.write(small, 7, 1000);
  EXPECT_EQ(one.read(small + 999), 7);
  const std::string most = std::to_string(all / 5 * 4);
  const auto large = other.done("alloc-pooled " + most).number();
  EXPECT_EQ(one.ask("alloc-pooled " + most).code, CUDA_ERROR_OUT_OF_MEMORY);
  (void)other.done("free-pooled " + std::to_string(large));
  EXPECT_EQ(other.free_bytes(), all - reserved);
  (void)one.done("alloc-pooled " + most);
  EXPECT_EQ(other.ask("alloc-pooled " + most).code, CUDA_ERROR_OUT_OF_MEMORY);
  one.kill();
  (void)other.done("alloc-pooled " + most);
}

TEST(SharedMachine, CountsTheMemoryOfAllProcesses) {
  const Machine machine;
  Actor one(machine), other(machine);
  const auto all = one.init().free_bytes();
  other.init();
  const auto handle = one.create(0, 16 * chunk);
  const auto allocated = other.done("alloc " + std::to_string(3 * chunk)).number();
  EXPECT_EQ(one.free_bytes(), all - 19 * chunk);
  EXPECT_EQ(other.free_bytes(), all - 19 * chunk);
  const auto rest = all / chunk * chunk - 19 * chunk;
  EXPECT_EQ(other.ask("create " + std::to_string(rest + chunk) + " 0").code, CUDA_ERROR_OUT_OF_MEMORY);
  const auto last = other.create(0, rest);
  EXPECT_EQ(one.ask("create 2097152 0").code, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(one.ask("alloc 1").code, CUDA_ERROR_OUT_OF_MEMORY);
  other.release(last);
  one.release(handle);
  (void)other.done("free " + std::to_string(allocated));
  EXPECT_EQ(one.free_bytes(), all);
}

// Several take at once what each of them has seen to be free.
TEST(SharedMachine, C43_GivesEachByteToOneProcessOfThoseThatTakeAtOnce) {
  const Machine machine("memory=1GiB");
  std::vector<std::unique_ptr<Actor>> actors;
  for (int index = 0; index < 4; ++index) actors.push_back(std::make_unique<Actor>(machine));
  for (const auto& actor : actors) actor->init();
  const auto all = actors.front()->free_bytes() / chunk;
  std::uint64_t taken = 0;
  while (taken <= all) {
    for (const auto& actor : actors) actor->tell("create 2097152 0");
    std::size_t refused = 0;
    for (const auto& actor : actors) actor->answer().code == CUDA_SUCCESS ? ++taken : ++refused;
    if (refused == actors.size()) break;
  }
  EXPECT_EQ(taken, all);
}

TEST(SharedMachine, GivesMemoryBackWhenTheLastProcessThatHasItLetsGo) {
  const Machine machine;
  Actor one(machine), other(machine);
  const auto all = one.init().free_bytes();
  other.init();
  const auto handle = one.create(descriptors);
  auto imported = other.import(one.export_descriptor(handle));
  one.release(handle);
  EXPECT_EQ(one.free_bytes(), all - chunk);
  const auto there = other.map(imported);
  other.release(imported);
  EXPECT_EQ(one.free_bytes(), all - chunk) << "it is mapped";
  other.unmap(there);
  EXPECT_EQ(one.free_bytes(), all);
}

TEST(SharedMachine, ImportsTheSameMemoryAsOftenAsWanted) {
  const Machine machine;
  Actor one(machine), other(machine);
  const auto all = one.init().free_bytes();
  other.init();
  const auto handle = one.create(descriptors);
  FileDescriptor first = one.export_descriptor(handle);
  const auto again = one.import(first);
  EXPECT_NE(again, handle);
  const auto imported = other.import(first);
  const auto twice = other.import(one.export_descriptor(handle));
  EXPECT_NE(imported, twice);
  one.release(handle);
  one.release(again);
  first = FileDescriptor();
  other.release(imported);
  EXPECT_EQ(one.free_bytes(), all - chunk) << "there is one handle left";
  other.release(twice);
  EXPECT_EQ(one.free_bytes(), all);
}

TEST(SharedMachine, RefusesWhatIsNoExport) {
  const Machine machine;
  Actor one(machine), other(machine);
  one.init();
  other.init();
  const auto handle = one.create(descriptors);
  const FileDescriptor exported = one.export_descriptor(handle);
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const FileDescriptor read_end(pipe_ends[0]), write_end(pipe_ends[1]), null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const FileDescriptor* const foreign : {&read_end, &write_end, &null})
    EXPECT_EQ(other.ask("import", foreign->get()).code, CUDA_ERROR_UNKNOWN);
  for (const std::string number : {"-1", "900", "2147483648"})
    EXPECT_EQ(other.ask("import-number " + number).code, CUDA_ERROR_UNKNOWN) << number;
  EXPECT_EQ(other.ask("import", exported.get()).code, CUDA_SUCCESS);
}

TEST(SharedMachine, RefusesToExportWhatIsNotToBeExported) {
  const Machine machine;
  Actor one(machine), other(machine);
  one.init();
  other.init();
  EXPECT_EQ(one.ask("export " + std::to_string(one.create(0))).code, CUDA_ERROR_INVALID_VALUE);
  const auto handle = one.create(descriptors);
  const auto imported = other.import(one.export_descriptor(handle));
  EXPECT_EQ(other.ask("export " + std::to_string(imported)).code, CUDA_ERROR_INVALID_VALUE) << "it was imported";
  EXPECT_EQ(one.ask("export " + std::to_string(handle)).code, CUDA_SUCCESS);
  one.release(handle);
  EXPECT_EQ(one.ask("export " + std::to_string(handle)).code, CUDA_ERROR_INVALID_VALUE);
}

TEST(SharedMachine, LimitsTheDescriptorsOfAProcessWhereItIsToldTo) {
  const Machine machine;
  Actor one(machine, machine.settings() + ",descriptor-limit=2"), other(machine);
  one.init();
  other.init();
  const auto handle = one.create(descriptors);
  FileDescriptor first = one.export_descriptor(handle);
  const FileDescriptor second = one.export_descriptor(handle);
  EXPECT_EQ(one.ask("export " + std::to_string(handle)).code, CUDA_ERROR_OPERATING_SYSTEM);
  const auto others = other.create(descriptors);
  EXPECT_EQ(other.ask("export " + std::to_string(others)).code, CUDA_SUCCESS) << "each process has a limit of its own";
  first = FileDescriptor();
  EXPECT_EQ(one.ask("export " + std::to_string(handle)).code, CUDA_SUCCESS);
}

TEST(SharedMachine, GivesNewMemoryZerosWhoeverHadItBefore) {
  const Machine machine("memory=1GiB");
  Actor one(machine), other(machine);
  const auto all = one.init().free_bytes() / chunk * chunk;
  other.init();
  for (Actor* const actor : {&one, &other, &one}) {
    const auto handle = actor->create(0, all);
    const auto address = actor->map(handle, all);
    actor->release(handle);
    for (const std::uint64_t offset : {std::uint64_t{0}, all / 2, all - 1}) EXPECT_EQ(actor->read(address + offset), 0);
    actor->write(address, 0xab, 4096);
    actor->write(address + all / 2, 0xab, 4096);
    actor->write(address + all - 4096, 0xab, 4096);
    (void)actor->done("unmap " + std::to_string(address) + " " + std::to_string(all));
  }
}

TEST(LegacyIpc, ReachesTheOtherProcessAndIsClosedOnce) {
  const Machine machine;
  Actor one(machine), other(machine);
  const auto all = one.init().free_bytes();
  other.init();
  const auto address = one.done("alloc " + std::to_string(3 * chunk)).number();
  one.write(address, 66, 3 * chunk);
  const std::string handle = one.done("ipc-get " + std::to_string(address)).text;
  EXPECT_EQ(one.ask("ipc-open " + handle).code, CUDA_ERROR_INVALID_CONTEXT) << "it is its own";
  const auto there = other.done("ipc-open " + handle).number();
  EXPECT_EQ(other.read(there + 3 * chunk - 1), 66);
  EXPECT_EQ(other.ask("read " + std::to_string(there + 3 * chunk)).code, CUDA_ERROR_INVALID_VALUE);
  other.write(there, 67, 1);
  EXPECT_EQ(one.read(address), 67);
  EXPECT_EQ(other.ask("free " + std::to_string(there)).code, CUDA_ERROR_INVALID_VALUE) << "it is to be closed";
  EXPECT_EQ(other.done("ipc-open " + handle).number(), there) << "one address, however often";
  EXPECT_EQ(other.ask("ipc-close " + std::to_string(there)).code, CUDA_SUCCESS);
  EXPECT_EQ(other.read(there), 67) << "it was opened twice";
  EXPECT_EQ(other.ask("ipc-close " + std::to_string(there)).code, CUDA_SUCCESS);
  EXPECT_EQ(other.ask("ipc-close " + std::to_string(there)).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(other.ask("read " + std::to_string(there)).code, CUDA_ERROR_INVALID_VALUE);
  (void)one.done("free " + std::to_string(address));
  EXPECT_EQ(one.free_bytes(), all);
  EXPECT_EQ(other.ask("ipc-open " + handle).code, CUDA_ERROR_INVALID_VALUE) << "the memory is gone";
}

TEST(LegacyIpc, TellsSmallAllocationsOfOneBlockApart) {
  const Machine machine;
  Actor one(machine), other(machine);
  one.init();
  other.init();
  std::uint64_t opened[2];
  for (int index = 0; index < 2; ++index) {
    const auto address = one.done("alloc 1000").number();
    one.write(address, 10 + index, 1000);
    opened[index] = other.done("ipc-open " + one.done("ipc-get " + std::to_string(address)).text).number();
  }
  EXPECT_NE(opened[0], opened[1]);
  EXPECT_EQ(other.read(opened[0] + 999), 10);
  EXPECT_EQ(other.read(opened[1] + 999), 11);
  EXPECT_EQ(other.ask("ipc-get " + std::to_string(opened[0])).code, CUDA_ERROR_INVALID_VALUE) << "it is not its own";
}

TEST(LegacyIpc, C22_IsNotForVirtualMemory) {
  const Machine machine;
  Actor one(machine);
  const auto address = one.init().map(one.create(descriptors));
  EXPECT_EQ(one.ask("ipc-get " + std::to_string(address)).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(one.ask("explain").text.find("IPC-NOT-FOR-VMM"), std::string::npos);
  EXPECT_EQ(one.ask("ipc-get " + std::to_string(one.done("alloc 4096").number())).code, CUDA_SUCCESS);
}

}  // namespace
}  // namespace cuvmm::tests
