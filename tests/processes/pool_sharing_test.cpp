// Memory pools that pass from one process of a machine to another.
#include <fcntl.h>

#include "machine.hpp"

namespace cuvmm::tests {
namespace {

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t reserved = 32 * mebibyte;

// Two processes, one with a pool that the other has imported.
class SharedPools : public testing::Test {
 protected:
  SharedPools() {
    all = one.init().free_bytes();
    other.init();
    pool = one.done("pool-create").text;
    descriptor = std::move(one.done("pool-export " + pool).descriptor);
    imported = other.done("pool-import", descriptor.get()).text;
  }
  std::uint64_t allocate(std::uint64_t bytes) {
    return one.done("pool-allocate " + pool + " " + std::to_string(bytes)).number();
  }
  std::string told_of(std::uint64_t address) { return one.done("pool-export-pointer " + std::to_string(address)).text; }
  Actor::Reply try_pointer(const std::string& told) {
    return other.ask("pool-import-pointer " + imported + " " + told);
  }
  std::uint64_t pointer(const std::string& told) {
    const Actor::Reply reply = try_pointer(told);
    EXPECT_EQ(reply.code, CUDA_SUCCESS) << other.ask("explain").text;
    return reply.number();
  }
  static std::string number(std::uint64_t value) { return std::to_string(value); }

