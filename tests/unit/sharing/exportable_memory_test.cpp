// Memory that is created to be exported, by more handle types than one.
#include "range/range_machine.hpp"

namespace cuvmm {
namespace {

using test::EntryPoint;
using test::RangeMachine;

constexpr HandleTypes descriptors = HandleType::posix_file_descriptor;
constexpr HandleTypes both = HandleType::posix_file_descriptor | HandleType::fabric;
const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));

emulator::Configuration with_imex_channel() {
  emulator::Configuration configuration = test::strict_machine();
  configuration.imex_channels = 1;
  return configuration;
}

TEST(ExportableMemory, C28_DoesWithoutFabricHandlesThatAreNotPermittedAndAsksOnceForEachDevice) {
  RangeMachine machine(test::strict_machine(2));
  const auto source = PhysicalSource::create(machine.driver());
  EXPECT_FALSE(source->fabric_refusal(device0)) << "nobody has asked";
  machine.calls();
  const auto first = source->acquire({.handle_types = both}, 2_MiB);
  EXPECT_EQ(machine.calls(), "cuMemCreate 2");
  EXPECT_EQ(first.properties().handle_types, descriptors) << "what was got";
  const auto refusal = source->fabric_refusal(device0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->kind, ErrorKind::not_permitted);
  EXPECT_NE(refusal->message().find("IMEX"), std::string::npos) << refusal->message();
  const auto other = PhysicalSource::create(machine.driver());
  for (const auto& each : {source, other}) static_cast<void>(each->acquire({.handle_types = both}, 2_MiB));
  EXPECT_EQ(machine.calls(), "cuMemCreate 2, cuMemRelease 2") << "it is known, whichever source asks";
  EXPECT_FALSE(source->fabric_refusal(device1));
  static_cast<void>(source->acquire({.location = device1, .handle_types = both}, 2_MiB));
  EXPECT_EQ(machine.calls(), "cuMemCreate 2, cuMemRelease 1");
  EXPECT_TRUE(source->fabric_refusal(device1));
}

TEST(ExportableMemory, C28_ReportsALackOfMemoryAndDoesNotFallBack) {
  emulator::Configuration configuration = with_imex_channel();
  configuration.profile.behaviour.fabric_creation_out_of_memory = true;
  RangeMachine machine(configuration);
  const auto source = PhysicalSource::create(machine.driver());
  const auto memory = source->try_acquire({.handle_types = both}, 2_MiB);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.failure().kind, ErrorKind::out_of_device_memory);
  EXPECT_FALSE(source->fabric_refusal(device0));
  EXPECT_TRUE(source->try_acquire({.handle_types = descriptors}, 2_MiB)) << "and yet there is memory";
}

TEST(ExportableMemory, IsExportableByAllTypesWhereTheMachineHasThem) {
  RangeMachine machine(with_imex_channel());
  const auto source = PhysicalSource::create(machine.driver());
  machine.calls();
  EXPECT_EQ(source->acquire({.handle_types = both}, 2_MiB).properties().handle_types, both);
  EXPECT_EQ(machine.calls(), "cuMemCreate 1, cuMemRelease 1");
  EXPECT_FALSE(source->fabric_refusal(device0));
}

TEST(ExportableMemory, FallsBackAlsoWhereFabricHandlesAreNotSupportedButForNoOtherFailure) {
  for (const auto code : {abi::CUDA_ERROR_NOT_SUPPORTED, abi::CUDA_ERROR_NOT_PERMITTED, abi::CUDA_ERROR_INVALID_VALUE,
                          abi::CUDA_ERROR_UNKNOWN, abi::CUDA_ERROR_OUT_OF_MEMORY}) {
    RangeMachine machine(with_imex_channel());
    const auto source = PhysicalSource::create(machine.driver());
    machine.fail(EntryPoint::cuMemCreate, 1, code);
    const bool refuses = code == abi::CUDA_ERROR_NOT_SUPPORTED || code == abi::CUDA_ERROR_NOT_PERMITTED;
    const auto memory = source->try_acquire({.handle_types = both}, 2_MiB);
    EXPECT_EQ(memory.has_value(), refuses) << code;
    if (memory) {
      EXPECT_EQ(memory->properties().handle_types, descriptors);
    }
    EXPECT_EQ(source->fabric_refusal(device0).has_value(), refuses) << code;
  }
}

TEST(ExportableMemory, WhatElseIsNotSupportedIsNotTakenForFabricHandles) {
  RangeMachine machine(with_imex_channel());
  const auto source = PhysicalSource::create(machine.driver());
  machine.fail(EntryPoint::cuMemCreate, 1, abi::CUDA_ERROR_NOT_SUPPORTED, true);
  const auto memory = source->try_acquire({.handle_types = both}, 2_MiB);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.failure().kind, ErrorKind::not_supported);
  machine.faults().clear();
  EXPECT_EQ(source->acquire({.handle_types = both}, 2_MiB).properties().handle_types, both);
}

TEST(ExportableMemory, FabricHandlesAskedForAloneAreADemand) {
  RangeMachine machine;
  const auto source = PhysicalSource::create(machine.driver());
  EXPECT_THROW(static_cast<void>(source->acquire({.handle_types = HandleType::fabric}, 2_MiB)), NotPermitted);
}

TEST(ExportableMemory, C28_ARangeDoesWithoutAndTellsOrFailsIfTheyAreRequired) {
  RangeMachine machine;
  MappedRangeOptions options{.capacity = 64_MiB, .memory = {.handle_types = both}};
  auto range = MappedRange::create(machine.driver(), options);
  EXPECT_EQ(range.properties().handle_types, both) << "as asked for, as long as there is no chunk";
  range.append(2_MiB);
  EXPECT_EQ(range.properties().handle_types, descriptors);
  EXPECT_EQ(range.memory_at(0).properties().handle_types, descriptors);
  EXPECT_TRUE(range.source()->fabric_refusal(device0));
  machine.calls();
  range.append(2_MiB);
  EXPECT_EQ(machine.calls(), "cuMemCreate 1, cuMemMap 1, cuMemSetAccess 1");
  options.require_features = true;
  auto strict = MappedRange::create(machine.driver(), options);
  try {
    strict.append(2_MiB);
    ADD_FAILURE() << "it went without";
  } catch (const NotSupported& error) {
    EXPECT_NE(error.failure().reason.find("IMEX"), std::string::npos) << error.what();
  }
  EXPECT_EQ(strict.mapped_bytes(), 0u);
  RangeMachine able(with_imex_channel());
  auto content = MappedRange::create(able.driver(), options);
  content.append(2_MiB);
  EXPECT_EQ(content.properties().handle_types, both);
}

// Nothing is tried before it is asked for: memory for descriptors makes no call that fails.
TEST(ExportableMemory, C29_NoFailingCallIsMadeUnlessFabricHandlesAreAskedFor) {
  RangeMachine machine;
  auto range = MappedRange::create(machine.driver(), {.capacity = 64_MiB, .memory = {.handle_types = descriptors}});
  machine.calls();
  range.append(2_MiB);
  EXPECT_EQ(machine.calls(), "cuMemCreate 1, cuMemMap 1, cuMemSetAccess 1");
  EXPECT_FALSE(range.source()->fabric_refusal(device0));
}

}  // namespace
}  // namespace cuvmm