  const Machine machine;
  Actor one{machine}, other{machine};
  std::uint64_t all = 0;
  std::string pool, imported;
  FileDescriptor descriptor;
};

TEST_F(SharedPools, CarryBytesBothWays) {
  const auto here = allocate(5000);
  one.write(here, 7, 5000);
  const auto there = pointer(told_of(here));
  EXPECT_EQ(other.read(there + 4999), 7);
  other.write(there, 9, 5000);
  EXPECT_EQ(one.read(here + 4999), 9);
  EXPECT_NE(other.ask("read " + number(there + 5000)).code, CUDA_SUCCESS) << "only what was exported";
}

TEST_F(SharedPools, CarryAllocationsOfManyPieces) {
  const auto small = allocate(4096);
  const auto large = allocate(100 * mebibyte);
  one.write(large, 3, 100 * mebibyte);
  const auto large_there = pointer(told_of(large));
  EXPECT_EQ(other.read(large_there), 3);
  EXPECT_EQ(other.read(large_there + 50 * mebibyte), 3);
  EXPECT_EQ(other.read(large_there + 100 * mebibyte - 1), 3);
  one.write(small, 4, 4096);
  EXPECT_EQ(other.read(pointer(told_of(small))), 4);
  EXPECT_EQ(other.read(large_there), 3);
}

TEST_F(SharedPools, AreOfHostMemoryToo) {
  const std::string host = one.done("pool-create 3").text;
  const FileDescriptor passed = std::move(one.done("pool-export " + host).descriptor);
  const std::string there = other.done("pool-import", passed.get()).text;
  const auto memory = one.done("pool-allocate " + host + " 4096").number();
  (void)one.done("touch " + number(memory) + " 5");
  const std::string told = told_of(memory);
  const auto seen = other.done("pool-import-pointer " + there + " " + told).number();
  EXPECT_EQ(other.done("look " + number(seen)).number(), 5U);
  EXPECT_EQ(other.ask("read " + number(seen)).code, CUDA_ERROR_INVALID_VALUE) << "no device may touch it there";
  (void)other.done("touch " + number(seen) + " 6");
  EXPECT_EQ(one.done("look " + number(memory)).number(), 6U);
  // As recorded: copies that take it as a device's are refused where it is, too, until the device is let in.
  EXPECT_EQ(one.ask("read " + number(memory)).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(other.ask("pool-import-pointer " + there + " " + told).code, CUDA_ERROR_ALREADY_MAPPED);
  (void)other.done("free-pooled " + number(seen));
  (void)other.done("pool-import-pointer " + there + " " + told);
}

TEST_F(SharedPools, TakeMemoryOnce) {
  const auto here = allocate(mebibyte);
  EXPECT_EQ(other.free_bytes(), all - reserved);
  const auto there = pointer(told_of(here));
  EXPECT_EQ(other.free_bytes(), all - reserved) << "it is the same memory";
  EXPECT_EQ(other.ask("pool-numbers " + imported).code, CUDA_ERROR_INVALID_VALUE) << "an imported pool tells nothing";
  EXPECT_EQ(other.ask("pool-destroy " + imported).code, CUDA_ERROR_INVALID_VALUE) << "something is imported into it";
  (void)other.done("free-pooled " + number(there));
  (void)one.done("free-pooled " + number(here));
  EXPECT_EQ(one.done("pool-numbers " + pool).text, number(reserved) + "/0") << "others may come for it";
  (void)one.done("pool-destroy " + pool);
  EXPECT_EQ(one.free_bytes(), all - reserved) << "the other process has the pool still";
  (void)other.done("pool-destroy " + imported);
  EXPECT_EQ(one.free_bytes(), all - reserved) << "a descriptor is open still";
  descriptor = FileDescriptor();
  EXPECT_EQ(one.free_bytes(), all);
}

TEST_F(SharedPools, GiveNothingToImporters) {
  EXPECT_EQ(other.ask("pool-allocate " + imported + " 4096").code, CUDA_ERROR_INVALID_VALUE);
  (void)one.done("pool-allocate " + pool + " 4096");
}

TEST_F(SharedPools, AnImportersFreeIsItsOwn) {
  const auto here = allocate(4096);
  one.write(here, 7, 4096);
  const std::string told = told_of(here);
  const auto there = pointer(told);
  (void)other.done("free-pooled " + number(there));
  EXPECT_NE(other.ask("read " + number(there)).code, CUDA_SUCCESS);
  EXPECT_EQ(other.ask("free-pooled " + number(there)).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(one.read(here), 7);
  EXPECT_EQ(other.read(pointer(told)), 7) << "it can be imported again";
}

TEST_F(SharedPools, TheFirstFreeOfAPointerImportedTwiceIsTheLast) {
  const std::string told = told_of(allocate(4096));
  const auto first = pointer(told);
  EXPECT_EQ(pointer(told), first);
  (void)other.done("free-pooled " + number(first));
  EXPECT_EQ(other.ask("free-pooled " + number(first)).code, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharedPools, ExportWhatIsTheirs) {
  const auto here = allocate(4096);
  EXPECT_EQ(one.ask("pool-export-pointer " + number(here + 512)).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(one.ask("pool-export-pointer " + number(one.done("alloc-pooled 4096").number())).code,
            CUDA_ERROR_INVALID_VALUE)
      << "of a pool that was not exported";
  const auto there = pointer(told_of(here));
  EXPECT_EQ(other.ask("pool-export-pointer " + number(there)).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(other.ask("pool-export " + imported).code, CUDA_ERROR_INVALID_VALUE);
  (void)one.done("free-pooled " + number(here));
  EXPECT_EQ(one.ask("pool-export-pointer " + number(here)).code, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharedPools, ImportWhatIsTheirs) {
  const std::string told = told_of(allocate(4096));
  const std::string second = one.done("pool-create").text;
  const FileDescriptor passed = std::move(one.done("pool-export " + second).descriptor);
  const std::string wrong = other.done("pool-import", passed.get()).text;
  EXPECT_EQ(other.ask("pool-import-pointer " + wrong + " " + told).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_pointer(std::string(128, '0')).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(one.ask("pool-import-pointer " + pool + " " + told).code, CUDA_ERROR_INVALID_VALUE)
      << "it was not imported there";
  (void)pointer(told);
}

TEST_F(SharedPools, DescriptorsOfPoolsAndOfMemoryAreNotMixedUp) {
  const FileDescriptor of_memory = one.export_descriptor(one.create(descriptors));
  EXPECT_EQ(other.ask("pool-import", of_memory.get()).code, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(other.ask("import", descriptor.get()).code, CUDA_ERROR_NOT_SUPPORTED);
  (void)other.import(of_memory);
  const FileDescriptor other_file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(other.ask("pool-import", other_file.get()).code, CUDA_ERROR_UNKNOWN);
}

TEST_F(SharedPools, AreImportedWhileADescriptorIsOpen) {
  (void)one.done("pool-destroy " + pool);
  (void)other.done("pool-destroy " + imported);
  const std::string again = other.done("pool-import", descriptor.get()).text;
  (void)other.done("pool-destroy " + again);
  EXPECT_EQ(other.ask("pool-destroy " + again).code, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharedPools, WhatWasExportedOutlivesTheExporter) {
  const auto here = allocate(4096), second = allocate(4096);
  one.write(here, 7, 4096);
  one.write(second, 8, 4096);
  const std::string told = told_of(here), later = told_of(second);
  const auto there = pointer(told);
  one.kill();
  EXPECT_EQ(other.read(there), 7);
  const auto found = pointer(later);
  EXPECT_EQ(other.read(found), 8);
  EXPECT_EQ(other.free_bytes(), all - reserved);
  (void)other.done("free-pooled " + number(there));
  (void)other.done("free-pooled " + number(found));
  (void)other.done("pool-destroy " + imported);
  descriptor = FileDescriptor();
  EXPECT_EQ(other.free_bytes(), all);
}

TEST_F(SharedPools, AnImporterThatIsKilledGivesAllBack) {
  (void)pointer(told_of(allocate(4096)));
  other.kill();
  descriptor = FileDescriptor();
  EXPECT_EQ(one.free_bytes(), all - reserved);
  one.kill();
  Actor third(machine);
  EXPECT_EQ(third.init().free_bytes(), all);
}

TEST_F(SharedPools, AreSharedOnWhereTheyWereDestroyed) {
  const auto here = allocate(4096);
  one.write(here, 7, 4096);
  (void)one.done("pool-destroy " + pool);
  const std::string told = told_of(here);
  const auto there = pointer(told);
  (void)one.done("free-pooled " + number(here));
  EXPECT_EQ(other.read(there), 7);
  (void)other.done("free-pooled " + number(there));
  EXPECT_EQ(other.read(pointer(told)), 7) << "the pool keeps it";
}

TEST(SharedPoolsOfNodes, DoNotReachAnotherNode) {
  const Machine machine("memory=2GiB,nodes=2");
  Actor one(machine, machine.settings() + ",node=0"), other(machine, machine.settings() + ",node=1");
  one.init();
  other.init();
  const FileDescriptor passed = std::move(one.done("pool-export " + one.done("pool-create").text).descriptor);
  EXPECT_EQ(other.ask("pool-import", passed.get()).code, CUDA_ERROR_UNKNOWN);
}

}  // namespace
}  // namespace cuvmm::tests
